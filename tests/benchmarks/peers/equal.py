"""What the page says that every side has in common: our recipes' values, and what a case changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.benchmarks.peers.cases import Case


def equal(shown: Sequence[Case], trained: Mapping[str, int]) -> str:
    """Returns a line for each recipe and number of environments: its changes, its cases and steps."""
    lines: dict[str, list[str]] = {}
    for case in shown:
        changed = "".join(f", `{name}` {value:,}" for name, value in case.changes.items())
        environments = f"{case.envs} environment{'s' if case.envs > 1 else ''}"
        steps = f"{case.environment} {trained[case.name]:,}"
        lines.setdefault(f"- `{case.recipe}`{changed}, {environments}", []).append(steps)
    return "".join(f"{line}: {', '.join(steps)} steps\n" for line, steps in lines.items())
