"""How every benchmark speaks: one table with both sides, then one line of JSON for machines."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence

Row = tuple[str, str, float, str, float, str]
"""What was measured, our side and its value, the peer and its value, the unit."""


def arguments(description: str | None, **flags: str) -> argparse.Namespace:
    """The command line of a benchmark: `--quick` stays under 50 s on two cores.

    Args:
        description: the benchmark's own docstring.
        flags: help of further flags, by name.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller repetitions")
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    return parser.parse_args()


def report(name: str, rows: Sequence[Row], metrics: Mapping[str, float]) -> None:
    """Print the table and the JSON line.

    Args:
        name: of the benchmark.
        rows: one line each.
        metrics: numbers by name; one that begins with `ratio_` is above 1 when ours is better.
    """
    cells = [("", "ours", "", "peer", "", "unit")]
    cells += [(what, ours, _short(a), peer, _short(b), unit) for what, ours, a, peer, b, unit in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(6)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    rounded = {key: float(f"{value:.4g}") for key, value in metrics.items()}
    print(json.dumps({"name": name, **rounded}))


def _short(value: float) -> str:
    return f"{value:.3g}"
