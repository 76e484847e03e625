"""Causes: the scheduler never accepted the run."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import JobState
from clusterkit.config.options import NATIVE_OPTION
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import resume, status, submit

REFUSED = Cause(
    "submission-refused",
    "the scheduler refused it",
    f"correct the option named in the error, in clusterkit.toml or after `{NATIVE_OPTION}`",
)
NEVER_SUBMITTED = Cause(
    "never-submitted",
    "its submission was interrupted, and the scheduler has no such job",
    "`resume` submits it; none of it has run",
)
SUBMITTING = Cause(
    "submitting",
    "it was submitted, and the scheduler has not confirmed it yet",
    "ask again in two minutes; do not submit it again before then",
    trouble=False,
)
DEFERRED = Cause(
    "deferred",
    "the queue takes no more jobs of yours; a job of its group submits it when others have ended",
    "there is nothing to do; if no job of the group is left, `resume` submits what the queue takes",
    trouble=False,
)


def refused(evidence: Evidence) -> Finding | None:
    """The newest submission, of a new or a resumed run, was refused."""
    newest = evidence.record.submission
    if newest is None or newest.refusal is None or evidence.state.state.active:
        return None
    source = f"submissions/{newest.number}/error"
    options = " ".join(newest.options)
    words = [line.strip() for line in newest.error.splitlines() if line.strip()]
    return REFUSED.found(
        *(Line(source, line) for line in words[:4]),
        Line(source, f"exit code {newest.status}") if not words else None,
        Line(f"submissions/{newest.number}/request.json", options) if options else None,
        detail=words[0].removeprefix(f"{evidence.backend.tool}: ").removeprefix("error: ")
        if words
        else newest.refusal,
        command=resume(evidence, "OPTION=VALUE"),
        cure=evidence.backend.refusal_hint(newest.error) or "",
    )


def never_submitted(evidence: Evidence) -> Finding | None:
    """The scheduler was never asked, or has no such job."""
    if evidence.state.state is not JobState.NOT_SUBMITTED:
        return None
    there = evidence.record.exists
    return NEVER_SUBMITTED.found(
        Line("submissions", evidence.state.why or "no submission is recorded")
        if there
        else Line("ls", f"{evidence.subject.run_dir} does not exist"),
        command=resume(evidence) if there else submit(evidence),
        cure="" if there else "submit it again; nothing was written for it",
        sure=Sure.LIKELY,
    )


def submitting(evidence: Evidence) -> Finding | None:
    """The scheduler's answer is not known yet."""
    if evidence.state.state is not JobState.SUBMITTING:
        return None
    return SUBMITTING.found(
        Line("submissions", evidence.state.why or "no answer yet"), command=status(evidence), sure=Sure.LIKELY
    )


def deferred(evidence: Evidence) -> Finding | None:
    """A job of its group has not submitted it yet."""
    if evidence.state.state is not JobState.DEFERRED:
        return None
    return DEFERRED.found(Line("submissions/0/request.json", "fed"), command=resume(evidence))


RULES = (refused, never_submitted, submitting, deferred)
