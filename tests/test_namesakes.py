"""Another author's `clusterkit` or `trainer` beside ours: it is named before any of it runs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ours."""
    folder = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(argv, check=True, capture_output=True)
    (built,) = folder.glob("clusterkit_rl-*.whl")
    return built


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """What `pip install clusterkit` brings: a package with no more than a version."""
    return distribution(tmp_path, "clusterkit")


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    """A new environment, with what ours depends on and nothing of ours."""
    return Venv(tmp_path / "venv")


def distribution(folder: Path, name: str) -> Path:
    info = f"{name}-0.0.1.dist-info"
    files = {
        f"{name}/__init__.py": '__version__ = "0.0.1"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        for file, text in files.items():
            made.writestr(file, text)
    return path


class Venv:
    """A virtual environment, used as a person does."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.bin = folder / "bin"
        (self.site,) = folder.glob("lib/python*/site-packages")
        needed = folder / "needed"
        needed.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if "clusterkit" not in path.name:
                (needed / path.name).symlink_to(path)
        (self.site / "needed.pth").write_text(str(needed))

    def pip(self, *words: str | Path) -> None:
        argv = [self.bin / "python", "-m", "pip", "--disable-pip-version-check", *words]
        subprocess.run(argv, check=True, capture_output=True)

    def install(self, *words: str | Path) -> None:
        self.pip("install", "--no-deps", "--no-index", "--no-build-isolation", *words)

    def runs(
        self, *argv: str | Path, folder: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [self.bin / argv[0], *argv[1:]],
            cwd=folder,
            env={**kept, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )


def test_a_strangers_distribution_in_our_folder_is_refused_until_it_is_gone(
    venv: Venv, wheel: Path, stranger: Path, tmp_path: Path
) -> None:
    venv.install(wheel)
    assert venv.runs("clusterkit", "--version", folder=tmp_path).stdout == "clusterkit 0.1.0\n"
    venv.install(stranger)
    for argv in (["clusterkit", "--version"], ["python", "-m", "clusterkit", "--version"]):
        refused = venv.runs(*argv, folder=tmp_path)
        assert refused.returncode == 1
        assert refused.stdout == ""
        cause, step = refused.stderr.splitlines()
        assert cause.startswith("error: another author's distribution `clusterkit` (0.0.1) is installed in ")
        assert str(venv.site) in cause
    uninstall, _, install = step.removeprefix("next:  ").partition("; then ")
    for command in (f"{uninstall} --yes", f"{install} --no-index"):
        subprocess.run(shlex.split(command), check=True, capture_output=True)
    assert venv.runs("clusterkit", "--version", folder=tmp_path).stdout == "clusterkit 0.1.0\n"


def test_files_that_a_stranger_took_along_are_missed(
    venv: Venv, wheel: Path, stranger: Path, tmp_path: Path
) -> None:
    venv.install(wheel)
    venv.install(stranger)
    venv.pip("uninstall", "--yes", "clusterkit")
    refused = venv.runs("clusterkit", "--version", folder=tmp_path)
    assert refused.returncode == 1
    cause, step = refused.stderr.splitlines()
    assert f"files of clusterkit-rl are missing in {venv.site / 'clusterkit'}" in cause
    subprocess.run(shlex.split(f"{step.removeprefix('next:  ')} --no-index"), check=True, capture_output=True)
    assert venv.runs("clusterkit", "--version", folder=tmp_path).stdout == "clusterkit 0.1.0\n"


def test_a_stranger_that_hides_a_checkout_is_refused(venv: Venv, stranger: Path, tmp_path: Path) -> None:
    venv.install("-e", ROOT)
    assert venv.runs("clusterkit", "--version", folder=tmp_path).stdout == "clusterkit 0.1.0\n"
    venv.install(stranger)
    refused = venv.runs("clusterkit", "--version", folder=tmp_path)
    assert refused.returncode == 1
    cause, step = refused.stderr.splitlines()
    hidden = f"another package `clusterkit`, in {venv.site / 'clusterkit'}, hides the one of clusterkit-rl"
    assert cause == f"error: {hidden}, in {ROOT}"
    subprocess.run(shlex.split(f"{step.removeprefix('next:  ')} --yes"), check=True, capture_output=True)
    assert venv.runs("clusterkit", "--version", folder=tmp_path).stdout == "clusterkit 0.1.0\n"


def test_a_folder_on_pythonpath_that_hides_ours_is_refused(venv: Venv, wheel: Path, tmp_path: Path) -> None:
    venv.install(wheel)
    hiding = tmp_path / "project"
    (hiding / "clusterkit").mkdir(parents=True)
    (hiding / "clusterkit" / "__init__.py").write_text("raise SystemExit('it ran')\n")
    refused = venv.runs("clusterkit", "--version", folder=tmp_path, env={"PYTHONPATH": str(hiding)})
    assert refused.returncode == 1
    assert f"another package `clusterkit`, in {hiding / 'clusterkit'}, hides" in refused.stderr
    assert f"next:  take {hiding} out of PYTHONPATH, or rename that folder" in refused.stderr
    started_there = venv.runs("clusterkit", "--version", folder=hiding)
    assert started_there.stdout == "clusterkit 0.1.0\n", started_there.stderr


def test_another_trainer_is_refused_in_our_folder_and_passed_over_elsewhere(
    venv: Venv, wheel: Path, tmp_path: Path
) -> None:
    venv.install(wheel)
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").write_text("raise SystemExit('it ran')\n")
    lists = venv.runs("python", "-m", "clusterkit", "profiles", folder=tmp_path)
    assert lists.returncode == 0, lists.stderr
    (tmp_path / "clusterkit.toml").touch()
    plans = venv.runs(
        "python", "-m", "clusterkit", "submit", "--profile", "local-demo", "--dry-run", folder=tmp_path
    )
    assert "--recipe local-demo" in plans.stdout, plans.stderr
    venv.install(distribution(tmp_path, "trainer"))
    refused = venv.runs("clusterkit", "--version", folder=tmp_path)
    assert refused.returncode == 1
    assert "another author's distribution `trainer` (0.0.1)" in refused.stderr
