"""Causes outside the run: the node, the scheduler, a user."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import SCHEDULER_LOG, UNSUPERVISED, JobState
from clusterkit.backends.story import Topic
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import resume, retry, status
from clusterkit.diagnosis.rules.said import exited

PREEMPTED = Cause(
    "preempted",
    "it was preempted by a job with a higher priority",
    "`resume` continues from its checkpoint; `submit --until-done` does so automatically",
)
NODE_FAILED = Cause(
    "node-failed",
    "its node failed",
    "`resume` continues from its checkpoint, on another node",
)
CANCELLED_BY_YOU = Cause("cancelled-by-you", "you cancelled it", "`resume` continues it")
CANCELLED_BY_OTHER = Cause(
    "cancelled-by-other",
    "someone else cancelled it",
    "ask them, and give the job id; root stands for the administrators or one of their tools",
)
CANCELLED = Cause(
    "cancelled",
    "it was cancelled, and there is no record of who did it",
    "`resume` continues it",
)
SUPERVISOR_KILLED = Cause(
    "supervisor-killed",
    "its supervisor was killed, as by `kill -9` or for want of memory, so the job was ended",
    "`resume` continues from its checkpoint",
)
UNSUPERVISED_RUN = Cause(
    "unsupervised",
    "its supervisor was killed, and what it has started still runs",
    "it ends in seconds, or with `clusterkit cancel`; then `resume` continues from its checkpoint",
)
SCHEDULER_SILENT = Cause(
    "scheduler-silent",
    "the scheduler does not answer, so the cause is not known",
    "wait a few minutes and ask again; running jobs are not affected",
)


def preempted(evidence: Evidence) -> Finding | None:
    """PREEMPTED, or only the scheduler's log says so."""
    story = evidence.story
    words = story.log_says.get(JobState.PREEMPTED)
    named = story.job is not None and story.job.state is JobState.PREEMPTED
    # It may have been preempted before, and started again.
    if not named and not (words and evidence.ended_badly and not evidence.own_end):
        return None
    checkpointed = evidence.exit.get("why") == "requeue"
    return PREEMPTED.found(
        words,
        *story.quote(Topic.PREEMPTED),
        exited(evidence),
        detail="it checkpointed before" if checkpointed else "",
        command=resume(evidence),
    )


def node_failed(evidence: Evidence) -> Finding | None:
    """NODE_FAIL, BOOT_FAIL, or an attempt that vanished from a node that is down."""
    words = evidence.story.log_says.get(JobState.NODE_FAIL)
    named = evidence.state.state is JobState.NODE_FAIL
    vanished = evidence.ended_badly and evidence.record.started is not None and not evidence.exit
    if not named and not (vanished and (words or evidence.story.node_down)):
        return None
    return NODE_FAILED.found(
        words,
        *evidence.story.quote(Topic.NODE_FAILED),
        Line(f"attempts/{evidence.state.attempt}", "no exit record") if vanished else None,
        detail=evidence.state.node or "",
        cure=retry(evidence, NODE_FAILED.cure, "node_failures = 2"),
        command=resume(evidence),
        sure=Sure.CERTAIN if named else Sure.LIKELY,
    )


def vanished(evidence: Evidence) -> Finding | None:
    """The run started and is gone without an exit record or an explanation."""
    started = evidence.record.started
    if (
        not evidence.ended_badly
        or started is None
        or evidence.exit
        or evidence.state.state is not JobState.FAILED
    ):
        return None
    return NODE_FAILED.found(
        Line(f"attempts/{started.number}", "no exit record: job.sh itself was killed without warning"),
        *evidence.story.quote(Topic.VANISHED),
        detail="or the whole job was killed at once",
        command=resume(evidence),
        sure=Sure.GENERAL,
    )


def cancelled(evidence: Evidence) -> Finding | None:
    """CANCELLED: the scheduler or clusterkit's own record tells by whom."""
    if evidence.state.state is not JobState.CANCELLED:
        return None
    asked_for = evidence.record.cancelled
    story = evidence.story
    by, name = story.cancelled_by or ("", "")
    own = evidence.about.get("user", "").partition(" ")[0]
    lines = (
        *story.quote(Topic.CANCELLED),
        story.log_says.get(JobState.CANCELLED),
        Line("attempts/*/cancel.json", "`clusterkit cancel` asked for it") if asked_for else None,
    )
    again = resume(evidence)
    if asked_for or (by and by == own):
        other = f"with {story.cancel_tool}, or a program of yours did"
        how = "with `clusterkit cancel`" if asked_for else other
        return CANCELLED_BY_YOU.found(*lines, detail=how, command=again)
    if by:
        return CANCELLED_BY_OTHER.found(*lines, detail=name, command=again)
    return CANCELLED.found(*lines, story.waits, command=again, sure=Sure.LIKELY)


def supervisor_killed(evidence: Evidence) -> Finding | None:
    """The keeper of a job of this machine has ended it."""
    of_job = rf"\[clusterkit\] the supervisor of job {re.escape(evidence.state.job_id or '-')} was killed"
    words = evidence.line(of_job, SCHEDULER_LOG)
    if words is None or not evidence.ended_badly or evidence.own_end:
        return None
    return SUPERVISOR_KILLED.found(words, exited(evidence), command=resume(evidence), sure=Sure.CERTAIN)


def unsupervised(evidence: Evidence) -> Finding | None:
    """A job of this machine that its keeper ends now, or that nothing ends."""
    job = evidence.story.job
    if job is None or job.reason != UNSUPERVISED:
        return None
    return UNSUPERVISED_RUN.found(
        Line("this machine", f"job {job.job_id}: {job.explained}"), command=evidence.subject.cancel
    )


def scheduler_silent(evidence: Evidence) -> Finding | None:
    """The controller is down, and the run directory does not tell the state either."""
    if evidence.state.state is not JobState.UNKNOWN or not evidence.story.silent:
        return None
    story = evidence.story
    return SCHEDULER_SILENT.found(
        Line(story.source, story.silent),
        command=evidence.subject.here(story.ping) if story.ping else status(evidence),
        sure=Sure.LIKELY,
    )


RULES = (preempted, node_failed, cancelled, supervisor_killed, unsupervised, vanished, scheduler_silent)
