"""Short names of runs: which run one means, and that it never comes to mean another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError, RunError
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.names import find, in_group
from tests.runs.test_ledger import run as a_run

LONG = "a-project-with-a-name-of-forty-character-3"
GROUP = "phd-20260102-030405-k3f9"


def named(run_id: str, short: str, group: str = "") -> LedgerRun:
    return replace(a_run(run_id, "1"), short=short, group=group)


RUNS = [
    named("phd-20260101-000000-aaaa", "phd-1"),
    named(f"{GROUP}-0", "phd-2/seed1", GROUP),
    named(f"{GROUP}-1", "phd-2/seed2", GROUP),
    named("other-20260103-000000-bbbb", "phd-20"),
    named("p-20260104-000000-cccc-0", f"{LONG}/0", "p-20260104-000000-cccc"),
    named("p-20260104-000000-cccc-1", f"{LONG}/1", "p-20260104-000000-cccc"),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (LONG, [4, 5]),
        (f"{LONG}/0", [4]),
        ("phd-1", [0]),
        ("phd-2", [1, 2]),
        ("phd-2/seed2", [2]),
        ("phd-20", [3]),
        ("phd-20260101", [0]),
        (GROUP[:-1], [1, 2]),
        ("other", [3]),
    ],
)
def test_a_name_means(name: str, expected: list[int]) -> None:
    assert [RUNS.index(run) for run in find(RUNS, [name])] == expected


@pytest.mark.parametrize("name", ["phd-2026", "phd-3", "phd-2/seed", "phd-2/seed3"])
def test_a_short_name_that_no_run_has_yet_means_none(name: str) -> None:
    with pytest.raises(RunError, match="no run"):
        find(RUNS, [name])


def test_a_short_name_of_two_runs_means_neither() -> None:
    theirs = named("x-20260101-000000-cccc", "phd-1")
    with pytest.raises(RunError, match="may mean phd-20260101-000000-aaaa, x-20260101-000000-cccc"):
        find([*RUNS, theirs], ["phd-1"])


def test_a_group_is_meant_by_its_short_name_or_the_beginning_of_its_id() -> None:
    meant = {name: [in_group(run, name) for run in RUNS] for name in ("phd-2", "phd-2026010", "phd-202")}
    assert meant["phd-2"] == [False, True, True, False, False, False]
    assert not any(meant["phd-202"])  # a short name, of which none is there yet
    assert meant["phd-2026010"] == [False] * len(RUNS)


def test_a_number_is_given_once(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite3") as ledger:
        assert [ledger.new_number(), ledger.new_number()] == [1, 2]
        ledger.add(named("a", "phd-7/seed1"))
        assert ledger.new_number() == 8
        ledger.restore([named("a", "phd-7/seed1")], [None])
        assert ledger.new_number() == 9
        assert ledger.new_number(["phd-12", "phd-x", ""]) == 13
        assert ledger.new_number(["phd-1000000", "phd-99999999"]) == 14  # a stranger's, to use all up
        assert ledger.new_number(["phd-999999"]) == 1_000_000
        assert ledger.new_number() == 1_000_001


def test_a_short_name_that_clusterkit_never_writes_is_damage(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite3") as ledger:
        ledger.add(named("a", "--help"))
        with pytest.raises(ClusterkitError, match="a has no readable short name"):
            ledger.runs()
