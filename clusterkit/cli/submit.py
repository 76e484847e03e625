"""`clusterkit submit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterkit.cli import options
from clusterkit.cli.guide import Command
from clusterkit.cli.ui.console import note_unread, transfer_bar
from clusterkit.config.options import native_words
from clusterkit.errors import ConfigError
from clusterkit.project import load_project, open_ledger, request_of

if TYPE_CHECKING:
    from clusterkit.runs.alternatives import First
    from clusterkit.snapshots import Allow, Large
    from clusterkit.submit.plan import Plan
    from clusterkit.submit.sweep import SweepAxis


class ProgramCommand(Command):
    """Accepts program arguments only after `--`, so that forgetting `--profile` does not submit a run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rejects program arguments before `--`."""
        behind = args[args.index("--") + 1 :] if "--" in args else []
        rest = super().parse_args(ctx, args)
        given = ctx.params.get("arguments") or []
        if len(given) > len(behind) and not ctx.resilient_parsing:  # not during shell completion
            raise ConfigError(
                f"unexpected argument {given[0]!r}",
                hint="name a profile with `--profile`; put the program's own arguments last, after `--`",
            )
        return rest


COMMAND = ProgramCommand


def submit(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENT", help="Arguments passed to the program unchanged."),
    ] = None,
    profile: options.Profile = None,
    cluster: options.Cluster = None,
    name: options.Name = None,
    seed: options.Seed = None,
    total_steps: options.TotalSteps = None,
    time: options.Time = None,
    nodes: options.Nodes = None,
    until_done: options.UntilDone = None,
    seeds: options.Seeds = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,VALUE",
            help="One run per value; if repeated, one per combination. NAME is a recipe value, seed, "
            "profile, recipe, task, lr or total_steps, or appears as {NAME} in the arguments.",
        ),
    ] = None,
    max_parallel: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Maximum number of the group's jobs that run at once."),
    ] = None,
    pack: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Number of runs that share one job and its GPU.")
    ] = 1,
    in_one: Annotated[
        bool,
        typer.Option("--in-one", help="Train all runs of a pack in one process; only seeds may differ."),
    ] = False,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN", help="Start once this run or group has completed; with RUN:any, once it has ended."
        ),
    ] = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE", help="Then submit a run with this profile, to start after the previous one."
        ),
    ] = None,
    then_always: Annotated[
        bool, typer.Option("--then-always", help="Continue with --then even if a run has failed.")
    ] = False,
    first: Annotated[
        str | None,
        typer.Option(
            metavar="KIND:A,B",
            help="Request the run several times, and run it once, where it starts first: gpu:a40,a100 or "
            "partition:short,long.",
        ),
    ] = None,
    overrides: options.Set = None,
    unlock: options.Unlock = None,
    native: options.Native = None,
    verify_image: Annotated[
        bool, typer.Option("--verify-image", help="Have the job verify its image's digest before it starts.")
    ] = False,
    dry_run: options.DryRun = False,
    script: options.Script = False,
    yes: options.Yes = False,
    send_large: options.SendLarge = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Submit a run or a group of runs, and print its id.

    Each run is built from a profile and checked before anything is sent.

    Examples:
      # look first; nothing is sent
      clusterkit submit --profile a40-2m --dry-run
      # past the limit
      clusterkit submit --profile a40-2m --seed 1 --time 4h --until-done
      # ten runs, one job array
      clusterkit submit --profile a40-2m --seeds 42..51
      # arguments after -- go to the program
      clusterkit submit --profile check -- --json

    See also: clusterkit status, clusterkit resume, sweeps.md, until-done.md
    """
    from clusterkit.runs.program import assignments
    from clusterkit.submit import pipeline
    from clusterkit.submit.pipeline import resolve
    from clusterkit.submit.request import parse_after

    if script and as_json:
        raise ConfigError(
            "--script and --json both decide what is printed",
            hint="leave one out; `--dry-run --json` describes the runs",
        )
    settings, request = request_of(
        load_project(config),
        profile=profile,
        cluster=cluster,
        arguments=arguments or (),
        axes=_axes(seeds, sweep) if seeds or sweep else (),
        then=then or (),
        time=time,
        total_steps=total_steps,
        nodes=nodes,
    )
    request = replace(
        request,
        name=name,
        seed=seed,
        overrides=assignments(overrides or (), "--set"),
        unlock=tuple(unlock or ()),
        native=native_words(native),
        verify_image=verify_image,
        allow_large=large_files(send_large),
        allow_unread=yes,
        until_done=until_done,
        after=parse_after(after or ()),
        max_parallel=max_parallel,
        pack=pack,
        then_always=then_always,
        in_one=in_one,
        first=_first(first) if first else None,
    )
    with open_ledger(settings, only_reads=dry_run or script) as ledger:
        planned = resolve(settings, request)
        note_unread(settings, [run.profile for run in planned.runs])
        if dry_run or script:
            from clusterkit.cli.ui.dry_run import show_dry_run

            would = pipeline.dry_run(settings, planned, ledger, bar=transfer_bar)
            show_dry_run(would, script=script, as_json=as_json)
            return
        done = pipeline.submit(
            settings, planned, ledger, bar=transfer_bar, agree=lambda plan: agree(plan, yes=yes)
        )
        if done.plan.group:
            from clusterkit.cli.ui.sweep import show_group

            show_group(done, as_json=as_json)
        else:
            from clusterkit.cli.ui.submit import show_submitted

            show_submitted(done, as_json=as_json)
        if done.trouble:
            raise done.trouble


def _axes(seeds: str | None, sweep: list[str] | None) -> tuple[SweepAxis, ...]:
    from clusterkit.submit.sweep import axes

    return axes(seeds, sweep or ())


def _first(text: str) -> First:
    from clusterkit.runs.alternatives import parse_first

    return parse_first(text)


def agree(plan: Plan, *, yes: bool) -> None:
    """Shows a group, and asks for confirmation if it is large."""
    if plan.group is None:
        return
    from clusterkit.asking import at_terminal
    from clusterkit.cli.ui.sweep import ASK_ABOVE, confirmed, show_plan

    show_plan(plan)
    if len(plan.runs) > ASK_ABOVE and not yes:
        if not at_terminal():
            raise ConfigError(
                f"{len(plan.runs)} runs need confirmation, and there is no terminal to ask on",
                hint="use --yes",
            )
        if not confirmed(plan):
            raise typer.Exit(1)


def large_files(send: bool) -> Allow:
    """Returns what approves files over the size limit: the option, or the user at the terminal."""

    def approved(files: Sequence[Large], limit: int) -> bool:
        from clusterkit.asking import at_terminal
        from clusterkit.cli.ui.deploy import ask_about_large

        return send or (at_terminal() and ask_about_large(files, limit))

    return approved
