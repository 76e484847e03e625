"""`clusterkit tune`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from clusterkit.asking import agree, at_terminal
from clusterkit.backends.jobs import JobState
from clusterkit.cli.common import (
    ClusterOption,
    ConfigOption,
    DryRunOption,
    JsonOption,
    ScriptOption,
    SetOption,
    UnlockOption,
    YesOption,
    load_project,
    open_ledger,
)
from clusterkit.cli.ui.console import err, note, out, print_document, warn
from clusterkit.cli.ui.lines import plain_table
from clusterkit.cli.ui.progress import stage_lines, transfer_bar
from clusterkit.config.sources import display_path
from clusterkit.errors import ConfigError
from clusterkit.forecast.measurements import FILE
from clusterkit.forecast.tuning import NEAR
from clusterkit.units import beside, format_bytes, format_seconds, plural

if TYPE_CHECKING:
    from rich.table import Table

    from clusterkit.commands.tune import Tuned
    from clusterkit.config.settings import Settings
    from clusterkit.config.settings_file import Proposal
    from clusterkit.forecast.bench import Bench, BenchRow, BenchSetting
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.runs.status import StatusRow


def tune(
    name: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="An earlier run of `tune`; submits a new one if left out."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="PROFILE", help="Profile to tune.")
    ] = None,
    cluster: ClusterOption = None,
    minutes: Annotated[
        int, typer.Option(metavar="N", min=1, max=120, help="Time limit of all measurements, in minutes.")
    ] = 10,
    num_envs: Annotated[
        str | None, typer.Option(metavar="A,B", help="Try only these numbers of environments.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="A,B", help="Try only these numbers of worker processes.")
    ] = None,
    overrides: SetOption = None,
    unlock: UnlockOption = None,
    precision: Annotated[
        bool, typer.Option("--precision", help="Also choose the precision, which may change the results.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for the measurements.")] = False,
    dry_run: DryRunOption = False,
    script: ScriptOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Measure on a compute node which settings are fastest.

    A short job tries different numbers of environments and worker processes (for PPO and A2C only the
    latter). After you agree, the fastest safe setting is written into the profile. What a run learns stays
    the same.
    """
    from clusterkit.cli.ui.dry_run import show_dry_run
    from clusterkit.cli.ui.submit import note_jobs, show_submitted
    from clusterkit.commands import tune as command
    from clusterkit.runs.program import assignments
    from clusterkit.submit import pipeline

    settings = load_project(config)
    with open_ledger(settings) as ledger:
        if name is not None:
            if profile or cluster or num_envs or workers or overrides or unlock or script:
                raise ConfigError(
                    f"{name} was submitted with its own profile, cluster and settings to try",
                    hint="leave RUN out to measure again, or leave the options out to see its results",
                )
            run = ledger.find_one(name)
        else:
            tries = {"num-envs": num_envs, "workers": workers}
            request = command.request(
                settings,
                settings.cluster(cluster),
                settings.profile(profile),
                minutes,
                {option: text for option, text in tries.items() if text is not None},
                assignments(overrides or (), "--set"),
                tuple(unlock or ()),
            )
            planned = pipeline.resolve(settings, request)
            if dry_run or script:
                would = pipeline.dry_run(settings, planned, ledger, bar=transfer_bar)
                show_dry_run(would, script=script, as_json=as_json)
                return
            submitted = pipeline.submit(settings, planned, ledger, bar=transfer_bar)
            (note_jobs if as_json else show_submitted)(submitted)
            (run,) = submitted.runs
        if not no_wait:
            try:
                with waiting() as on_row:
                    command.wait(settings, ledger, run, on_row)
            except KeyboardInterrupt:
                show_goes_on(run.run_id)
                raise
        elif name is None:
            show_goes_on(run.run_id)
            if as_json:
                print_document({"schema": 1, "run_id": run.run_id, "complete": False})
            return
        _take_up(settings, ledger, run, precision=precision, dry_run=dry_run, yes=yes, as_json=as_json)


