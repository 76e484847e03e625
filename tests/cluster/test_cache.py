"""Built once, in one piece, whoever asks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import cache

SLOW_BUILDER = """
import os, time
from tests.cluster.cache import cached

def build(target):
    time.sleep(0.5)
    target.write_text(str(os.getpid()))

print(os.getpid(), cached("thing", ["input"], build).read_text())
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "clusterkit/testbed"


def test_the_same_inputs_are_built_once() -> None:
    def build(target: Path) -> None:
        target.write_text("built")

    def refuse(target: Path) -> None:
        raise AssertionError("built again")

    first = cache.cached("thing", ["a", "b"], build, suffix=".sif")
    assert first.suffix == ".sif"
    assert cache.cached("thing", ["a", "b"], refuse, suffix=".sif") == first


def test_other_inputs_are_another_entry() -> None:
    entries = {cache.cached("thing", inputs, Path.touch) for inputs in (["ab"], ["a", "b"], ["a", "c"])}
    assert len(entries) == 3


def test_a_build_that_fails_leaves_nothing_to_be_found(root: Path) -> None:
    def half(target: Path) -> None:
        target.mkdir()
        (target / "half").touch()
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        cache.cached("thing", ["a"], half)
    assert cache.cached("thing", ["a"], Path.mkdir).is_dir()
    assert not list(root.glob("*.unfinished"))


def test_two_processes_build_once() -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", SLOW_BUILDER], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [child.communicate(timeout=120)[0].split() for child in children]
    builders = {builder for _, builder in said}
    assert len(builders) == 1
    assert builders < {pid for pid, _ in said}


def test_what_nobody_used_for_a_month_is_forgotten() -> None:
    stale = cache.cached("thing", ["old"], Path.mkdir)
    recent = cache.cached("thing", ["recent"], Path.mkdir)
    other = cache.cached("other", ["old"], Path.mkdir)
    long_ago = time.time() - cache.UNUSED_SECONDS - 1
    for entry in (stale, other):
        os.utime(entry, (long_ago, long_ago))
    cache.cached("thing", ["new"], Path.mkdir)
    assert not stale.exists()
    assert recent.exists()
    assert other.exists()
