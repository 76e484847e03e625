"""What submit, resume and rerun print, as text and as JSON; docs/json.md describes the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clusterkit.backends.base import backend_of
from clusterkit.cli.ui.console import note, print_document, say, warn, warn_of_trusted
from clusterkit.units import format_size, plural

if TYPE_CHECKING:
    from clusterkit.backends.jobs import Continuation
    from clusterkit.backends.submission import SubmissionOutcome
    from clusterkit.commands.resume import Resumed
    from clusterkit.submit.pipeline import DryRun, Submitted
    from clusterkit.submit.plan import Plan


def print_submitted(submissions: Sequence[Submitted], more: Sequence[Mapping[str, Any]] = ()) -> None:
    """Prints what was submitted, by one submission or several, as one JSON object.

    Args:
        submissions: all of one cluster.
        more: a command's own fields of the runs of each submission.
    """
    print_runs(
        submissions[0],
        [[run.as_object() for run in submission.runs] for submission in submissions],
        more,
        carried_out=True,
        missing=[run_id for submission in submissions for run_id in submission.missing],
        lacking=[line for submission in submissions for line in submission.lacking],
    )


def print_runs(
    first: Submitted | DryRun,
    runs: Sequence[Sequence[Mapping[str, Any]]],
    more: Sequence[Mapping[str, Any]] = (),
    *,
    carried_out: bool,
    missing: Sequence[str] = (),
    lacking: Sequence[str] = (),
) -> None:
    """Prints submissions, or what they would be, in the one form of docs/json.md.

    Args:
        first: one of them; its cluster, group and continuation are those of all.
        runs: the objects of the runs of each submission.
        more: a command's own fields of the runs of each submission.
        carried_out: whether they were submitted.
        missing: ids of the runs that were not accepted.
        lacking: what they asked of the machine and it lacks.
    """
    group = first.plan.group
    print_document(
        {
            "schema": 1,
            "carried_out": carried_out,
            "cluster": first.plan.cluster.name,
            "group": group.id if group else None,
            "runs": [
                {**run, **own}
                for own, objects in zip(more or [{}] * len(runs), runs, strict=True)
                for run in objects
            ],
            "missing": missing,
            "goes_on": continuation_values(first.continuation),
            "lacking": lacking,
        }
    )


def continuation_values(found: Continuation | None) -> dict[str, str] | None:
    """Converts how a run continues past its time limit to plain values."""
    return None if found is None else {"way": found.way, "why": found.why}


_WAYS = {
    "requeue": "requeue",
    "array": "an array of jobs, one after the other",
    "chain": "a chain of jobs, each of which submits the next",
}

_ID_PARTS = 3
"""What a run's or group's id has after its name: day, time and token."""


def show_submitted(done: Submitted, *, as_json: bool = False) -> None:
    """Prints only the run id, or a JSON object, on standard output; the rest goes to standard error."""
    note_submitted(done)
    show_job(done, as_json=as_json)
    if as_json:
        print_submitted([done])


def note_submitted(done: Submitted) -> None:
    """Says what to know of a submitted run."""
    spec, recipe = done.placed[0].spec, done.placed[0].spec.recipe
    if recipe:
        note(f"recipe {recipe['name']}, {spec.total_steps:,} steps, seed {spec.seed}")
        if recipe["modified"]:
            changed = ", ".join(f"{name}: {old} -> {new}" for name, (old, new) in recipe["modified"].items())
            warn("modified recipe", f" ({changed}): the run is marked for ever")
    note_name(spec.name, spec.run_id)
    note_environment(done)
    warn_lacking(done.lacking)
    warn_of_trusted(done.trusted)
    warn_of_settled(done.settled)
    note_continuation(done.continuation)
    note_retry(done.plan)


def note_name(name: str, identity: str) -> None:
    """Says how a name is written in the id of its run or group, where an id cannot hold it as it is."""
    written = "-".join(identity.split("-")[:-_ID_PARTS])
    if written != name:
        note(f"in ids {name!r} becomes {written!r}: they take up to 40 letters a-z, digits, '_', '.' and '-'")


def note_environment(done: Submitted) -> None:
    """Says that the project's environment is not there yet."""
    environment = done.placed[0].spec.environment
    if done.to_build and environment:
        note(f"the first job builds the environment of {environment['file']}, before its program starts")


def warn_lacking(lacking: Sequence[str]) -> None:
    """Warns about resources that runs request and the machine lacks."""
    for text in lacking:
        warn("warning: ", text)


def warn_of_settled(settled: Mapping[str, SubmissionOutcome]) -> None:
    """Prints what came of earlier submissions that were interrupted."""
    for run_id, came in settled.items():
        what = f"is job {came.job_id}" if came.job_id else came.why
        warn(run_id, f", whose submission was interrupted: {what}")


def show_resumed(done: Resumed, *, as_json: bool = False) -> None:
    """Prints a resumed run, like `show_submitted`, but no JSON."""
    where = f"from {done.checkpoint}" if done.checkpoint else "without a checkpoint, from the beginning"
    note(f"{done.was.state}: {done.was.why or 'it ended'}; it continues {where}")
    note_continuation(done.done.continuation)
    warn_of_trusted(done.done.trusted)
    show_job(done.done, as_json=as_json)


def resumed_object(done: Resumed) -> dict[str, Any]:
    """Returns what `resume --json` tells of a run beside the submission."""
    was = {"state": done.was.state.value, "why": done.was.why}
    return {"was": was, "checkpoint": done.checkpoint}


def note_continuation(continuation: Continuation | None) -> None:
    """Prints how a run continues past its time limit, if it does."""
    if continuation:
        note(f"continues past its time limit by {described_way(continuation)}")


def note_retry(plan: Plan) -> None:
    """Says what is tried again by itself, or that nothing is although the settings ask for it."""
    if words := retry_words(plan):
        note(words)


def retry_words(plan: Plan) -> str | None:
    """Describes what is tried again; None if nothing was asked for."""
    retry = plan.runs[0].profile.retry
    if retry is None or retry == type(retry)():
        return None
    if not backend_of(plan.cluster).can.retries:
        return f"the retry settings have no effect: {plan.cluster.name} cannot try a run again"
    words = []
    if retry.memory_up_to is not None:
        words.append(f"with up to {format_size(retry.memory_up_to)} when memory runs out")
    if retry.node_failures:
        words.append(f"on another node after up to {plural(retry.node_failures, 'node failure')}")
    return f"tried again {', '.join(words)}"


def show_job(done: Submitted, *, as_json: bool = False) -> None:
    """Prints the job and the next commands; standard output gets the run id alone, or is left to JSON."""
    (run,) = done.runs
    for words in done.refused:
        warn("warning: ", f"one of the requests was refused and does not count: {words}")
    others = f", or {' or '.join(done.others)}: the first to start runs it" if done.others else ""
    name = run.short or run.run_id
    note(f"{name}: job {run.job_id}{others} on {run.cluster}")
    note(f"next: clusterkit status, clusterkit logs {name} -f")
    if not as_json:
        say(run.run_id)


def note_jobs(done: Submitted) -> None:
    """Names the jobs on standard error only, for commands that print something else."""
    note(f"submitted {', '.join(f'{run.run_id} (job {run.job_id})' for run in done.runs)}")


def described_way(continuation: Continuation) -> str:
    """Describes how a run continues past its time limit, and why in that way."""
    return f"{_WAYS[continuation.way]}: {continuation.why}"
