"""Which runs are meant."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ConfigError
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.selection import Selection, known_state, parse_since, parse_states, recent, settled
from clusterkit.runs.state import RunState, to_text

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)


def run(number: int, state: str = "PENDING", last: RunState | None = None) -> LedgerRun:
    moment = f"{NOW - timedelta(days=100 - number):%Y-%m-%dT%H:%M:%SZ}"
    text = to_text(last) if last else ""
    return LedgerRun(
        f"r{number:03}", "uni", "n", "p", "r", 1, "7", moment, f"/runs/r{number}", 9, state, last=text
    )


def test_states_by_name_kind_and_with_commas() -> None:
    assert parse_states(["running", "FAILED, not_submitted"]) == {
        JobState.RUNNING,
        JobState.FAILED,
        JobState.NOT_SUBMITTED,
    }
    active, ended = parse_states(["active"]), parse_states(["ended"])
    assert JobState.PENDING in active
    assert JobState.TIMEOUT in ended
    assert active | ended | {JobState.UNKNOWN} == set(JobState)
    with pytest.raises(ConfigError, match="no state 'runing'"):
        parse_states(["runing"])


def test_since() -> None:
    assert parse_since("2d", NOW) == NOW - timedelta(days=2)
    assert parse_since("2026-01-31T00:00:00+00:00", NOW) == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_since("2026-01-31", NOW).tzinfo is not None
    for text in ("yesterday", "7", "99999999999999d"):
        with pytest.raises(ConfigError, match="no time"):
            parse_since(text, NOW)


def test_each_filter_must_hold() -> None:
    one = replace(run(1), group="sweep-1")
    assert Selection().matches(one)
    assert not Selection()
    assert Selection(groups=frozenset({"sweep"}), profiles=frozenset({"p"})).matches(one)
    assert not Selection(groups=frozenset({"sweep"}), names=frozenset({"m"})).matches(one)
    assert not Selection(groups=frozenset({"sweep"})).matches(run(1))
    assert not Selection(since=NOW).matches(one)
    assert not Selection(since=NOW).matches(replace(one, submitted="some day"))


def test_a_state_of_before_does_not_count_when_something_was_done_since() -> None:
    failed = RunState(JobState.FAILED, why="x", final=True)
    assert settled(run(1, "FAILED", failed))
    assert not settled(run(1, "PENDING", failed))  # it was resumed
    assert known_state(run(1, "CANCELLED", RunState(JobState.RUNNING))).state is JobState.CANCELLED
    assert settled(run(1, "NOT_SUBMITTED"))
    assert not settled(run(1, "FAILED"))  # by a ledger of an older version: once more
    assert known_state(run(1, "SUBMITTING")).why is not None


def test_recent_is_what_lives_and_what_ended_last() -> None:
    def ended(number: int, at: float) -> LedgerRun:
        return run(number, "COMPLETED", RunState(JobState.COMPLETED, final=True, updated=at))

    long_one = ended(0, NOW.timestamp())  # submitted first, ended last
    runs = [long_one, run(1), *(ended(number, number) for number in range(2, 40))]
    shown = [each.run_id for each in recent(runs)]
    assert shown[:2] == ["r000", "r001"]
    assert shown[2:] == [f"r{number:03}" for number in range(26, 40)]


def test_what_was_submitted_last_is_recent_though_it_never_ran_or_a_clock_says_otherwise() -> None:
    old = [
        run(number, "CANCELLED", RunState(JobState.CANCELLED, final=True, updated=NOW.timestamp()))
        for number in range(20)
    ]
    refused = replace(run(20, "NOT_SUBMITTED"), last='{"state": "NOT_SUBMITTED", "why": "refused"}')
    behind = run(21, "FAILED", RunState(JobState.FAILED, final=True, updated=1.0))
    shown = recent([*old, refused, behind])
    assert shown[-2:] == [refused, behind]
    assert len(shown) == 15


def test_of_a_group_all_runs_are_recent_or_none() -> None:
    last = RunState(JobState.COMPLETED, final=True, updated=1.0)
    grouped = [replace(run(number, "COMPLETED", last), group="g") for number in range(30)]
    assert recent(grouped) == grouped
    later = [replace(run(50, "COMPLETED", replace(last, updated=2.0)), run_id=f"x{n}") for n in range(20)]
    assert recent([*grouped, *later]) == later[5:]
