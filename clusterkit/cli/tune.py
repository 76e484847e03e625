"""`clusterkit tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import (
    ClusterOption,
    ConfigOption,
    SetOption,
    UnlockOption,
    load,
    open_ledger,
)

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger, LedgerRun


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(tune)


def tune(
    name: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run of `tune` that has measured; left out, one is submitted."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="PROFILE", help="The profile to tune.")
    ] = None,
    cluster: ClusterOption = None,
    minutes: Annotated[
        int, typer.Option(metavar="N", min=1, max=120, help="Minutes that all measurements may take.")
    ] = 10,
    num_envs: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these numbers of environments.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these numbers of environment processes.")
    ] = None,
    overrides: SetOption = None,
    unlock: UnlockOption = None,
    precision: Annotated[
        bool, typer.Option("--precision", help="Choose the precision too, which may change the numbers.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the measurements, or only submit.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be submitted, or written.")
    ] = False,
    script: Annotated[
        bool,
        typer.Option("--script", help="Only print the job script that would be submitted; change nothing."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write the profile without asking.")] = False,
    config: ConfigOption = None,
) -> None:
    """Measure on the real node which settings are fastest.

    A short job tries numbers of environments and worker processes (of PPO and A2C these alone); the fastest
    safe ones are written into the profile after a yes. What a run learns is not touched.
    """
    from clusterkit.cli.ui.dry_run import print_script, show_dry_run
    from clusterkit.cli.ui.progress import transfer_bar
    from clusterkit.cli.ui.submit import show_submitted
    from clusterkit.cli.ui.tune import show_goes_on, waiting
    from clusterkit.commands import submit
    from clusterkit.commands import tune as verb
    from clusterkit.errors import ConfigError
    from clusterkit.runs.program import assignments

    settings = load(config)
    with open_ledger(settings) as ledger:
        if name is not None:
            if profile or cluster or num_envs or workers or overrides or unlock or script:
                raise ConfigError(
                    f"{name} has its profile, cluster and tries already",
                    hint="leave RUN out to measure anew, or the options to see what it found",
                )
            run = ledger.find_one(name)
        else:
            tries = {"num-envs": num_envs, "workers": workers}
            request = verb.request(
                settings,
                settings.cluster(cluster),
                settings.profile(profile),
                minutes,
                {option: text for option, text in tries.items() if text is not None},
                assignments(overrides or (), "--set"),
                tuple(unlock or ()),
            )
            if dry_run or script:
                show = print_script if script else show_dry_run
                show(submit.dry_run(settings, request, ledger, bar=transfer_bar))
                return
            run = verb.start(settings, ledger, request, bar=transfer_bar, on_submit=show_submitted)
        if wait:
            try:
                with waiting() as on_row:
                    verb.wait(settings, ledger, run, on_row)
            except KeyboardInterrupt:
                show_goes_on(run.run_id)
                raise
        elif name is None:
            show_goes_on(run.run_id)
            return
        _take_up(settings, ledger, run, precision=precision, dry_run=dry_run, yes=yes)


def _take_up(
    settings: Settings, ledger: Ledger, run: LedgerRun, *, precision: bool, dry_run: bool, yes: bool
) -> None:
    from clusterkit.cli.ui.console import note
    from clusterkit.cli.ui.init import show_changes
    from clusterkit.cli.ui.tune import agreed, show_tuned, show_written
    from clusterkit.commands import tune as verb
    from clusterkit.config.settings_file import save

    tuned = verb.collect(settings, ledger, run, precision=precision)
    show_tuned(tuned)
    if not tuned.changes:
        return
    change = verb.edit(settings, tuned)
    show_changes(change)
    if dry_run:
        note("dry run: nothing was written")
    elif agreed(change, yes=yes):
        save(change)
        show_written(change, tuned.profile.name)
