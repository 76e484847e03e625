"""What a notice says, whatever the program of a run may have written."""

from __future__ import annotations

from clusterkit.backends.jobs import JobState
from clusterkit.notices import FailureCause, as_one, of_group, of_run
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.state import RunState
from clusterkit.runs.status import StatusRow


def row(
    state: JobState,
    run_id: str = "r-1",
    *,
    group: str = "",
    why: str | None = None,
    elapsed: float | None = None,
    success: float | None = None,
) -> StatusRow:
    run = LedgerRun(run_id, "uni", "n", "p", "", 1, "7", "", "/r", 0, "RUNNING", group=group)
    said = RunState(state, why=why, elapsed_seconds=elapsed, success=success, final=True)
    return StatusRow(run, said)


def test_a_completed_run_says_how_long_and_how_well_it_did() -> None:
    notice = of_run(row(JobState.COMPLETED, elapsed=3700, success=0.87))
    assert notice.title == "r-1 completed on uni"
    assert notice.lines == ("after 1h 01m, success 87%", "next: clusterkit sync-results r-1")


def test_a_failed_run_carries_its_cause_and_the_next_command() -> None:
    notice = of_run(row(JobState.OUT_OF_MEMORY), FailureCause("r-1", "it used more memory than it requested"))
    assert notice.title == "r-1 ran out of memory on uni"
    assert notice.lines == ("it used more memory than it requested", "next: clusterkit why r-1")


def test_without_a_cause_it_says_what_the_state_says() -> None:
    assert of_run(row(JobState.NODE_FAIL, why="its node failed")).lines[0] == "its node failed"


def test_a_group_counts_its_runs_and_names_one_cause() -> None:
    rows = [row(JobState.COMPLETED, f"g-{n}", group="g") for n in range(11)]
    notice = of_group(
        [*rows, row(JobState.FAILED, "g-11", group="g")], FailureCause("g-11", "it divided by zero")
    )
    assert notice.title == "g done on uni"
    assert notice.lines == (
        "12 runs: 11 completed, 1 failed",
        "g-11: it divided by zero",
        "next: clusterkit why g",
    )


def test_many_at_once_are_one_notice_that_counts_what_it_leaves_out() -> None:
    rows = [row(JobState.FAILED, f"r-{number}", why="it failed") for number in range(12)]
    notice = as_one([of_run(each) for each in rows])
    assert notice.title == "12 ended, 12 failed"
    assert len(notice.lines) == 12
    assert notice.lines[0] == "r-0 failed on uni: it failed"
    assert notice.lines[-2:] == ("and 2 more", "next: clusterkit status")


def test_hostile_words_become_one_bounded_printable_line() -> None:
    words = "\x1b[31mred\n\u202efrom right to left\x00" + "x" * 10_000
    line = of_run(row(JobState.FAILED), FailureCause("r-1", words)).lines[0]
    assert line.isprintable()
    assert line.startswith("?[31mred ?from right")
    assert len(line) < 310


def test_a_secret_that_a_program_printed_is_cut_off() -> None:
    cause = FailureCause("r-1", "its program said: cannot log in with API_KEY=abc123 to the server")
    assert of_run(row(JobState.FAILED), cause).lines[0] == (
        "its program said: cannot log in with API_KEY=***"
    )
