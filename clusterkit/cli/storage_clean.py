"""`clusterkit storage clean`."""

from __future__ import annotations

import json
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from clusterkit import folders
from clusterkit.cli import options
from clusterkit.cli.storage_prune import may_remove
from clusterkit.cli.ui.console import err, note, out, print_document, transfer_bar, warn, warn_of_silence
from clusterkit.cli.ui.lines import plain_table
from clusterkit.errors import ClusterkitError, ConfigError, NotAllowedError, RunError, TransportError
from clusterkit.project import load, open_ledger
from clusterkit.results.cleaning import MARK, cleaning, orders, removable, remove_argv
from clusterkit.results.code_copies import NO_CODE, code_argv, parse_code
from clusterkit.results.listing import RemoteFile
from clusterkit.results.selection import CLEANED
from clusterkit.runs.pieces import Piece, read_pieces
from clusterkit.site import connected
from clusterkit.transport.base import TransferProgress
from clusterkit.units import format_bytes, parse_duration, plural
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object

if TYPE_CHECKING:
    from rich.console import Console

    from clusterkit.config.settings import Settings
    from clusterkit.results.cleaning import Removable
    from clusterkit.results.code_copies import CodeCopy
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.transport.base import ProgressCallback, Transport


def storage_clean(
    runs: options.Runs = None,
    cluster: options.OnlyCluster = None,
    older: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs that have not changed for this time, e.g. 30d."),
    ] = None,
    last_checkpoint: Annotated[
        bool,
        typer.Option("--last-checkpoint", help="Also the newest checkpoint, from which a run could resume."),
    ] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Delete from the cluster what has come home.

    Deletes a file of an ended run only if its SHA-256 equals that of the local copy. Records, metrics and
    short logs stay. The copy of the code that a killed run has left goes, too. Asks first.

    Examples:
      # what would be deleted
      clusterkit storage clean --dry-run
      # only runs unchanged for 30 days, without asking
      clusterkit storage clean --older 30d --yes

    See also: clusterkit sync-results, clusterkit storage prune
    """
    try:
        seconds = float(parse_duration(older)) if older else None
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--older: {error}", hint="write a time, e.g. 30d or 12h") from None
    request = CleanRequest(tuple(runs or ()), cluster, last_checkpoint, seconds)
    settings = load(config)
    with open_ledger(settings, of=runs or ()) as ledger:
        agrees = ask_first(err if as_json else out, dry_run=dry_run, yes=yes)
        done = clean_storage(settings, request, ledger, agrees=agrees)
    (print_json if as_json else show_cleaned)(done)
    if done.silent or done.failed:
        raise typer.Exit(TransportError.exit_code)


Agree = Callable[[Sequence["Removables"]], bool]
"""Called with what can be removed; returns whether to remove it."""


@dataclass(frozen=True)
class CleanRequest:
    """The user's options."""

    names: tuple[str, ...] = ()
    """Runs, as `Ledger.find` takes them; empty means all ended ones."""
    cluster: str | None = None
    everything: bool = False
    """Whether to remove each run's newest checkpoint, too."""
    older: float | None = None
    """Only runs unchanged for this many seconds."""


@dataclass(frozen=True)
class Removables:
    """The files of one run that can be removed."""

    run: LedgerRun
    removable: Removable


@dataclass
class Cleaned:
    """The result of a cleaning."""

    found: list[Removables] = field(default_factory=list)
    """Runs that were examined."""
    left: dict[str, str] = field(default_factory=dict)
    """Run id -> why none of its files are removed."""
    failed: dict[str, str] = field(default_factory=dict)
    """Run id -> the cluster's error message if some files could not be removed."""
    silent: dict[str, str] = field(default_factory=dict)
    """Cluster -> why it did not answer."""
    agreed: bool = False
    freed: dict[str, int] = field(default_factory=dict)
    """Run id -> bytes removed."""
    different: list[str] = field(default_factory=list)
    """Files kept because the cluster's copy differs from the local one."""