def _take_up(
    settings: Settings,
    ledger: Ledger,
    run: LedgerRun,
    *,
    precision: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    from clusterkit.cli.ui.init import show_changes
    from clusterkit.commands import tune as command
    from clusterkit.config.settings_file import save

    tuned = command.collect(settings, ledger, run, precision=precision)
    if not as_json:
        show_tuned(tuned)
    written = False
    if tuned.changes:
        change = command.edit(settings, tuned)
        if not as_json:
            show_changes(change)
        if dry_run:
            note("dry run: nothing was written")
        elif agreed(change, yes=yes):
            save(change)
            written = True
            note(f"{display_path(change.file)} is written; the next run with {tuned.profile.name} uses it")
    if as_json:
        print_json(tuned, carried_out=written)


def print_json(tuned: Tuned, *, carried_out: bool) -> None:
    """Prints the measurements and the chosen setting as JSON."""
    bench, chosen = tuned.bench, tuned.chosen
    print_document(
        {
            "schema": 1,
            "carried_out": carried_out,
            "run_id": tuned.run.run_id,
            "profile": tuned.profile.name,
            "complete": bench.complete,
            "node": bench.node,
            "device": bench.device,
            "recipe": bench.recipe,
            "rows": [asdict(row) for row in bench.rows],
            "chosen": asdict(chosen.row.setting) if chosen.row else None,
            "unsafe": [{"setting": asdict(setting), "why": why} for setting, why in chosen.unsafe.items()],
            "changes": dict(tuned.changes),
        }
    )


@contextmanager
def waiting() -> Iterator[Callable[[StatusRow], None]]:
    """Reports the benchmark's progress: in place on a terminal, otherwise as periodic lines."""
    if err.is_terminal:
        with err.status("submitted") as status:
            yield lambda row: status.update(Text(_where(row)))
        return
    yield stage_lines(_where, lambda row: row.state.why or row.state.state.value)


def _where(row: StatusRow) -> str:
    state = row.state
    if state.state is not JobState.RUNNING:
        return f"{state.state.value.lower()}{f': {state.why}' if state.why else ''}"
    where = f" on {state.node}" if state.node else ""
    left = f", {format_seconds(state.eta_seconds)} left" if state.eta_seconds else ""
    return f"measuring{where}{left}" if state.progress is not None else f"starting{where}"


def show_tuned(tuned: Tuned) -> None:
    """Prints the node, the table of measurements and the chosen setting."""
    bench, chosen = tuned.bench, tuned.chosen
    note(f"measured {bench.day} on {bench.node} ({bench.device}), recipe {bench.recipe}")
    if tuned.state.state.active and not bench.complete:
        note(f"it is still measuring; run `clusterkit tune {tuned.run.run_id}` again for more")
    elif not bench.complete:
        warn("it ended early:", " only what it had measured by then is used")
    if _settings(bench):
        out.print(_table(bench, tuned))
    if tuned.kept:
        note(f"{plural(tuned.kept, 'measurement')} kept in .clusterkit/{FILE}")
    for setting, why in chosen.unsafe.items():
        note(f"{setting} is not safe: it {why}")
    _show_failed(bench)
    if chosen.row is None or chosen.fastest is None:
        warn("no setting is both measured and safe;", " the profile stays as it is")
        return
    if chosen.row != chosen.fastest:
        note(f"within {1 - NEAR:.0%} of the fastest, the one with less memory and fewer processes is chosen")
    before = bench.of("loop", bench.own)
    gain = ""
    if before and before.steps_per_second and chosen.row.setting != bench.own:
        gain = f", {(chosen.row.steps_per_second or 0.0) / before.steps_per_second:.2f} times as fast as now"
    out.print(Text.assemble((str(chosen.row.setting), "bold"), gain), soft_wrap=True)
    if len(bench.loops) < 2:
        note("there was no time to compare anything else; raise --minutes")
    if not tuned.changes:
        out.print(f"profile {tuned.profile.name} needs no change", soft_wrap=True)


def _show_failed(bench: Bench) -> None:
    """Prints each failure reason once, with the measurements it prevented."""
    failed: dict[str, list[BenchRow]] = {}
    for row in bench.rows:
        if row.error:
            failed.setdefault(row.error, []).append(row)
    for why, rows in failed.items():
        first = f"{rows[0].setting}, {_KINDS.get(rows[0].kind, rows[0].kind)}"
        more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
        note(f"{first}{more}: {why}")


_KINDS = {"loop": "whole loop", "envs": "environments", "updates": "updates", "evaluation": "evaluation"}


def _table(bench: Bench, tuned: Tuned) -> Table:
    settings = _settings(bench)
    found = [[bench.of(kind, setting) for kind in ("loop", "envs", "updates")] for setting in settings]
    loops = [loop for loop, _, _ in found]
    columns = {
        "envs": [str(setting.num_envs) for setting in settings],
        "workers": [str(setting.workers) for setting in settings],
        "precision": [setting.precision for setting in settings],
        "steps/s": _rates([loop.steps_per_second if loop else None for loop in loops]),
        "envs alone": _rates([envs.env_steps_per_second if envs else None for _, envs, _ in found]),
    }
    if any(row.kind == "updates" and row.error is None for row in bench.rows):
        columns["updates/s"] = _rates(
            [updates.updates_per_second if updates and loop else None for loop, _, updates in found]
        )
    columns["memory"] = [
        format_bytes(held) if loop and (held := bench.memory(loop)) else "" for loop in loops
    ]
    if bench.gpu_bytes is not None:
        columns["GPU"] = [
            format_bytes(loop.device_bytes) if loop and loop.device_bytes else "" for loop in loops
        ]
    table = plain_table(*columns, "", right=columns.keys() - {"precision"})
    for setting, cells in zip(settings, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*cells, _mark(setting, tuned))
    return table


def _settings(bench: Bench) -> list[BenchSetting]:
    """Returns the measured settings, sorted by loop speed, then by environment speed, fastest first."""
    settings = dict.fromkeys(
        row.setting for row in bench.rows if row.kind in ("loop", "envs") and row.error is None
    )

    def speed(setting: BenchSetting) -> tuple[float, float]:
        loop, envs = bench.of("loop", setting), bench.of("envs", setting)
        return (loop and loop.steps_per_second) or 0.0, (envs and envs.env_steps_per_second) or 0.0

    return sorted(settings, key=speed, reverse=True)


def _mark(setting: BenchSetting, tuned: Tuned) -> Text:
    words = []
    row: BenchRow | None = tuned.chosen.row
    if row is not None and setting == row.setting:
        words.append(("chosen", "green"))
    if setting == tuned.bench.own:
        words.append(("as it is now", "dim"))
    if setting in tuned.chosen.unsafe:
        words.append(("not safe", "yellow"))
    return Text(", ").join(Text(word, style) for word, style in words)


def _rates(values: Sequence[float | None]) -> list[str]:
    """Formats a column of speeds; missing measurements stay empty."""
    return ["" if text == "-" else text for text in beside(values)]


def agreed(change: Proposal, *, yes: bool) -> bool:
    """Whether to write the change: --yes, or the user's answer at the terminal."""
    if yes:
        return True
    if not at_terminal():
        note("nothing was written; --yes writes it")
        return False
    return agree(f"Write this into {display_path(change.file)}?")


def show_goes_on(run_id: str) -> None:
    """Prints how to collect the results later."""
    note(f"the measurement continues; `clusterkit tune {run_id}` collects its results")
