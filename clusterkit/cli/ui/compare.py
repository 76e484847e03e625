"""Shows one profile on every GPU type there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from clusterkit.cli.ui.console import note, out
from clusterkit.cli.ui.plan import FITS, speed_words, time_range
from clusterkit.cli.ui.plan_json import store_json, time_json
from clusterkit.cli.ui.text import format_bytes, format_count
from clusterkit.numbers import beside, significant

if TYPE_CHECKING:
    from clusterkit.commands.compare import Row
    from clusterkit.config.models import Profile


def show_comparison(profile: Profile, rows: Sequence[Row]) -> None:
    """One line a GPU type of a cluster."""
    steps = f", {format_count(profile.total_steps)} steps" if profile.total_steps else ""
    out.print(Text.assemble((profile.name, "bold"), f": {profile.recipe}{steps}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    counted = any(row.memory for row in rows)
    for title in ("cluster", "gpu", *(("memory", "takes", "") if counted else ()), "time", "steps/s"):
        right = title in ("memory", "takes")
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "steps/s")
    speeds = beside([row.speed.steps_per_second if row.speed else None for row in rows])
    for row, rate in zip(rows, speeds, strict=True):
        name = Text(row.gpu or "-", style="bold" if row.gpu == (profile.gpu or "") else "")
        table.add_row(row.cluster or "-", name, *(_memory(row) if counted else ()), *_time(row, rate))
    out.print(table)
    for gpu, speed in {row.gpu: row.speed for row in rows if row.speed}.items():
        out.print(Text.assemble((gpu or "no GPU", "bold"), f": {speed_words(speed)}"))
    note("nothing is scaled from one GPU to another: what was not measured, a short run of yours tells")


def print_comparison_json(profile: Profile, rows: Sequence[Row]) -> None:
    """The same for machines; docs/plan.md lists the keys."""
    document = {
        "schema": 1,
        "profile": profile.name,
        "recipe": profile.recipe,
        "total_steps": profile.total_steps,
        "gpus": [
            {
                "cluster": row.cluster,
                "gpu": row.gpu or None,
                "memory": store_json(row.memory),
                "time": time_json(row.speed, row.duration),
                "published": [asdict(rate) for rate in row.published],
            }
            for row in rows
        ],
    }
    out.file.write(json.dumps(document, ensure_ascii=False) + "\n")


def _memory(row: Row) -> tuple[str, str, Text]:
    if row.memory is None:
        return "", "", Text()
    there = "?" if row.memory.available is None else format_bytes(row.memory.available)
    fit = Text(str(row.memory.fit), style=FITS[row.memory.fit])
    return there, format_bytes(row.memory.needed), fit


def _time(row: Row, rate: str) -> tuple[str, Text]:
    if row.speed is None:
        told = "; ".join(f"{significant(one.steps_per_second)} steps/s by {one.by}" for one in row.published)
        other = f"not this work: {told}" if told else "not measured"
        return "-", Text(other, style="dim")
    return time_range(row.duration, here=row.speed.here) if row.duration else "-", Text(rate)
