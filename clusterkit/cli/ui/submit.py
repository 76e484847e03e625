"""The output of submit and resume, and warnings that other commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clusterkit.cli.ui.console import note, say, warn
from clusterkit.cli.ui.lines import warn_of_trusted
from clusterkit.cli.ui.runs_json import print_submitted

if TYPE_CHECKING:
    from clusterkit.backends.base import Continuation
    from clusterkit.commands.resume import Resumed
    from clusterkit.runs.pipeline import Submitted
    from clusterkit.runs.submission import SubmissionOutcome

_WAYS = {
    "requeue": "requeue",
    "array": "an array of jobs, one after the other",
    "chain": "a chain of jobs, each submits the next",
}


def show_submitted(done: Submitted, *, as_json: bool = False) -> None:
    """Prints only the run id, or a JSON object, on standard output; the rest goes to standard error."""
    spec, recipe = done.placed[0].spec, done.placed[0].spec.recipe
    if recipe:
        note(f"recipe {recipe['name']}, {spec.total_steps:,} steps, seed {spec.seed}")
        if recipe["modified"]:
            changed = ", ".join(f"{name}: {old} -> {new}" for name, (old, new) in recipe["modified"].items())
            warn("modified recipe", f" ({changed}): the run is marked for ever")
    if done.plan.runs[0].seed_in_environment:
        warn_untold_seed()
    warn_lacking(done.lacking)
    warn_of_trusted(done.trusted)
    warn_of_settled(done.settled)
    note_continuation(done.continuation)
    show_job(done, as_json=as_json)


def warn_lacking(lacking: Sequence[str]) -> None:
    """Warns about resources that runs request and the machine lacks."""
    for text in lacking:
        warn("warning: ", text)


def warn_of_settled(settled: Mapping[str, SubmissionOutcome]) -> None:
    """Prints what came of earlier submissions that were interrupted."""
    for run_id, came in settled.items():
        what = f"is job {came.job_id}" if came.job_id else came.why
        warn(run_id, f", whose submission was interrupted: {what}")


def warn_untold_seed() -> None:
    """Warns that the user's own program does not receive its seed as an argument."""
    warn("the arguments do not contain {seed}", ", so the program must read $CLUSTERKIT_SEED")


def show_resumed(done: Resumed, *, as_json: bool = False) -> None:
    """Prints a resumed run, like `show_submitted`."""
    where = f"from {done.checkpoint}" if done.checkpoint else "without a checkpoint, from the beginning"
    note(f"{done.was.state}: {done.was.why or 'it ended'}; it continues {where}")
    note_continuation(done.done.continuation)
    warn_of_trusted(done.done.trusted)
    was = {"state": done.was.state.value, "why": done.was.why}
    show_job(done.done, as_json=as_json, was=was, checkpoint=done.checkpoint)


def note_continuation(continuation: Continuation | None) -> None:
    """Prints how a run continues past its time limit, if it does."""
    if continuation:
        note(f"goes on past its time limit by {described_way(continuation)}")


def show_job(done: Submitted, *, as_json: bool = False, **more: Any) -> None:
    """Prints the job and the next commands; standard output gets the run id alone, or JSON with `more`."""
    (run,) = done.runs
    note(f"job {run.job_id} on {run.cluster}")
    note(f"next: clusterkit status, clusterkit logs {run.run_id} -f")
    if as_json:
        print_submitted(done, **more)
    else:
        say(run.run_id)


def described_way(continuation: Continuation) -> str:
    """Describes how a run continues past its time limit, and why in that way."""
    return f"{_WAYS[continuation.way]}: {continuation.why}"
