"""The budget: code that is added takes the place of other code, or a bound here is raised with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.weight import RUNTIMES, SLURM, files_with, walk_of_submit, weight

ROOT = Path(__file__).resolve().parent.parent
BOUNDS = {
    "clusterkit": (390, 46_110, 0.114),
    "trainer": (170, 15_463, 0.114),
    "tests": (523, 58_670, 0.095),
}
"""Files, lines of code and the share of them that imports."""
TESTBED = [path for path in (ROOT / "tests/cluster").rglob("*.py") if not path.name.startswith("test_")]
NOT_WEIGHED = [ROOT / "tests/benchmarks", *TESTBED]
SUBMIT = (48, 111, 75)
"""Files that a submission enters, pairs of files that call each other, modules that are imported."""
SLURM_FILES, RUNTIME_FILES = 10, 4
"""Files that know words of Slurm outside its backend; those of a container runtime outside runtimes."""


@pytest.mark.parametrize("package", BOUNDS)
def test_a_package_stays_within_its_budget(package: str) -> None:
    measured = weight(package, without=NOT_WEIGHED)
    assert all(value <= bound for value, bound in zip(measured, BOUNDS[package], strict=True)), measured


@pytest.mark.parametrize(
    ("words", "home", "bound"),
    [(SLURM, "clusterkit/backends/slurm", SLURM_FILES), (RUNTIMES, "clusterkit/runtimes", RUNTIME_FILES)],
    ids=["scheduler", "runtimes"],
)
def test_the_words_of_a_seam_stay_at_home(words: re.Pattern[str], home: str, bound: int) -> None:
    files = files_with(words, outside=home)
    assert len(files) <= bound, files


@pytest.mark.slow
def test_a_submission_walks_no_farther(tmp_path: Path) -> None:
    walk = walk_of_submit(tmp_path)
    assert all(value <= bound for value, bound in zip(walk, SUBMIT, strict=True)), walk