def clean_storage(settings: Settings, request: CleanRequest, ledger: Ledger, *, agrees: Agree) -> Cleaned:
    """Removes files of ended runs from clusters if the results folder has identical copies.

    The cluster removes each file right after comparing it with the local copy's SHA-256; run.json, records,
    metrics and short logs are kept. The copy of the code that a killed run has left goes, too, as far as the
    program has not changed it. Safe to interrupt and to repeat.

    Args:
        settings: of the project.
        request: the runs to clean.
        ledger: of the project; new states are recorded.
        agrees: called with what can be removed; nothing is removed unless it returns true.

    Raises:
        RunError: a run is unknown, there are no runs, or the results folder is the cluster's runs folder.
        ConfigError: the cluster is unknown.
        TransportError: a connection was lost; repeat the command to continue.
    """
    from clusterkit.results.places import choose_runs, place

    if request.cluster:
        settings.cluster(request.cluster)  # an unknown name gets a suggestion
    runs = choose_runs(ledger, request.names, request.cluster)
    result = Cleaned()
    with ExitStack() as stack:
        places: list[tuple[Transport, str, list[Removables]]] = []
        for (cluster, root), group in groupby(sorted(runs, key=place), key=place):
            try:
                transport = stack.enter_context(connected(settings.cluster(cluster)))
                mine = list(group)
                with transfer_bar(f"{len(mine):,} runs on {cluster}", None):
                    found = _look(settings, request, ledger, transport, root, mine, result)
            except NotAllowedError:
                raise
            except ClusterkitError as error:
                result.silent[cluster] = error.cause
                continue
            places.append((transport, root, found))
            result.found += found
        going = [one for one in result.found if one.removable.count]
        result.agreed = bool(going) and agrees(result.found)
        if result.agreed:
            for transport, root, found in places:
                _remove(transport, root, settings.project.results, found, result)
                _remove_code(transport, root, found, result)
    return result


def _look(
    settings: Settings,
    request: CleanRequest,
    ledger: Ledger,
    transport: Transport,
    root: str,
    runs: Sequence[LedgerRun],
    result: Cleaned,
) -> list[Removables]:
    """Returns the removable files of ended runs; for other runs the reason is recorded in `result`."""
    from clusterkit.results.pull import list_runs
    from clusterkit.runs.observe import Observer
    from clusterkit.runs.selection import known_state, settled
    from clusterkit.runs.status import ask_cluster

    if not all(map(settled, runs)):
        observer = Observer(settings.cluster(runs[0].cluster), transport)
        ask_cluster(settings, ledger, observer, runs, search=False)
        known = {run.run_id: run for run in ledger.runs()}
        runs = [known.get(run.run_id, run) for run in runs]
    ended = [run for run in runs if settled(run)]
    if request.names:
        states = {run.run_id: known_state(run).state for run in runs if not settled(run)}
        result.left |= {run_id: f"it is {state} and may still change" for run_id, state in states.items()}
    if not ended:
        return []
    listing = list_runs(transport, root, [run.run_id for run in ended])
    files: dict[str, list[RemoteFile]] = defaultdict(list)
    for file in listing.files:
        files[file.run_id].append(file)
    found = []
    for run in ended:
        mine = files[run.run_id]
        if request.older is not None and _age(mine) < request.older:
            continue
        if run.run_id not in listing.run_ids:
            if request.names:
                result.left[run.run_id] = "it is not on the cluster any more"
            continue
        results = settings.project.results
        found.append(Removables(run, removable(run.run_id, mine, results, everything=request.everything)))
    numbers = {one.run.run_id: one.removable.submissions for one in found}
    copies, _ = _code(transport, "count", root, numbers)
    return [
        replace(one, removable=replace(one.removable, code=copies.get(one.run.run_id, NO_CODE)))
        for one in found
    ]


def _code(
    transport: Transport, what: Literal["count", "remove"], root: str, numbers: Mapping[str, int]
) -> tuple[dict[str, CodeCopy], dict[str, str]]:
    """Returns the copied code of some runs, and why it was not removed."""
    if not numbers:
        return {}, {}
    return parse_code(transport.run(code_argv(what, root, numbers), timeout=None, check=False).text)


