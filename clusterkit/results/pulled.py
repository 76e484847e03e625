"""Finds runs by name, including runs in the results folder that the ledger does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.runs import names as naming
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.run_dir import read_run_dir, table


@dataclass(frozen=True)
class _Stranger:
    """A local run directory that the ledger does not know: submitted elsewhere, or copied."""

    run_id: str
    group: str
    job_id: str = ""


def folder_of(name: str) -> Path | None:
    """The run directory at a path; None if the name is not a path of one."""
    folder = Path(name)
    return folder if name and (folder / "run.json").is_file() else None


def runs_meant(results: Path, name: str, ledger: Ledger) -> Sequence[naming.Named]:
    """The runs that a name matches, whether they are stored locally, on their cluster, or both.

    Raises:
        RunError: as `clusterkit.runs.names.find`.
    """
    known: list[naming.Named] = [*ledger.runs()]
    ids = {run.run_id for run in known}
    # A member's run id begins with its group's id, so no other folder can match.
    here = sorted(path.parent for path in results.glob("*/run.json") if path.parent.name.startswith(name))
    strangers = [_Stranger(folder.name, group_of(folder)) for folder in here if folder.name not in ids]
    return naming.find([*strangers, *known] if name else known, [name])


def group_of(folder: Path) -> str:
    """The id of a pulled run's group; empty for a run without one."""
    return str(table(read_run_dir(folder).document, "group").get("id", ""))


def pulled_run(results: Path, name: str, ledger: Ledger) -> Path | None:
    """The local folder of one run; None if only the ledger knows the run.

    Raises:
        RunError: the name matches no run, or several.
    """
    if (folder := folder_of(name)) is not None:
        return folder
    run = naming.only(runs_meant(results, name, ledger), name)
    here = results / run.run_id
    return here if (here / "run.json").is_file() else None
