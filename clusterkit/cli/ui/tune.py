"""The measurements of tune and what they changed, as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from clusterkit.backends.jobs import JobState
from clusterkit.cli.ui.console import err, note, out, print_document, stage_lines, warn
from clusterkit.cli.ui.lines import plain_table
from clusterkit.forecast.tuning import NEAR
from clusterkit.units import beside, format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from clusterkit.config.models import Profile
    from clusterkit.forecast.bench import Bench, BenchRow, BenchSetting
    from clusterkit.forecast.tuning import Chosen
    from clusterkit.runs.ledger import LedgerRun
    from clusterkit.runs.state import RunState
    from clusterkit.runs.status import StatusRow


@dataclass(frozen=True)
class Tuned:
    """The measurements and the resulting changes of the profile."""

    run: LedgerRun
    state: RunState
    profile: Profile
    bench: Bench
    chosen: Chosen
    changes: Mapping[str, str | int]


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


def show_goes_on(run_id: str) -> None:
    """Prints how to collect the results later."""
    note(f"the measurement continues; `clusterkit tune {run_id}` collects its results")
