"""The command that installs clusterkit-rl again, by where it came from."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from clusterkit_rl import distribution

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
    root = str(Path(__file__).resolve().parent.parent)
    assert shlex.split(distribution.install_command()) == [*PIP, "-e", root]


def test_no_text_of_the_product_installs_another_authors_distribution() -> None:
    root = Path(__file__).resolve().parent.parent
    files = [root / "README.md", *root.glob("*.py"), *root.glob("docs/**/*.md")]
    files += [
        file
        for name in ("clusterkit", "trainer", "templates", "containers")
        for file in (root / name).rglob("*")
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