def _remove_code(transport: Transport, root: str, found: Sequence[Removables], result: Cleaned) -> None:
    before = {one.run.run_id: one.removable for one in found if one.removable.code.files}
    going = {run_id: one.submissions for run_id, one in before.items() if run_id not in result.left}
    copies, left = _code(transport, "remove", root, going)
    result.left |= left
    for run_id in copies.keys() & before.keys():
        freed = before[run_id].code.bytes - copies[run_id].bytes
        result.freed[run_id] = result.freed.get(run_id, 0) + freed


def _age(files: Sequence[RemoteFile]) -> float:
    """Returns the seconds since a file of the run last changed."""
    times = [file.mtime_ns for file in files if file.inside != CLEANED]
    return time.time() - max(times, default=0) / 1e9


def _remove(
    transport: Transport, root: str, results: Path, found: Sequence[Removables], result: Cleaned
) -> None:
    going = [one.removable for one in found if one.removable.files]
    if not going:
        return
    with transfer_bar("reading what is here", sum(one.bytes for one in going)) as progress:
        digests = _digests(results, going, progress)
    earlier = _earlier(transport, root, [one.run_id for one in going])
    by = f"{folders.user_name()}@{platform.node()}"
    entries = {one.run_id: cleaning(one, digests, by=by, time=time.time()) for one in going}
    stdin, numbered = b"", list[RemoteFile]()
    for one in going:
        mark = _document([*earlier[one.run_id], entries[one.run_id]])
        text, files = orders(one, digests, mark, first=len(numbered))
        stdin += text
        numbered += files
    with (
        transfer_bar(f"{transport.where} compares and removes files", None),
        tempfile.NamedTemporaryFile(dir=results, prefix=".clean-") as ours,
    ):
        argv = remove_argv(root, Path(ours.name).name)
        done = transport.run(argv, stdin=stdin, timeout=None, check=False)
    lines = done.text.splitlines()
    if "same" in lines:
        raise RunError(
            f"{results} is the folder of runs of {transport.where} itself: there is no second copy",
            hint="nothing was removed; set `results` of [project] to a folder of its own",
        )
    said = {line.removeprefix("removed ") for line in lines if line.startswith("removed ")}
    gone = {file.path for number, file in enumerate(numbered) if str(number) in said}
    unmarked = set()
    for line in lines:
        word, _, run_id = line.partition(" ")
        if word == "again":
            result.left[run_id] = "it was submitted again meanwhile"
        elif word == "unmarked":
            unmarked.add(run_id)
        elif word == "locked":
            name, _, words = run_id.partition(" ")
            result.failed[name] = words or "its folder is not writable"
    marks = ""
    for one in going:
        mine = [file for file in one.files if file.path in gone]
        result.freed[one.run_id] = sum(file.size for file in mine)
        if one.run_id in result.left or (len(mine) == len(one.files) and one.run_id not in unmarked):
            continue
        if one.run_id not in result.failed:
            result.different += [file.path for file in one.files if file.path not in gone]
        elif not mine:
            continue
        kept = entries[one.run_id] | {
            "files": {file.inside: entries[one.run_id]["files"][file.inside] for file in mine}
        }
        mark = _document([*earlier[one.run_id], *([kept] if mine else [])])
        marks += f"{one.run_id}\n{mark}\n"
    if marks:
        transport.run(["sh", "-c", MARK, "sh", root], stdin=marks.encode())
    if done.returncode != 0 or "end" not in lines:
        raise TransportError(
            f"{transport.where}: cleaning was interrupted: {done.reason}", hint="run the same command again"
        )


def _digests(results: Path, going: Sequence[Removable], progress: ProgressCallback) -> dict[str, str]:
    """Returns the SHA-256 of the local files by path, without unreadable ones, which stay on the cluster."""
    from clusterkit.results.check import sha256_of

    total = sum(one.bytes for one in going)
    found, done = {}, 0
    began = time.monotonic()
    for one in going:
        for file in one.files:
            try:
                found[file.path] = sha256_of(results / file.path)
            except OSError:
                continue
            done += file.size
            progress(TransferProgress(done, total, done / max(time.monotonic() - began, 1e-3)))
    return found


