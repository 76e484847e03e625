"""What tune measured, as a table; and the question whether to write what follows from it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from clusterkit.asking import agree
from clusterkit.backends.base import JobState
from clusterkit.cli.ui.console import err, note, out
from clusterkit.cli.ui.text import format_bytes
from clusterkit.config.sources import display_path
from clusterkit.forecast.measurements import FILE
from clusterkit.forecast.tuning import NEAR
from clusterkit.numbers import beside
from clusterkit.units import format_seconds

if TYPE_CHECKING:
    from clusterkit.commands.tune import Tuned
    from clusterkit.config.settings_file import Proposal
    from clusterkit.forecast.tuning import Bench, Row, Setting
    from clusterkit.runs.status import StatusRow

_LINE_SECONDS = 15.0
"""Between two lines where there is no terminal to redraw."""


@contextmanager
def waiting() -> Iterator[Callable[[StatusRow], None]]:
    """Says where the measuring is: in place on a terminal, elsewhere in a line now and then."""
    if err.is_terminal:
        with err.status("submitted") as status:
            yield lambda row: status.update(Text(_where(row)))
        return
    said, printed = "", 0.0

    def show(row: StatusRow) -> None:
        nonlocal said, printed
        stage = row.state.why or row.state.state.value
        if stage != said or time.monotonic() - printed >= _LINE_SECONDS:
            said, printed = stage, time.monotonic()
            note(_where(row))

    yield show


def _where(row: StatusRow) -> str:
    state = row.state
    if state.state is not JobState.RUNNING:
        return f"{state.state.value.lower()}{f': {state.why}' if state.why else ''}"
    where = f" on {state.node}" if state.node else ""
    left = f", {format_seconds(state.eta_seconds)} left" if state.eta_seconds else ""
    return f"measuring{where}{left}" if state.progress is not None else f"starting{where}"


def show_tuned(tuned: Tuned) -> None:
    """The node, the table, and what is chosen."""
    bench, chosen = tuned.bench, tuned.chosen
    note(f"measured {bench.day} on {bench.node} ({bench.device}), recipe {bench.recipe}")
    if tuned.state.state.active and not bench.complete:
        note(f"it still measures; `clusterkit tune {tuned.run.run_id}` again has more")
    elif not bench.complete:
        err.print("[yellow]it was ended before it was done:[/] what it had measured by then counts")
    if _settings(bench):
        out.print(_table(bench, tuned))
    if tuned.kept:
        note(f"{tuned.kept} measurement{'' if tuned.kept == 1 else 's'} kept in .clusterkit/{FILE}")
    for setting, why in chosen.unsafe.items():
        note(f"{setting} is not safe: it {why}")
    _show_failed(bench)
    if chosen.row is None or chosen.fastest is None:
        err.print("[yellow]no setting is both measured and safe;[/] the profile stays as it is")
        return
    if chosen.row != chosen.fastest:
        note(f"within {1 - NEAR:.0%} of the fastest, the one with less memory and fewer processes is taken")
    before = bench.of("loop", bench.own)
    gain = ""
    if before and before.steps_per_second and chosen.row.setting != bench.own:
        gain = f", {(chosen.row.steps_per_second or 0.0) / before.steps_per_second:.2f} times as fast as now"
    out.print(f"[bold]{chosen.row.setting}[/]{gain}", soft_wrap=True)
    if len(bench.loops) < 2:
        note("nothing else could be compared in that time; --minutes gives it more")
    if not tuned.changes:
        out.print(f"profile {tuned.profile.name} is right as it is", soft_wrap=True)


def _show_failed(bench: Bench) -> None:
    """Each reason once, with what it stopped."""
    failed: dict[str, list[Row]] = {}
    for row in bench.rows:
        if row.error:
            failed.setdefault(row.error, []).append(row)
    for why, rows in failed.items():
        first = f"{rows[0].setting}, {_KINDS.get(rows[0].kind, rows[0].kind)}"
        more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
        note(f"{first}{more}: {why}")


_KINDS = {"loop": "whole loop", "envs": "environments", "updates": "updates", "evaluation": "evaluation"}


def _table(bench: Bench, tuned: Tuned) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    learner = any(row.kind == "updates" and row.error is None for row in bench.rows)
    shown = {"updates/s": learner, "GPU": bench.gpu_bytes is not None}
    for name in ("envs", "workers", "precision", "steps/s", "envs alone", "updates/s", "memory", "GPU"):
        if shown.get(name, True):
            table.add_column(name, justify="left" if name == "precision" else "right", no_wrap=True)
    table.add_column("", no_wrap=True)
    settings = _settings(bench)
    found = [[bench.of(kind, setting) for kind in ("loop", "envs", "updates")] for setting in settings]
    rates = _rates([loop.steps_per_second if loop else None for loop, _, _ in found])
    alone = _rates([envs.env_steps_per_second if envs else None for _, envs, _ in found])
    learnt = _rates([updates.updates_per_second if updates and loop else None for loop, _, updates in found])
    for number, setting in enumerate(settings):
        loop = found[number][0]
        held = bench.memory(loop) if loop else None
        cells = [
            str(setting.num_envs),
            str(setting.workers),
            setting.precision,
            rates[number],
            alone[number],
        ]
        if shown["updates/s"]:
            cells.append(learnt[number])
        cells.append(format_bytes(held) if held else "")
        if shown["GPU"]:
            cells.append(format_bytes(loop.device_bytes) if loop and loop.device_bytes else "")
        table.add_row(*cells, _mark(setting, tuned))
    return table


def _settings(bench: Bench) -> list[Setting]:
    """Those measured, the fastest loops first, then the fastest environments."""
    settings = dict.fromkeys(
        row.setting for row in bench.rows if row.kind in ("loop", "envs") and row.error is None
    )

    def speed(setting: Setting) -> tuple[float, float]:
        loop, envs = bench.of("loop", setting), bench.of("envs", setting)
        return (loop and loop.steps_per_second) or 0.0, (envs and envs.env_steps_per_second) or 0.0

    return sorted(settings, key=speed, reverse=True)


def _mark(setting: Setting, tuned: Tuned) -> Text:
    words = []
    row: Row | None = tuned.chosen.row
    if row is not None and setting == row.setting:
        words.append(("chosen", "green"))
    if setting == tuned.bench.own:
        words.append(("as it is now", "dim"))
    if setting in tuned.chosen.unsafe:
        words.append(("not safe", "yellow"))
    return Text(", ").join(Text(word, style) for word, style in words)


def _rates(values: Sequence[float | None]) -> list[str]:
    """A column of speeds, those that were not measured empty."""
    return ["" if text == "-" else text for text in beside(values)]


def agreed(change: Proposal, *, yes: bool) -> bool:
    """Whether it is to be written: by option, or as the person at the terminal says."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        note("nothing was written; --yes writes it")
        return False
    return agree(f"Write this into {display_path(change.file)}?")


def show_written(change: Proposal, profile: str) -> None:
    """What was done."""
    note(f"{display_path(change.file)} is written; the next run of {profile} takes it")


def show_goes_on(run_id: str) -> None:
    """What to do when one does not wait."""
    note(f"the measuring goes on; `clusterkit tune {run_id}` takes up what it finds")
