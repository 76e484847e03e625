"""`clusterkit rerun`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import (
    ConfigOption,
    DryRunOption,
    JsonOption,
    NativeOption,
    OtherProfileOption,
    OtherTimeOption,
    UntilDoneAsBeforeOption,
    YesOption,
    changes,
    load,
    open_ledger,
)
from clusterkit.cli.ui.console import note
from clusterkit.cli.ui.lines import warn_of_trusted
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.cli.ui.runs_json import print_dry_run, print_submitted
from clusterkit.cli.ui.submit import note_continuation, note_name, show_job, warn_lacking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clusterkit.submit.pipeline import DryRun, Submitted


def rerun(
    name: Annotated[
        str,
        typer.Argument(metavar="RUN|ARCHIVE", help="A run, a group, a folder with a run, or an export."),
    ] = "last",
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            metavar="NAME",
            help="Cluster to use; if left out, the run's own, or for an archive the default one.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="New seed.")] = None,
    new_name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="New name.")] = None,
    profile: OtherProfileOption = None,
    time: OtherTimeOption = None,
    total_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="New total number of environment steps.")
    ] = None,
    until_done: UntilDoneAsBeforeOption = None,
    native: NativeOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Submit an earlier run again as a new run, and print its id.

    Uses the code, image and arguments of that run, regardless of the current working tree.
    """
    from clusterkit.commands import rerun as command

    settings = load(config)
    again = changes(
        settings,
        profile=profile,
        cluster=cluster,
        time=time,
        total_steps=total_steps,
        until_done=until_done,
        native=native,
    )
    with open_ledger(settings, of=[name], only_reads=dry_run) as ledger:
        if dry_run:
            _show_dry_runs(
                command.dry_run(settings, again, ledger, name, name=new_name, seed=seed, allow_unread=yes),
                as_json=as_json,
            )
            return
        done = []
        for one in command.rerun(
            settings, again, ledger, name, name=new_name, seed=seed, allow_unread=yes, bar=transfer_bar
        ):
            show_rerun(one, as_json=as_json)
            done.append(one)
    if as_json:
        print_submitted(done, [{"rerun_of": one.placed[0].spec.rerun_of} for one in done])


def _show_dry_runs(found: Iterable[DryRun], *, as_json: bool) -> None:
    from clusterkit.cli.ui.dry_run import show_dry_run

    if as_json:
        planned = list(found)
        print_dry_run(*planned, more=[{"rerun_of": one.first.spec.rerun_of} for one in planned])
        return
    for one in found:
        show_dry_run(one)


def show_rerun(done: Submitted, *, as_json: bool) -> None:
    """Prints only the run id on standard output, unless JSON follows; the rest goes to standard error."""
    (run,), (placed,) = done.runs, done.placed
    seed = f", seed {run.seed}" if run.recipe or run.seed else ""
    note(f"as {placed.spec.rerun_of}: its code, image and arguments{seed}")
    note_name(placed.spec.name, run.run_id)
    warn_lacking(done.lacking)
    warn_of_trusted(done.trusted)
    note_continuation(done.continuation)
    show_job(done, as_json=as_json)
