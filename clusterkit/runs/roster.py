"""Lists the run directories of a work root, reads their run.json and adopts unknown runs into the ledger.

This restores lost ledgers and finds runs that another laptop submitted or resumed.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.probes import MARK, Probe, ask, sections
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.record import RunRecord, records
from clusterkit.runs.selection import submitted
from clusterkit.runs.spec import ledger_row
from clusterkit.transport.base import Transport
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

# Shell builtins only, like the fragment that reads the records.
_LIST = rf"""
ck_again() {{ [ ! -e "$1/submissions/$2" ] || printf '%s\n' "{MARK} again $1"; }}
printf '%s\n' "{MARK} begin $ck_runs"
for ck_dir in "$ck_runs"/*/; do
  ck_dir=${{ck_dir%/}}
  ck_dir=${{ck_dir##*/}}
  case $ck_dir in
    [!A-Za-z0-9]* | *[!A-Za-z0-9_.-]*) ;; # no run id
    *) printf '%s\n' "{MARK} run $ck_dir" ;;
  esac
done
"""

# `sed` drops the diff of the working tree, which is on a line of its own and may be a megabyte. A run that
# has moved to another cluster has a moved.json and is skipped.
_DETAIL = rf"""
ck_detail() {{
  [ ! -e "$1/moved.json" ] || return 0
  [ -f "$1/run.json" ] || return 0
  printf '%s\n' "{MARK} detail $1"
  head -c {DOCUMENT_BYTES} "$1/run.json" 2>/dev/null | sed '/^    "diff": "/s/: ".*"/: null/'
}}
"""


_DOCUMENT = f"""
ck_begin moved; [ ! -e "$ck_here/moved.json" ] || echo yes; ck_end 0
[ -e "$ck_here/run.json" ] || exit
ck_begin document; [ ! -f "$ck_here/run.json" ] || head -c {DOCUMENT_BYTES} "$ck_here/run.json"; ck_end 0
"""


@dataclass(frozen=True)
class RunDocument:
    """A run directory's run.json."""

    exists: bool
    """Whether run.json exists."""
    moved: bool
    """Whether the run has moved to another cluster."""
    content: Mapping[str, Any] | None
    """The content of run.json; None if it cannot be read or is not a JSON object."""


@dataclass(frozen=True)
class Roster:
    """The contents of a work root."""

    runs: str
    """Absolute path of the folder of the run directories."""
    names: tuple[str, ...]
    """Names of all run directories."""
    again: tuple[str, ...]
    """Run directories of ended runs that were resubmitted."""


def roster(runs: str, ended: Iterable[tuple[str, int]]) -> Probe[Roster]:
    """Returns a probe that lists run directories without starting a process.

    Args:
        runs: the folder of the run directories, as one shell word.
        ended: the run directory and newest known submission number of each ended run.
    """
    checks = [f"ck_again {shlex.quote(path)} {number + 1}" for path, number in ended]
    return Probe("roster", "\n".join([f"ck_runs={runs}", _LIST, *checks]), parse_roster)


def parse_roster(stdout: str) -> Roster:
    """Parses the probe's output and ignores other text; truncated output yields fewer runs."""
    lines = [line for line in stdout.split("\n")[:-1] if line.startswith(MARK)]
    words = [line.removeprefix(f"{MARK} ").partition(" ") for line in lines]
    names = [name for kind, _, name in words if kind == "run"]
    again = [path for kind, _, path in words if kind == "again"]
    return Roster(next((path for kind, _, path in words if kind == "begin"), ""), tuple(names), tuple(again))


def details(run_dirs: Sequence[str]) -> Probe[dict[str, Mapping[str, Any]]]:
    """Returns a probe that reads the run.json of some runs, without the diff."""
    calls = [f"ck_detail {shlex.quote(path)}" for path in run_dirs]
    return Probe("details", "\n".join([_DETAIL, *calls]), parse_details)


def parse_details(stdout: str) -> dict[str, Mapping[str, Any]]:
    """Parses the probe's output into run.json by run directory, without unreadable ones."""
    details: dict[str, Mapping[str, Any]] = {}
    for chunk in stdout.split(f"{MARK} detail ")[1:]:
        path, _, rest = chunk.partition("\n")
        if (value := parse_object(rest.partition(MARK)[0])) is not None:
            details[path] = value
    return details


