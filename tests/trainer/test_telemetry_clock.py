from __future__ import annotations

import time

import pytest

from trainer.telemetry.usage import Clock


class Now:
    """A clock to set by hand, in nanoseconds."""

    def __init__(self) -> None:
        self.time = 10**18

    def __call__(self) -> int:
        return self.time


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    now = Now()
    monkeypatch.setattr("trainer.telemetry.usage.perf_counter_ns", now)
    return now


def spend(clock: Clock, now: Now, name: str, nanoseconds: int) -> None:
    with clock(name):
        now.time += nanoseconds


def test_shares_are_exact_however_many_parts_there_were(now: Now) -> None:
    clock = Clock()
    for _ in range(10_000):
        spend(clock, now, "env", 3)
        spend(clock, now, "learn", 5)
        now.time += 2
    assert clock.drain() == {"time/env": 0.3, "time/learn": 0.5, "time/other": 0.2}


def test_each_line_is_of_its_own_stretch_and_has_all_parts_seen(now: Now) -> None:
    clock = Clock()
    assert clock.drain() == {}
    now.time += 60
    assert clock.drain() == {}
    spend(clock, now, "evaluate", 40)
    assert clock.drain() == {"time/evaluate": 1.0, "time/other": 0.0}
    spend(clock, now, "learn", 1)
    now.time += 3
    assert clock.drain() == {"time/evaluate": 0.0, "time/learn": 0.25, "time/other": 0.75}
    assert clock.drain() == {}  # no time has passed


def test_a_part_that_runs_counts_so_far(now: Now) -> None:
    clock = Clock()
    with clock("checkpoint"):
        now.time += 8
        assert clock.drain() == {"time/checkpoint": 1.0, "time/other": 0.0}
        now.time += 3
    now.time += 1
    assert clock.drain() == {"time/checkpoint": 0.75, "time/other": 0.25}


def test_parts_do_not_lie_within_each_other(now: Now) -> None:
    clock = Clock()
    with clock("env"):
        now.time += 1
        with pytest.raises(RuntimeError, match="the clock runs for 'env': 'learn' cannot begin"):
            clock("learn")
    spend(clock, now, "learn", 1)
    assert clock.drain() == {"time/env": 0.5, "time/learn": 0.5, "time/other": 0.0}


def test_a_part_that_fails_counts_and_ends(now: Now) -> None:
    clock = Clock()

    def fail() -> None:
        with clock("env"):
            now.time += 1
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    spend(clock, now, "env", 2)
    now.time += 1
    assert clock.drain() == {"time/env": 0.75, "time/other": 0.25}


def test_real_time() -> None:
    clock = Clock()
    with clock("env"):
        time.sleep(0.2)
    shares = clock.drain()
    assert shares["time/env"] > 0.5
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
