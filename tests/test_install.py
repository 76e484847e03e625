"""README's installation without pinned versions finds some that fit; what is installed tells how again."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clusterkit_rl import distribution

ROOT = Path(__file__).resolve().parents[1]
SECTION = (ROOT / "README.md").read_text().partition("## Install")[2].partition("\n## ")[0]
NEWCOMER = {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""Nothing but pip's default index, and how this machine reaches it."""
REACHES = ("PIP_CERT", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT")


def size(url: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
        return int(answer.headers["Content-Length"])


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What pip would install in an environment that has nothing yet."""
    folder = tmp_path_factory.mktemp("install")
    (command,) = re.findall(r"^pip (install \S+)", SECTION, re.MULTILINE)
    (folder / "clusterkit").symlink_to(ROOT)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name in REACHES
    }
    said = subprocess.run(
        [
            "sh",
            "-c",
            f'"$0" -m pip {command} --dry-run --ignore-installed --quiet --report report',
            sys.executable,
        ],
        cwd=folder,
        env=kept | NEWCOMER,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    installed: list[dict[str, Any]] = json.loads((folder / "report").read_text())["install"]
    return installed


@pytest.mark.slow
@pytest.mark.needs("PyPI")
def test_pip_finds_versions_that_fit_and_readme_says_how_much_it_fetches(
    resolved: list[dict[str, Any]],
) -> None:
    versions = {package["metadata"]["name"]: package["metadata"]["version"] for package in resolved}
    assert {"clusterkit-rl", "torch", "metaworld", "wandb", "typer"} <= versions.keys()
    urls = [package["download_info"]["url"] for package in resolved]
    with ThreadPoolExecutor(16) as pool:
        gigabytes = sum(pool.map(size, (url for url in urls if url.startswith("https:")))) / 1e9
    print(f"{len(versions)} packages, {gigabytes:.1f} GB, torch {versions['torch']}")
    (said,) = re.findall(r"([\d.]+) GB", SECTION)
    assert float(said) / 1.5 < gigabytes < float(said) * 1.5
    assert SECTION.index(" GB") < SECTION.index("pip install")  # before it happens


PIP = [sys.executable, "-m", "pip", "install"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ({"url": "file:///w/x.whl", "archive_info": {}}, "clusterkit-rl[train] @ file:///w/x.whl"),
        ({"url": "file:///src", "dir_info": {}}, "clusterkit-rl[train] @ file:///src"),
        (
            {"url": "https://g.example/c.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"clusterkit-rl[train] @ git+https://g.example/c.git@{COMMIT}",
        ),
        (None, "clusterkit-rl[train]"),
    ],
)
def test_an_installed_package_names_the_source_that_pip_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, object] | None, wanted: str
) -> None:
    info = tmp_path / "clusterkit_rl-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: clusterkit-rl\nVersion: 0.1.0\n")
    if record is not None:
        (info / "direct_url.json").write_text(json.dumps(record))
    monkeypatch.setattr(distribution, "HERE", tmp_path)
    assert shlex.split(distribution.install_command(extra="train")) == [*PIP, wanted]


def test_a_checkout_names_its_folder() -> None:
    assert shlex.split(distribution.install_command()) == [*PIP, "-e", str(ROOT)]


def test_no_text_of_the_product_installs_another_authors_distribution() -> None:
    files = [ROOT / "README.md", *ROOT.glob("*.py"), *ROOT.glob("docs/**/*.md")]
    files += [
        file
        for name in ("clusterkit", "trainer", "templates", "containers")
        for file in (ROOT / name).rglob("*")
    ]
    for file in files:
        if file.is_file() and file.suffix != ".pyc":
            text = file.read_text()
            for names in (
                "install clusterkit ",
                "install clusterkit\n",
                "install 'clusterkit[",
                "install clusterkit[",
            ):
                assert names not in text, f"{file}: {names}"
