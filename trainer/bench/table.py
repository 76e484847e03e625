"""What was measured, for a person who reads the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_WHAT = {
    "loop": "whole loop",
    "envs": "environments alone",
    "updates": "updates alone",
    "evaluation": "evaluation beside it",
}
_HEADER = ("", "envs", "workers", "precision", "steps/s", "updates/s", "host", "device")


def line(row: Mapping[str, Any]) -> str:
    """Returns one measurement as it comes."""
    what = f"{_WHAT[row['kind']]}, {row['num_envs']} environments, {row['workers']} workers"
    if row["error"]:
        return f"[bench] {what}, {row['precision']}: {row['error']}"
    rates = [
        f"{row[key]:,.0f} {unit}"
        for key, unit in (
            ("env_steps_per_second", "steps/s"),
            ("steps_per_second", "steps/s"),
            ("updates_per_second", "updates/s"),
        )
        if row[key] is not None
    ]
    return f"[bench] {what}, {row['precision']}: {', '.join([*rates, _gib(row['host_bytes'])])}"


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the lines of a table, the fastest of each kind first."""
    cells = [_HEADER]
    for kind, name in _WHAT.items():
        found = [row for row in rows if row["kind"] == kind and not row["error"]]
        found.sort(key=lambda row: -(_speed(row) or 0.0))
        cells += [
            (
                name,
                str(row["num_envs"]),
                str(row["workers"]),
                row["precision"],
                _count(row["steps_per_second"] or row["env_steps_per_second"]),
                _count(row["updates_per_second"]),
                _gib(row["host_bytes"]),
                _gib(row["device_bytes"]),
            )
            for row in found
        ]
    widths = [max(len(cell[column]) for cell in cells) for column in range(len(_HEADER))]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in cells
    ]


def _speed(row: Mapping[str, Any]) -> float | None:
    rate: float | None = row["steps_per_second"] or row["env_steps_per_second"] or row["updates_per_second"]
    return rate


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / 2**30:.2f} GiB"