def document(run_dir: str, number: int = 0) -> Probe[RunDocument]:
    """Returns a probe that reads the run.json of a run directory.

    Args:
        run_dir: absolute path.
        number: tells it from other runs' in the same round trip.
    """
    return Probe(f"document-{number}", f"ck_here={shlex.quote(run_dir)}\n{_DOCUMENT}", _parse_document)


def _parse_document(text: str) -> RunDocument:
    told = {section.name: section.text for section in sections(text)}
    content = told.get("document")
    return RunDocument(
        content is not None,
        told.get("moved", "").strip() == "yes",
        parse_object(content) if content else None,
    )


def adopt(
    settings: Settings, ledger: Ledger, cluster: Cluster, transport: Transport, roster: Roster
) -> list[LedgerRun]:
    """Records this project's runs that the ledger does not know, in one round trip if there are any.

    Runs of other projects in the same work root, and runs that moved to another cluster, are remembered as
    such and not read again.

    Args:
        settings: the project's settings.
        ledger: receives the new runs.
        cluster: the cluster of the work root.
        transport: the connection to the cluster.
        roster: the run directories on the cluster.

    Returns:
        The new runs, oldest first, with their states still unknown.

    Raises:
        TransportError, RunError: the answer was missing or incomplete.
    """
    known = ledger.ids() | ledger.strangers(cluster.name)
    unknown = [f"{roster.runs}/{name}" for name in roster.names if name not in known]
    if not unknown:
        return []
    documents, files = details(unknown), records(unknown)
    answers = ask(transport, documents, files, timeout=300.0)
    described, read = answers.of(documents), answers.of(files)
    found, strangers = [], []
    for path in unknown:
        run = _entry(described.get(path, {}), path, cluster, read[path])
        theirs = described.get(path, {}).get("project") or settings.project.name
        if run is None or theirs != settings.project.name:
            strangers.append(path.rpartition("/")[2])
        else:
            found.append(run)
    at = _times(found, read)
    found.sort(key=lambda run: (at[run.run_id], run.run_id))
    ledger.add_all(found, at)
    ledger.add_strangers(cluster.name, strangers)
    return found


def _times(runs: Sequence[LedgerRun], read: Mapping[str, RunRecord]) -> dict[str, float]:
    """Returns when runs, or the groups that they belong to, were submitted, by run id.

    The cluster's clock says how long ago that was, as the clocks of two laptops may differ; the recorded time
    counts where the scheduler was never asked. Unix seconds of this machine's clock.
    """
    moment, known = time.time(), dict[str, float]()
    for run in runs:
        record, whole = read[run.run_dir], run.group or run.run_id
        asked = next((each.asked for each in record.submissions if each.number == 0), None)
        if asked is not None and record.now is not None:
            known[whole] = min(known.get(whole, moment), moment - (record.now - asked))
    return {run.run_id: known.get(run.group or run.run_id, submitted(run).timestamp()) for run in runs}


def _entry(detail: Mapping[str, Any], path: str, cluster: Cluster, record: RunRecord) -> LedgerRun | None:
    """Returns a run's ledger row; None if clusterkit did not write its run.json."""
    name = path.rpartition("/")[2]
    newest, started = record.submission, record.started
    start = (started.start if started else None) or {}
    job_id = newest.job_id(backend_of(cluster)) if newest else None
    if job_id is None and (newest is None or start.get("submission", 0) == newest.number):
        job_id = str(start.get("job_id") or "")
    try:
        run = replace(
            ledger_row(detail, newest, cluster=cluster.name, run_dir=path),
            job_id=job_id or "",
            state=JobState.UNKNOWN if job_id else JobState.SUBMITTING,
            part=_part(record),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return run if run.run_id == name else None


def _part(record: RunRecord) -> int:
    """Returns the number of the run's submission within its group."""
    first = next((each for each in record.submissions if each.number == 0), None)
    return first.part if first else 0
