"""Finds runs by name, also those that only the results folder has, and reads their own records.

A run's records come from the local copy if it was synced, else from its cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.backends.submission import Submission
from clusterkit.errors import RunError
from clusterkit.probes import ask
from clusterkit.runs import names as naming
from clusterkit.runs.ledger import SHORT, Ledger, LedgerRun
from clusterkit.runs.record import records
from clusterkit.runs.roster import document
from clusterkit.runs.run_dir import newest_request, read_run_dir, table
from clusterkit.runs.spec import short_of
from clusterkit.transport.base import Transport


@dataclass(frozen=True)
class _Stranger:
    """A local run directory that the ledger does not know: submitted elsewhere, or copied."""

    run_id: str
    group: str
    job_id: str = ""
    short: str = ""


def folder_of(name: str) -> Path | None:
    """Returns the run directory at a path; None if the name is not a path of one."""
    folder = Path(name)
    return folder if name and (folder / "run.json").is_file() else None


def runs_meant(results: Path, name: str, ledger: Ledger) -> Sequence[naming.Named]:
    """Returns the runs that a name matches, whether they are stored locally, on their cluster, or both.

    Raises:
        RunError: as `clusterkit.runs.names.find`.
    """
    of_ledger: list[naming.Named] = [*ledger.runs()]
    ids = {run.run_id for run in of_ledger}
    # A member's run id begins with its group's id; only a short name is that of any folder.
    begin = "" if SHORT.fullmatch(name) else name
    here = sorted(path.parent for path in results.glob("*/run.json") if path.parent.name.startswith(begin))
    strangers = [_stranger(folder) for folder in here if folder.name not in ids]
    return naming.find([*strangers, *of_ledger] if name else of_ledger, [name])


def _stranger(folder: Path) -> _Stranger:
    return _Stranger(folder.name, group_of(folder), short=short_of(read_run_dir(folder).document))


def group_of(folder: Path) -> str:
    """Returns the id of a pulled run's group; empty for a run without one."""
    return str(table(read_run_dir(folder).document, "group").get("id", ""))


def pulled_run(results: Path, name: str, ledger: Ledger) -> Path | None:
    """Returns the local folder of one run; None if only the ledger knows the run.

    Raises:
        RunError: the name matches no run, or several.
    """
    if (folder := folder_of(name)) is not None:
        return folder
    run = naming.only(runs_meant(results, name, ledger), name)
    here = results / run.run_id
    return here if (here / "run.json").is_file() else None


@dataclass(frozen=True)
class Recorded:
    """A run as its own files describe it."""

    document: Mapping[str, Any]
    """run.json."""
    request: Submission
    """The newest submission."""
    folder: Path | None
    """The local run directory, if any."""
    run: LedgerRun | None
    """The run's ledger row, if any."""


def unreadable(run: LedgerRun) -> RunError:
    """Returns the error for a run whose run.json on its cluster is invalid."""
    return RunError(
        f"{run.run_id}: {run.run_dir}/run.json on {run.cluster} cannot be read",
        hint="copy it back from an earlier `clusterkit sync-results`, or start a new run",
    )


def read_recorded(
    results: Path, ledger: Ledger, name: str, transport_to: Callable[[str], Transport]
) -> Recorded:
    """Reads run.json and the newest request.json of a run.

    Args:
        results: the project's results folder.
        ledger: finds runs that were not synced.
        name: a run, or the path of a run directory.
        transport_to: connects to a cluster by name.

    Raises:
        RunError: the run is unknown, or its run directory is gone.
        TransportError: there is no local copy and the cluster cannot be reached.
    """
    folder = pulled_run(results, name, ledger)
    if folder is None:
        run = ledger.find_one(name)  # raises for an unknown or ambiguous name
        described, files = document(run.run_dir), records([run.run_dir])
        answers = ask(transport_to(run.cluster), described, files)
        answer = answers.of(described)
        if not answer.exists:
            raise RunError(
                f"{run.run_id}: there is no run directory {run.run_dir} on {run.cluster}",
                hint="`clusterkit status` shows what happened to it",
            )
        if answer.content is None:
            raise unreadable(run)
        return Recorded(answer.content, answers.of(files)[run.run_dir].request, None, run)
    directory = read_run_dir(folder)
    return Recorded(directory.document, newest_request(folder), folder, ledger.get(directory.run_id))
