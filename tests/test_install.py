"""README's installation without pinned versions: pip finds some that fit, and README says what it fetches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
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