def _earlier(transport: Transport, root: str, run_ids: Sequence[str]) -> dict[str, list[Any]]:
    """Returns the entries of the cleaned.json of runs on the cluster, by run id; none without one."""
    texts = [b""] * len(run_ids)
    pieces = [Piece(f"{root}/{run_id}/{CLEANED}", most=DOCUMENT_BYTES) for run_id in run_ids]
    for chunk in read_pieces(transport, pieces):
        texts[chunk.number] += chunk.data
    entries = [(parse_object(text) or {}).get("cleanings") for text in texts]
    return {
        run_id: mine if isinstance(mine, list) else [] for run_id, mine in zip(run_ids, entries, strict=True)
    }


def _document(entries: Sequence[Any]) -> str:
    return json.dumps({"schema": 1, "cleanings": list(entries)})


_NAMED = 5
"""The maximum number of files to name."""


def ask_first(to: Console, *, dry_run: bool, yes: bool) -> Callable[[Sequence[Removables]], bool]:
    """Returns a callback that shows what would be removed, on `to`, and asks for confirmation."""

    def agrees(found: Sequence[Removables]) -> bool:
        to.print(_table(found))
        _say_what_stays(found)
        going = sum(one.removable.bytes for one in found)
        where = ", ".join(dict.fromkeys(one.run.cluster for one in found if one.removable.count))
        return may_remove("storage clean", going, where, dry_run=dry_run, yes=yes)

    return agrees


def show_cleaned(done: Cleaned) -> None:
    """Prints the outcome."""
    if done.agreed:
        count = sum(size > 0 for size in done.freed.values())
        out.print(f"{format_bytes(sum(done.freed.values()))} freed, of {plural(count, 'run')}")
    elif not any(one.removable.count for one in done.found):
        note("nothing to remove: the files on both sides are small, or needed to resume")
        _say_what_stays(done.found)
    for path in done.different[:_NAMED]:
        warn("kept, because it differs from the local copy:", f" {path}")
    if len(done.different) > _NAMED:
        warn(f"and {len(done.different) - _NAMED} more")
    for run_id, why in done.left.items():
        warn(f"{run_id} is left alone:", f" {why}")
    for run_id, why in done.failed.items():
        warn(f"{run_id} could not be cleaned:", f" {why}", colour="red")
    warn_of_silence(done.silent)


def print_json(done: Cleaned) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "carried_out": done.agreed,
            "freed_bytes": sum(done.freed.values()),
            "runs": [_object(one, done.freed.get(one.run.run_id, 0)) for one in done.found],
            "different": done.different,
            "left": done.left,
            "failed": done.failed,
            "silent": done.silent,
        }
    )


def _object(one: Removables, freed: int) -> dict[str, Any]:
    mine = one.removable
    return {
        "run_id": one.run.run_id,
        "cluster": one.run.cluster,
        "files": mine.count,
        "bytes": mine.bytes,
        "code_bytes": mine.code.bytes,
        "freed_bytes": freed,
        "last_checkpoint": mine.newest,
        "last_checkpoint_bytes": mine.newest_bytes,
        "absent_bytes": mine.absent_bytes,
    }


def _table(found: Sequence[Removables]) -> Table:
    table = plain_table("run", "goes", "files", "stays", right=("goes", "files"))
    for one in found:
        mine = one.removable
        if mine.count:
            saved = f"{mine.newest}  {format_bytes(mine.newest_bytes)}" if mine.newest else ""
            table.add_row(
                Text(one.run.run_id), format_bytes(mine.bytes), str(mine.count), Text(saved, style="dim")
            )
    return table


def _say_what_stays(found: Sequence[Removables]) -> None:
    newest = sum(one.removable.newest_bytes for one in found)
    absent = sum(one.removable.absent_bytes for one in found)
    if newest:
        note(f"{format_bytes(newest)} stay: the newest checkpoints (--last-checkpoint removes them, too)")
    if absent:
        note(
            f"{format_bytes(absent)} stay: not downloaded yet, or needed by what stays "
            "(`clusterkit sync-results --checkpoints all` downloads them)"
        )
