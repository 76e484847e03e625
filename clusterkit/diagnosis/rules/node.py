"""What others did to it: the node, the scheduler, a person."""

from __future__ import annotations

import re

from clusterkit.backends.base import JobState
from clusterkit.diagnosis.evidence import Evidence, Line
from clusterkit.diagnosis.finding import Cause, Finding, Sure
from clusterkit.diagnosis.rules.commands import resume
from clusterkit.diagnosis.rules.said import asked, booked, exited, queue

PREEMPTED = Cause(
    "preempted",
    "it had to make room for a job of higher priority",
    "`resume` goes on from its checkpoint; `submit --until-done` does so by itself",
)
NODE_FAILED = Cause(
    "node-failed",
    "its node failed",
    "`resume` goes on from its checkpoint, on another node",
)
CANCELLED_BY_YOU = Cause("cancelled-by-you", "you cancelled it", "`resume` goes on with it")
CANCELLED_BY_OTHER = Cause(
    "cancelled-by-other",
    "somebody else cancelled it",
    "ask them, with the job id: root is the administrators, or one of their programs",
)
CANCELLED = Cause(
    "cancelled",
    "it was cancelled, and nothing here says by whom",
    "`resume` goes on with it",
)
SCHEDULER_SILENT = Cause(
    "scheduler-silent",
    "the scheduler gives no answer, so nobody can tell",
    "wait some minutes and ask again: jobs that run are not harmed by it",
)


def preempted(evidence: Evidence) -> Finding | None:
    """PREEMPTED, also when slurmstepd alone says so."""
    words = evidence.line(r"DUE TO PREEMPTION", "slurm.log")
    named = evidence.raw_state.startswith("PREEMPTED")
    # It may have been preempted before, and started again.
    if not named and not (words and evidence.ended_badly and not evidence.own_end):
        return None
    checkpointed = evidence.exit.get("why") == "requeue"
    return PREEMPTED.found(
        words,
        booked(evidence, "State", "NodeList", "Elapsed") or queue(evidence),
        asked(evidence, "PreemptTime", "Partition"),
        exited(evidence),
        detail="it checkpointed before" if checkpointed else "",
        command=resume(evidence),
    )


def node_failed(evidence: Evidence) -> Finding | None:
    """NODE_FAIL, BOOT_FAIL; or a start that vanished from a node that is down."""
    words = evidence.line(r"DUE TO NODE FAIL|NODE FAILURE", "slurm.log")
    named = evidence.state.state is JobState.NODE_FAIL
    down = [node for node in evidence.nodes if node.name == evidence.state.node and not node.usable]
    vanished = evidence.ended_badly and evidence.record.started is not None and not evidence.exit
    if not named and not (vanished and (words or down)):
        return None
    return NODE_FAILED.found(
        words,
        booked(evidence, "State", "NodeList", "Elapsed"),
        *(node.line() for node in down),
        Line(f"attempts/{evidence.state.attempt}", "no exit record") if vanished else None,
        detail=evidence.state.node or "",
        command=resume(evidence),
        sure=Sure.CERTAIN if named else Sure.LIKELY,
    )


def vanished(evidence: Evidence) -> Finding | None:
    """Started, gone, no exit record, and nobody says why."""
    started = evidence.record.started
    if (
        not evidence.ended_badly
        or started is None
        or evidence.exit
        or evidence.state.state is not JobState.FAILED
    ):
        return None
    return NODE_FAILED.found(
        Line(f"attempts/{started.number}", "no exit record: job.sh itself was killed at once"),
        booked(evidence, "State", "NodeList", "ExitCode"),
        detail="or all of it was killed at once",
        command=resume(evidence),
        sure=Sure.GENERAL,
    )


def cancelled(evidence: Evidence) -> Finding | None:
    """CANCELLED: by whom sacct tells, or our own record of having asked for it."""
    if evidence.state.state is not JobState.CANCELLED:
        return None
    asked_for = evidence.record.cancelled
    match = re.search(r"by (\d+)", evidence.booked.get("State", ""))
    own = evidence.about.get("user", "").partition(" ")[0]
    lines = (
        booked(evidence, "State", "NodeList", "Elapsed"),
        evidence.line(r"CANCELLED AT", "slurm.log"),
        Line("attempts/*/cancel.json", "`clusterkit cancel` asked for it") if asked_for else None,
    )
    again = resume(evidence)
    if asked_for or (match and match[1] == own):
        how = "with `clusterkit cancel`" if asked_for else "with scancel, or a program of yours did"
        return CANCELLED_BY_YOU.found(*lines, detail=how, command=again)
    if match:
        name = evidence.people.get(match[1]) or f"user {match[1]}"
        return CANCELLED_BY_OTHER.found(*lines, detail=name, command=again)
    return CANCELLED.found(*lines, queue(evidence), command=again, sure=Sure.LIKELY)


def scheduler_silent(evidence: Evidence) -> Finding | None:
    """The controller is down and the run directory does not tell either."""
    if evidence.state.state is not JobState.UNKNOWN or not evidence.silent:
        return None
    return SCHEDULER_SILENT.found(
        Line("squeue", evidence.silent), command=evidence.here("scontrol ping"), sure=Sure.LIKELY
    )


RULES = (preempted, node_failed, cancelled, vanished, scheduler_silent)
