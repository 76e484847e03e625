"""What a rehearsal's leavings say: a line for each step, and the first fault named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clusterkit.backends.checks import Outcome, Verdict
from clusterkit.backends.jobs import JobState
from clusterkit.checkup.rehearsal import RehearsalEvidence, checklist, over, read_evidence
from clusterkit.runs.record import Attempt, RunRecord
from clusterkit.runs.state import RunState

FIRST = Attempt(
    0,
    start={"started": 1000, "node": "a40n1", "checkpoint": None},
    exit={"ended": 1090, "why": "requeue", "code": 85},
)
SECOND = Attempt(
    1,
    start={"started": 1101, "node": "a40n1", "checkpoint": "step-000000016000"},
    exit={"ended": 1120, "why": "completed", "code": 0},
)
GOOD = RehearsalEvidence(
    RunRecord(attempts=(FIRST, SECOND)),
    RunState(JobState.COMPLETED),
    signals=("0 [clusterkit] caught SIGUSR1, 31 s before the time limit",),
    metrics=(
        {"kind": "checkpoint", "attempt": 0, "step": 16000, "seconds": 0.34},
        {"kind": "event", "attempt": 1, "message": "resumed from step-000000016000 at step 16,000"},
    ),
    wandb=("offline-run-20260102_030405-drill-1", "offline-run-20260102_030505-drill-1"),
    run_id="drill-1",
)


def judged(evidence: RehearsalEvidence, **how: Any) -> tuple[Verdict, ...]:
    return checklist(evidence, 120, "requeue", **{"training": True, "signalled": True, **how})


def failed(evidence: RehearsalEvidence, **how: Any) -> list[str]:
    return [check.evidence for check in judged(evidence, **how) if check.outcome is Outcome.FAIL]


def test_a_good_one() -> None:
    assert [check.evidence for check in judged(GOOD)] == [
        "started on a40n1",
        "SIGUSR1 arrived, 31 s before the time limit",
        "checkpoint of step 16,000 written in 0.3 s",
        "continued by requeue, 11 s later",
        "second attempt resumed from step-000000016000 at step 16,000",
        "one W&B run, in 2 parts",
        "finished",
    ]
    assert failed(GOOD) == []


def test_a_line_that_is_just_being_written_is_left_out() -> None:
    whole = '{"kind": "event", "message": "a\u2028b"}'
    text = f'log 0 caught SIGUSR1\nmetric {whole}\nmetric {{"kind": "checkpoint", "st\nwandb run-1\n'
    message = {"kind": "event", "message": "a\u2028b"}
    found = read_evidence(text, GOOD.record, GOOD.state, "drill-1")
    assert (found.signals, found.metrics, found.wandb) == (("0 caught SIGUSR1",), (message,), ("run-1",))


def test_a_job_that_never_started() -> None:
    state = RunState(JobState.FAILED, why="it left the queue without starting")
    nothing = replace(GOOD, record=RunRecord(), state=state)
    assert failed(nothing) == ["it did not start: it left the queue without starting"]


def test_a_signal_that_did_not_come() -> None:
    assert failed(replace(GOOD, signals=())) == ["no signal came before the time limit of 120 s"]
    late = replace(GOOD, signals=("0 [clusterkit] caught SIGTERM, 1 s after the time limit",))
    assert failed(late) == ["SIGTERM came only at the time limit"]
    other = replace(GOOD, signals=("1 [clusterkit] caught SIGUSR1, 3 s before the time limit",))
    assert len(failed(other)) == 1


def test_a_checkpoint_that_took_too_long() -> None:
    assert "no checkpoint was written after the signal" in failed(replace(GOOD, metrics=GOOD.metrics[1:]))


def test_a_second_attempt_that_never_came() -> None:
    stopped = {"why": "Slurm did not requeue the job: disabled", "time": 1}
    alone = replace(GOOD, record=RunRecord(attempts=(FIRST,), stopped=stopped))
    assert failed(alone) == ["no second attempt by requeue: Slurm did not requeue the job: disabled"]
    assert "continue_by" in str(judged(alone)[-1].cure)


def test_a_second_attempt_from_the_beginning() -> None:
    fresh = {"kind": "event", "attempt": 1, "message": "no checkpoint to resume: starting from the beginning"}
    (text,) = failed(replace(GOOD, metrics=(GOOD.metrics[0], fresh)))
    assert text.startswith("second attempt did not resume")


def test_two_runs_in_wandb() -> None:
    (text,) = failed(replace(GOOD, wandb=(*GOOD.wandb, "offline-run-20260102_030605-x7y8")))
    assert "a different run" in text
    assert failed(replace(GOOD, wandb=())) == []


def test_a_program_of_ones_own_has_shown_enough_when_it_has_begun_again() -> None:
    record = RunRecord(attempts=(FIRST, replace(SECOND, exit=None)))
    state = RunState(JobState.RUNNING)
    assert over(record, state, training=False)
    assert not over(record, state, training=True)
    assert not over(RunRecord(attempts=(FIRST,)), state, training=False)
    assert (
        failed(
            replace(GOOD, record=record, state=state, metrics=(), signals=()), training=False, signalled=False
        )
        == []
    )


def test_it_is_over_when_the_run_is() -> None:
    assert over(GOOD.record, GOOD.state, training=True)
    assert over(RunRecord(stopped={"why": "x"}), RunState(JobState.RUNNING), training=True)
    assert not over(RunRecord(), RunState(JobState.UNKNOWN), training=True)
