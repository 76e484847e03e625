"""The output of submit and resume, and warnings that other commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from clusterkit.cli.ui.console import err, note, out
from clusterkit.cli.ui.lines import warn_of_trusted

if TYPE_CHECKING:
    from clusterkit.backends.base import Continuation
    from clusterkit.commands.resume import Resumed
    from clusterkit.runs.pipeline import Submitted

_WAYS = {
    "requeue": "requeue",
    "array": "an array of jobs, one after the other",
    "chain": "a chain of jobs, each submits the next",
}


def show_submitted(done: Submitted) -> None:
    """Prints only the run id on standard output, for scripts; everything else goes to standard error."""
    spec, recipe = done.placed[0].spec, done.placed[0].spec.recipe
    if recipe:
        note(f"recipe {recipe['name']}, {spec.total_steps:,} steps, seed {spec.seed}")
        if recipe["modified"]:
            changed = ", ".join(f"{name}: {old} -> {new}" for name, (old, new) in recipe["modified"].items())
            err.print(f"[yellow]modified recipe[/] ({changed}): the run is marked for ever", soft_wrap=True)
    if done.plan.runs[0].seed_in_environment:
        warn_untold_seed()
    warn_lacking(done.lacking)
    warn_of_trusted(done.trusted)
    for run_id, came in done.settled.items():
        what = f"is job {came.job_id}" if came.job_id else came.why
        err.print(f"[yellow]{run_id}[/], whose submission was interrupted: {what}", soft_wrap=True)
    if done.continuation:
        note(f"goes on past its time limit by {described_way(done.continuation)}")
    note(f"job {done.runs[0].job_id} on {spec.cluster}")
    note(f"next: clusterkit status, clusterkit logs {spec.run_id} -f")
    out.print(spec.run_id, markup=False, soft_wrap=True)


def warn_lacking(lacking: Sequence[str]) -> None:
    """Warns about resources that runs request and the machine lacks."""
    for text in lacking:
        err.print(Text.assemble(("warning: ", "yellow"), text), soft_wrap=True)


def warn_untold_seed() -> None:
    """Warns that the user's own program does not receive its seed as an argument."""
    err.print(
        "[yellow]the arguments do not contain {seed}[/], so the program must read $CLUSTERKIT_SEED",
        soft_wrap=True,
    )


def show_resumed(done: Resumed) -> None:
    """Prints a resumed run, like `show_submitted`."""
    where = f"from {done.checkpoint}" if done.checkpoint else "without a checkpoint, from the beginning"
    note(f"{done.was.state}: {done.was.why or 'it ended'}; it goes on {where}")
    if done.done.continuation:
        note(f"goes on past its time limit by {described_way(done.done.continuation)}")
    (run,) = done.done.runs
    warn_of_trusted(done.done.trusted)
    note(f"job {run.job_id} on {run.cluster}")
    note(f"next: clusterkit status, clusterkit logs {run.run_id} -f")
    out.print(run.run_id, markup=False, soft_wrap=True)


def described_way(continuation: Continuation) -> str:
    """Describes how a run continues past its time limit, and why in that way."""
    return f"{_WAYS[continuation.way]}: {continuation.why}"
