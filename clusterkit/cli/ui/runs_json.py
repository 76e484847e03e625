"""Runs as JSON, and what submit, resume and rerun print with --json; docs/json.md describes the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from clusterkit.cli.ui.console import print_document

if TYPE_CHECKING:
    from clusterkit.backends.base import Continuation
    from clusterkit.runs.ledger import LedgerRun
    from clusterkit.submit.pipeline import DryRun, Submitted

_NULL_IF_EMPTY = ("recipe", "job_id", "submitted", "total_steps", "group", "until_done")
"""Fields that the ledger leaves empty, or 0, where there is no value."""


def run_object(run: LedgerRun) -> dict[str, Any]:
    """Converts a run to plain values."""
    values = asdict(run)
    del values["last"]
    return values | {name: values[name] or None for name in _NULL_IF_EMPTY}


def print_submitted(done: Sequence[Submitted], more: Sequence[Mapping[str, Any]] = ()) -> None:
    """Prints what was submitted, by one submission or several, as one JSON object.

    Args:
        done: the submissions; all of one cluster.
        more: a command's own fields of the runs of each submission.
    """
    first = done[0]
    group = first.plan.group
    fields: Sequence[Mapping[str, Any]] = more or [{}] * len(done)
    _print(
        {
            "carried_out": True,
            "cluster": first.plan.cluster.name,
            "group": group.id if group else None,
            "runs": [
                {**run_object(run), **own} for one, own in zip(done, fields, strict=True) for run in one.runs
            ],
            "missing": [run_id for one in done for run_id in one.missing],
            "goes_on": _continuation(first.continuation),
            "lacking": [line for one in done for line in one.lacking],
        }
    )


def print_dry_run(*found: DryRun, more: Sequence[Mapping[str, Any]] = ()) -> None:
    """Prints the runs that would be submitted, in the same form; arguments as of `print_submitted`."""
    first = found[0]
    group = first.plan.group
    fields: Sequence[Mapping[str, Any]] = more or [{}] * len(found)
    _print(
        {
            "carried_out": False,
            "cluster": first.plan.cluster.name,
            "group": group.id if group else None,
            "runs": [{**run, **own} for one, own in zip(found, fields, strict=True) for run in _planned(one)],
            "missing": [],
            "goes_on": _continuation(first.continuation),
            "lacking": [],
        }
    )


def _planned(found: DryRun) -> list[dict[str, Any]]:
    first = found.first.row
    folder = PurePosixPath(first.run_dir).parent
    part_of = {index: part.number for part in found.parts for index in part.members}
    return [
        run_object(first)
        | {
            "run_id": one.spec.run_id,
            "profile": one.profile.name,
            "recipe": one.recipe or None,
            "seed": one.spec.seed or 0,
            "job_id": None,
            "submitted": None,
            "run_dir": str(folder / one.spec.run_id),
            "total_steps": one.spec.total_steps,
            "state": None,
            "part": part_of.get(number, 0),
        }
        for number, one in enumerate(found.plan.runs)
    ]


def _continuation(found: Continuation | None) -> dict[str, str] | None:
    return None if found is None else {"way": found.way, "why": found.why}


def _print(document: Mapping[str, Any]) -> None:
    print_document({"schema": 1, **document})
