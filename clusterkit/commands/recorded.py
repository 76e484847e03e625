"""What a run's own files say it is: read here when it was synced, else on its cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.commands.pulled import pulled_run
from clusterkit.errors import RunError
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.run_dir import newest_request, read_run_dir
from clusterkit.transport.base import Transport
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object

_READ = (
    f'small() {{ test -f "$1" && head -c {DOCUMENT_BYTES} "$1"; }}\n'
    'test -e "$1/run.json" || { echo "No such file: $1/run.json" >&2; exit 1; }; '
    'small "$1/run.json"; printf "\\036"; '
    'n=; taken=; for n in $(ls "$1/submissions" 2>/dev/null | grep -x "[0-9]*" | sort -n | tail -n 1000); do '
    'case $(small "$1/submissions/$n/status" 2>/dev/null) in "" | 0) taken=$n ;; esac; done; '
    'n=${taken:-$n}; test -z "$n" || small "$1/submissions/$n/request.json" 2>/dev/null || true'
)
"""run.json and the newest request.json that was not refused, of the run directory $1, with a record separator
between."""


@dataclass(frozen=True)
class Recorded:
    """A run as it was written down."""

    document: Mapping[str, Any]
    """run.json."""
    request: Mapping[str, Any]
    """request.json of its newest submission; empty when there is none."""
    folder: Path | None
    """Where it lies here."""
    run: LedgerRun | None
    """What the ledger knows of it."""


def unreadable(run: LedgerRun) -> RunError:
    """The error for a run whose run.json on its cluster is none."""
    return RunError(
        f"{run.run_id}: {run.run_dir}/run.json on {run.cluster} cannot be read",
        hint="copy it back from an earlier `clusterkit sync-results`, or start a new run",
    )


def read_recorded(
    results: Path, ledger: Ledger, name: str, transport_to: Callable[[str], Transport]
) -> Recorded:
    """Read run.json and the newest request.json of a run.

    Args:
        results: the project's results folder.
        ledger: knows the runs that are not here.
        name: a run, or a folder with one.
        transport_to: connects to a cluster by its name.

    Raises:
        RunError: the run is not known, or is gone.
        TransportError: it is not here and its cluster cannot be reached.
    """
    folder = pulled_run(results, name, ledger)
    if folder is None:
        run = ledger.find_one(name)  # what is wrong with the name shows here
        done = transport_to(run.cluster).run(["sh", "-c", _READ, "sh", run.run_dir], check=False)
        text, _, request = done.stdout.decode("utf-8", "surrogateescape").partition("\x1e")
        if done.returncode != 0:
            gone = "No such file" in done.error_text
            raise RunError(
                f"{run.run_id}: there is no run directory {run.run_dir} on {run.cluster}"
                if gone
                else f"{run.run_id}: {run.run_dir} on {run.cluster} cannot be read: {done.reason}",
                hint="`clusterkit status` tells what became of it",
            )
        document = parse_object(text)
        if document is None:
            raise unreadable(run)
        return Recorded(document, parse_object(request) or {}, None, run)
    directory = read_run_dir(folder)
    return Recorded(directory.document, newest_request(folder), folder, ledger.get(directory.run_id))
