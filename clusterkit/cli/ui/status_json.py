"""The status of runs as JSON; docs/status.md describes every field, and a test compares the two."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clusterkit.cli.ui.console import print_document
from clusterkit.cli.ui.runs_json import run_object
from clusterkit.cli.ui.status import Folded, fold_groups

if TYPE_CHECKING:
    from clusterkit.runs.status import StatusReport, StatusRow
    from clusterkit.search.summary import Best

SCHEMA = 3


def print_json(
    report: StatusReport, *, indent: int | None = 2, bests: Mapping[str, Best] = MappingProxyType({})
) -> None:
    """Prints one JSON document on standard output; `bests` has the best trials of searches by group."""
    print_document(document(report, bests), indent=indent)


def document(report: StatusReport, bests: Mapping[str, Best] = MappingProxyType({})) -> dict[str, Any]:
    """Builds the whole document."""
    folded = [line for line in fold_groups(report.rows, least=1) if isinstance(line, Folded)]
    return {
        "schema": SCHEMA,
        "time": time.time(),
        "runs": [_run(row) for row in report.rows],
        "groups": [_group(line, bests.get(line.group)) for line in folded],
        "silent": dict(report.silent),
        "mute": dict(report.mute),
        "found": dict(report.found),
        "left_out": report.left_out,
    }


def _run(row: StatusRow) -> Mapping[str, Any]:
    state = asdict(row.state)
    del state["seen_step"], state["seen_time"]
    state |= {
        "until_done": row.run.until_done or None,
        "job_id": row.state.job_id or row.run.job_id or None,
        "submission": max(row.state.submission or 0, row.run.submission),
    }
    return run_object(row.run) | state


def _group(line: Folded, best: Best | None) -> Mapping[str, Any]:
    return {
        "group": line.group,
        "clusters": list(dict.fromkeys(row.run.cluster for row in line.rows)),
        "runs": [row.run.run_id for row in line.rows],
        "states": {state.value: count for state, count in line.counts.items()},
        "progress": line.progress,
        "best": _best(best) if best else None,
    }


def _best(best: Best) -> Mapping[str, Any]:
    found = asdict(best)
    del found["group"]
    return found
