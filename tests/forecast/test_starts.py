"""Which request to make, by when it would start."""

from __future__ import annotations

from clusterkit.backends.jobs import PredictedStart
from clusterkit.forecast.queue import Ask, StartAdvice, advise

HOUR = 3600
DAY = 24 * HOUR
ASKED = Ask("a40", DAY)


def starts(*rows: tuple[str, int, float | None]) -> dict[Ask, PredictedStart]:
    return {
        Ask(gpu, hours * HOUR): PredictedStart(wait, partition="p", words="" if wait is not None else "no")
        for gpu, hours, wait in rows
    }


def advice(
    rows: dict[Ask, PredictedStart],
    needed: float | None = None,
    *,
    goes_on: bool = False,
    fitting: tuple[str, ...] = (),
) -> StartAdvice | None:
    return advise(rows, ASKED, needed=needed, goes_on=goes_on, fitting=fitting)


def test_a_shorter_request_that_starts_sooner() -> None:
    found = advice(starts(("a40", 1, 0.0), ("a40", 4, 5.0), ("a40", 24, 20.0 * HOUR)), needed=10.0 * HOUR)
    assert found.ask == Ask("a40", 4 * HOUR), "the longest of those that start now"
    assert found.text == "request 4h with --until-done: it starts now, 19h 59m sooner; about 3 attempts"


def test_a_run_that_goes_on_anyway_is_not_told_to() -> None:
    found = advice(starts(("a40", 4, 0.0), ("a40", 24, 9.0 * HOUR)), goes_on=True)
    assert found.text == "request 4h: it starts now, 9h 00m sooner"


def test_a_request_in_which_the_run_ends_needs_no_until_done() -> None:
    found = advice(starts(("a40", 4, 0.0), ("a40", 24, 9.0 * HOUR)), needed=3.0 * HOUR)
    assert "--until-done" not in found.text


def test_another_gpu_only_if_the_run_fits_it() -> None:
    rows = starts(("a40", 24, 9.0 * HOUR), ("l40s", 24, 0.0))
    found = advice(rows)
    assert found.ask is None
    assert found.text == "no other request starts much sooner"
    found = advice(rows, fitting=("l40s",))
    assert found.text == "request 1d on l40s: it starts now, 9h 00m sooner"
    rows |= starts(("a40", 4, 0.0))
    found = advice(rows, fitting=("l40s",))
    assert found.ask == Ask("a40", 4 * HOUR), "the same GPU first"


def test_as_it_is() -> None:
    found = advice(starts(("a40", 24, 30.0), ("a40", 1, 0.0)))
    assert found == StartAdvice("it starts now without changes")
    found = advice(starts(("a40", 24, 500.0), ("a40", 1, 0.0)))
    assert found.ask is None, "minutes are no reason"


def test_a_longer_request_that_starts_as_soon_saves_attempts() -> None:
    rows = starts(("a40", 24, 0.0), ("a40", 48, 0.0), ("a40", 72, 0.0), ("a40", 96, HOUR))
    assert advice(rows, needed=20.0 * HOUR) == StartAdvice("it starts now without changes")
    found = advice(rows, needed=40.0 * HOUR)
    assert found.ask == Ask("a40", 48 * HOUR), "no longer than needed"
    assert found.text == "request 2d: it also starts now, and takes one attempt instead of 2"
    found = advice(rows, needed=90.0 * HOUR)
    assert found.text == "request 3d: it also starts now, and takes 2 attempts instead of 4"


def test_behind_others_a_start_is_a_bound() -> None:
    found = advice(
        dict.fromkeys((ASKED, Ask("a40", HOUR)), PredictedStart(9.0 * HOUR, partition="p", waiting=3))
    )
    assert found.ask is None
    assert "the 3 jobs that wait there may all start first; a shorter request" in found.text


def test_where_nothing_starts_nothing_is_advised() -> None:
    assert advice(starts(("a40", 24, None), ("a40", 1, None))) is None
    assert advice({}) is None
    found = advice(starts(("a40", 24, None), ("a40", 4, 7200.0)))
    assert found.text == "request 4h with --until-done: it starts in 2h 00m"
    assert found.sooner is None
