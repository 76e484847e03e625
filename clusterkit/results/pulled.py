"""Finds runs by name, also those in the results folder that the ledger does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.runs import names as naming
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.run_dir import read_run_dir, table


@dataclass(frozen=True)
class _Stranger:
    """A run directory here that the ledger does not know: of another laptop, or copied there."""

    run_id: str
    group: str
    job_id: str = ""


def folder_of(name: str) -> Path | None:
    """The run directory at a path, if the name is one."""
    folder = Path(name)
    return folder if name and (folder / "run.json").is_file() else None


def runs_meant(results: Path, name: str, ledger: Ledger) -> Sequence[naming.Named]:
    """The runs of a name: the same ones whether they lie here, on their cluster, or both.

    Raises:
        RunError: as `clusterkit.runs.names.find`.
    """
    known: list[naming.Named] = [*ledger.runs()]
    ids = {run.run_id for run in known}
    # A member's run id begins with its group's, so no other folder can be meant.
    here = sorted(path.parent for path in results.glob("*/run.json") if path.parent.name.startswith(name))
    strangers = [_Stranger(folder.name, group_of(folder)) for folder in here if folder.name not in ids]
    return naming.find([*strangers, *known] if name else known, [name])


def group_of(folder: Path) -> str:
    """The id of a pulled run's group; empty for a run of its own."""
    return str(table(read_run_dir(folder).document, "group").get("id", ""))


def pulled_run(results: Path, name: str, ledger: Ledger) -> Path | None:
    """The folder of one run that lies here; None when it does not, and the ledger knows the run.

    Raises:
        RunError: there is no such run, or the name means several.
    """
    if (folder := folder_of(name)) is not None:
        return folder
    run = naming.only(runs_meant(results, name, ledger), name)
    here = results / run.run_id
    return here if (here / "run.json").is_file() else None
