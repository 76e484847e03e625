"""Why the runs of a group are as they are: on the screen, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from clusterkit.cli.ui.console import note, out
from clusterkit.cli.ui.why import as_object, show_finding

if TYPE_CHECKING:
    from clusterkit.commands.why_group import Causes

_NAMED = 3


def show_causes(causes: Causes) -> None:
    """How many runs have which cause, then each cause by one of its runs."""
    counts = ", ".join(f"{len(one.run_ids)} {one.exemplar.finding.cause.slug}" for one in causes.shared)
    head = Text.assemble((causes.group, "bold"), f"  {causes.runs} runs: {counts}")
    out.print(head, soft_wrap=True)
    for one in causes.shared:
        out.print()
        count = len(one.run_ids)
        runs = "1 run" if count == 1 else f"{count} runs"
        out.print(Text.assemble((runs, "bold"), f"  {_listed(one.run_ids)}"), soft_wrap=True)
        if count > 1:
            shown = one.exemplar.evidence
            out.print(Text(f"of these {shown.subject.run_id}, {shown.state.state}:", "dim"), soft_wrap=True)
        show_finding(one.exemplar)
    if causes.not_asked:
        out.print()
        note(f"not looked at: {_listed(causes.not_asked)}; `clusterkit why RUN` looks at one")


def print_group_json(causes: Causes) -> None:
    """One object on standard output; see docs/why.md."""
    document = {
        "schema": 1,
        "group": causes.group,
        "runs": causes.runs,
        "causes": [
            {
                "cause": one.exemplar.finding.cause.slug,
                "run_ids": one.run_ids,
                "exemplar": as_object(one.exemplar),
            }
            for one in causes.shared
        ],
        "not_asked": causes.not_asked,
    }
    out.file.write(json.dumps(document, indent=2) + "\n")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
