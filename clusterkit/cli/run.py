"""`clusterkit run`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.guide import Command
from clusterkit.cli.submit import agree, large_files
from clusterkit.cli.ui.console import note, note_unread, transfer_bar
from clusterkit.errors import ConfigError, RunError
from clusterkit.interruption import INTERRUPTED
from clusterkit.project import load, open_ledger, request_of, with_command

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.runs.status import StatusRow
    from clusterkit.runs.watching import Watched
    from clusterkit.submit.pipeline import Submitted


class CommandLineLast(Command):
    """Leaves everything from the first word that is no option of clusterkit to the program."""

    allow_interspersed_args = False


COMMAND = CommandLineLast


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="The program and its arguments, or only arguments of the project's program.",
        ),
    ] = None,
    profile: options.Profile = None,
    cluster: options.Cluster = None,
    name: options.Name = None,
    seed: options.Seed = None,
    seeds: options.Seeds = None,
    total_steps: options.TotalSteps = None,
    time: options.Time = None,
    yes: options.Yes = False,
    send_large: options.SendLarge = False,
    config: options.Config = None,
) -> None:
    """Run a program from its first start to the report of its results.

    Writes settings if the project has none, submits the command, follows it, brings its results home and
    draws them. Ctrl-C stops following; the run goes on.

    Examples:
      # settings if there are none, submit, log, results, report
      clusterkit run python train.py --lr 0.3
      # three seeds, compared
      clusterkit run --seeds 1..3 python train.py
      # only arguments: of the program that is set
      clusterkit run --cluster uni -- --lr 0.3

    See also: clusterkit submit, own-project.md
    """
    from clusterkit.submit import pipeline
    from clusterkit.submit.pipeline import resolve
    from clusterkit.submit.sweep import axes

    settings, arguments = _program(config, command or ())
    settings, request = request_of(
        settings,
        profile=profile,
        cluster=cluster,
        arguments=arguments,
        axes=axes(seeds, ()) if seeds else (),
        time=time,
        total_steps=total_steps,
    )
    allow_large = large_files(send_large)
    request = replace(request, name=name, seed=seed, allow_large=allow_large, allow_unread=yes)
    with open_ledger(settings) as ledger:
        planned = resolve(settings, request)
        note_unread(settings, [run.profile for run in planned.runs])
        submitted = pipeline.submit(
            settings, planned, ledger, bar=transfer_bar, agree=lambda plan: agree(plan, yes=yes)
        )
        _show(submitted)
        rows = _follow(settings, ledger, submitted.runs)
        folders = _bring_home(settings, ledger, submitted.runs)
        failed = [row.run for row in rows if row.state.state is not JobState.COMPLETED]
        if failed:
            _explain(settings, ledger, failed)
    _draw(settings, folders)
    if submitted.trouble:
        raise submitted.trouble
    if failed:
        raise typer.Exit(RunError.exit_code)


def _program(config: Path | None, words: Sequence[str]) -> tuple[Settings, list[str]]:
    """Returns the settings by which the command's program runs, and its arguments.

    A project without settings gets a file that names the program. In any other project, a program of the
    command takes the place of the one that is set, for this run.
    """
    from clusterkit.submit.own_program import split_command

    settings = load(config)
    if not settings.of_project:
        named, arguments = split_command(settings.project_dir, words)
        _begin(config, named, arguments)
        return load(config), arguments
    own = settings.project.program
    settings, arguments = with_command(settings, words)
    if (program := settings.project.program) and program != own:
        note(f"program  {shlex.join(program)}")
    return settings, arguments


def _begin(config: Path | None, named: Sequence[str], arguments: Sequence[str]) -> None:
    """Writes settings for the program; without one, for the script that is found.

    Raises:
        ConfigError: there is no such program.
    """
    from clusterkit.asking import at_terminal
    from clusterkit.cli.ui.init import choose, show_here, show_saved
    from clusterkit.commands.init_local import init_local
    from clusterkit.config.settings_file import save, target
    from clusterkit.submit.check import check_script_here

    if not named and arguments and not arguments[0].startswith("-") and "=" not in arguments[0]:
        raise ConfigError(
            f"there is no program {arguments[0]!r} here or on PATH",
            hint="name the program in front of its arguments: `clusterkit run python train.py`",
        )
    program = shlex.join(named) if named else None
    file = target(config, user=False)
    proposal = init_local(file, program, choose=choose if at_terminal() else None)
    check_script_here(file.parent, proposal.settings.project.program or named)
    save(proposal)
    show_here(proposal)
    show_saved(proposal)


def _show(submitted: Submitted) -> None:
    if submitted.plan.group:
        from clusterkit.cli.ui.sweep import show_group

        show_group(submitted)
    else:
        from clusterkit.cli.ui.submit import note_jobs, note_submitted

        note_submitted(submitted)
        note_jobs(submitted)


def _follow(settings: Settings, ledger: Ledger, runs: Sequence[LedgerRun]) -> Sequence[StatusRow]:
    """Shows the log of a run, or the table of several, until all have ended; returns how they ended."""
    from clusterkit.cli.logs import print_logs
    from clusterkit.cli.ui.watch import show_watch
    from clusterkit.runs.log_source import Wanted
    from clusterkit.runs.watching import watch

    last: Watched | None
    looks = watch(settings, ledger, names=[run.run_id for run in runs])
    name = runs[0].group if len(runs) > 1 else runs[0].run_id
    try:
        if len(runs) == 1:
            print_logs(settings, runs, Wanted(lines=None, follow=True))
            *_, last = looks
        else:
            last = show_watch(looks, expand=False, as_json=False)
    except KeyboardInterrupt:
        note(f"{name} goes on; `clusterkit cancel {name}` ends it")
        note(f"next: clusterkit status, clusterkit sync-results {name} --watch, clusterkit report {name}")
        raise typer.Exit(INTERRUPTED) from None
    assert last is not None  # there was a first look
    return last.report.rows


def _bring_home(settings: Settings, ledger: Ledger, runs: Sequence[LedgerRun]) -> list[Path]:
    """Fetches the results of runs; returns their folders here."""
    from clusterkit.cli.sync_results import show_synced
    from clusterkit.commands.report import find_pulled
    from clusterkit.commands.sync import SyncRequest, sync_results

    names = [run.run_id for run in runs]
    synced = sync_results(settings, SyncRequest(names=tuple(names)), ledger, bar=transfer_bar)
    show_synced(synced)
    return find_pulled(synced.results, names, ledger)


def _draw(settings: Settings, folders: Sequence[Path]) -> None:
    """Writes a report about runs."""
    from clusterkit.cli.report import show_reported
    from clusterkit.commands.report import report, report_folder

    folder = report_folder(settings.results_to_write(), folders)
    show_reported(report(folders, folder, now=datetime.now(UTC)))


def _explain(settings: Settings, ledger: Ledger, failed: Sequence[LedgerRun]) -> None:
    """Says why runs did not complete."""
    from clusterkit.cli.why import show_causes, show_diagnosis
    from clusterkit.commands.why import why, why_group

    if len(failed) > 1:
        show_causes(why_group(settings, ledger, failed, bar=transfer_bar), failed)
    else:
        show_diagnosis(why(settings, ledger, failed[0]), failed[0])
