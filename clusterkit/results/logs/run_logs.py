"""Joins the log files of one run into one series of rows, as their bytes arrive."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations
from pathlib import Path

from clusterkit.results.logs.find import FORMATS, MOST_FILES, choose, files_below, format_of, is_start
from clusterkit.results.logs.format import LogFormat, UnreadableLogError
from clusterkit.results.logs.kept import BUDGET, KeptRows
from clusterkit.results.metrics import KINDS, LOG, METRICS, MetricRow
from clusterkit.untrusted import can_be_shown, number, open_regular, parse_object, read_object

MOST_BYTES = 256 << 20
"""Bytes of a run's log files, besides metrics.jsonl, that are read."""
MOST_NAMES = 2000
"""Most names of numbers in a run's log files; others are left out, except in metrics.jsonl."""
_CHUNK = 1 << 20
_NAMED = 5
"""Most files that a message names."""
_SUFFIX = re.compile(r"\.(csv|tsv|jsonl|wandb)$")


@dataclass
class _LogFile:
    """A file that is read."""

    format: LogFormat
    names: dict[str, None] = field(default_factory=dict)
    """Names of its numbers."""
    bytes: int = 0
    closed: bool = False
    """Whether no more of it is read."""


class RunLogs:
    """The rows of a run, in bounded memory.

    Args:
        step: the name of the steps in files other than metrics.jsonl; None finds it.
        only: the metrics to keep; without any all.
        budget: see `KeptRows`.
    """

    def __init__(self, step: str | None = None, *, only: Sequence[str] = (), budget: int = BUDGET) -> None:
        self._step, self._only = step, only
        self._kept = KeptRows(budget)
        self._files: dict[str, _LogFile] = {}
        self._starts: dict[str, float] = {}
        self._names = 0
        self.faults: dict[str, str] = {}
        """Why files, by path, are not read, or not to their end."""

    def feed(self, path: str, data: bytes) -> None:
        """Takes in the next bytes of a file, by its path inside the run."""
        if is_start(path):
            started = number((parse_object(data) or {}).get("started"))
            self._starts |= {} if started is None else {path: started}
            return
        if path not in self._files and (kind := format_of(path)):
            self._files[path] = _LogFile(kind(path, self._step))
        file = self._files[path]
        if file.closed:
            return
        taken = sum(file.bytes for file in self._files.values())
        data = data if path == METRICS else data[: MOST_BYTES - taken]
        file.bytes += 0 if path == METRICS else len(data)
        try:
            self._add(path, file.format.feed(data))
            if path != METRICS and taken + len(data) >= MOST_BYTES:
                raise UnreadableLogError(f"the logs have more than {MOST_BYTES >> 20} MiB")
        except UnreadableLogError as error:
            file.closed = True
            self.faults |= {path: str(error)} if str(error) else {}

    @property
    def paths(self) -> list[str]:
        """The files that were read."""
        return list(self._files)

    def closed(self, path: str) -> bool:
        """Whether no more of a file is read."""
        return path in self._files and self._files[path].closed

    def restart(self, path: str) -> None:
        """Forgets what a file had, which begins anew."""
        file = self._files.pop(path, None)
        self._names -= len(file.names) if file else 0
        self.faults.pop(path, None)
        self._kept.drop(path)

    @property
    def rows(self) -> tuple[MetricRow, ...]:
        """The kept rows of metrics.jsonl, then those of other files."""
        return (*self._kept.rows(METRICS), *self.others)

    @property
    def others(self) -> tuple[MetricRow, ...]:
        """The kept rows of other files, under names that tell these apart; what two have is there once."""
        dated = self._dated()
        names = self._told_apart(dated)
        renamed = (_renamed(row, names[source]) for source, rows in dated.items() for row in rows)
        return tuple(row for row in renamed if row.values)

    @property
    def names(self) -> list[str]:
        """The names of numbers, as files have them."""
        return sorted({name for file in self._files.values() for name in file.names})

    def _add(self, path: str, rows: Iterable[MetricRow]) -> None:
        file = self._files[path]
        for row in rows:
            if path != METRICS:
                row = self._named(path, file, replace(row, kind=LOG))
            elif row.kind in KINDS:
                row = self._named(path, file, row)
            if row.values or (path == METRICS and not self._only):
                self._kept.add(path, row, 0 if self._only else file.format.row_bytes)

    def _named(self, path: str, file: _LogFile, row: MetricRow) -> MetricRow:
        """Returns a row without the values that are not kept, and notes the names."""
        for name in row.values:
            if name in file.names or row.logged(name) is None:
                continue
            if self._names < MOST_NAMES:
                file.names[name] = None
                self._names += 1
            elif path != METRICS:
                self.faults[path] = f"the logs have more than {MOST_NAMES:,} names of numbers"
        if self._only:
            wanted = {name: value for name, value in row.values.items() if self._may_be(name)}
        elif path != METRICS:
            wanted = {name: value for name, value in row.values.items() if name in file.names}
        else:
            return row
        return row if len(wanted) == len(row.values) else replace(row, values=wanted)

    def _may_be(self, name: str) -> bool:
        """Whether a name may become that of the wanted metric once files are told apart."""
        return any(f"/{wanted}".endswith(f"/{name}") for wanted in self._only)

    def _dated(self) -> dict[str, list[MetricRow]]:
        """Returns the rows of other files by source, with their attempts and steps in the run."""
        starts = sorted(self._starts.values())
        files: dict[str, list[str]] = {}
        for path in sorted(self._files.keys() - {METRICS}):
            files.setdefault(self._files[path].format.source(path), []).append(path)
        dated = {}
        for source, paths in files.items():
            parts = [self._kept.rows(path) for path in paths]
            together = len(parts) > 1 and source.endswith("/monitor")
            rows = _side_by_side(parts) if together else chain.from_iterable(parts)
            dated[source] = list(_with_attempts(rows, starts))
        return dated

    def _told_apart(self, dated: Mapping[str, Sequence[MetricRow]]) -> dict[str, dict[str, str]]:
        """Returns for each source the new names of its numbers, without those that count from another format.

        A number that a format has once may be a summary, such as a last line with the result: another
        format that has the curve goes before it.
        """
        kinds = [kind for _, kind in FORMATS]
        kind_of = {
            file.format.source(path): kinds.index(type(file.format)) for path, file in self._files.items()
        }
        has = {
            source: Counter(chain.from_iterable(row.values for row in rows)) for source, rows in dated.items()
        }
        attempts = {source: {row.attempt for row in rows} for source, rows in dated.items()}
        taken = self._files[METRICS].names if METRICS in self._files else {}
        names: dict[str, dict[str, str]] = {source: {} for source in dated}
        for name in dict.fromkeys(chain.from_iterable(has.values())):
            holders: dict[int, list[str]] = {}
            for source in dated:
                if name in has[source] and name not in taken:
                    holders.setdefault(kind_of[source], []).append(source)
            rank = {
                kind: (sum(has[source][name] for source in mine) == 1, kind) for kind, mine in holders.items()
            }
            sources = holders[min(rank, key=rank.__getitem__)] if rank else []
            apart = all(attempts[a].isdisjoint(attempts[b]) for a, b in combinations(sources, 2))
            labels = dict.fromkeys(sources, "") if apart else _labels(sources)
            for source, label in labels.items():
                names[source][name] = f"{label}/{name}" if label else name
        return names


def read_run(run_dir: Path, *, own: bool, step: str | None = None) -> RunLogs:
    """Reads the logs of a pulled run.

    Args:
        run_dir: of the run.
        own: whether it is of a program of the user's own; the bundled trainer's metrics.jsonl has all.
        step: see `RunLogs`.
    """
    logs = RunLogs(step)
    paths, more = choose(files_below(run_dir) if own else [METRICS])
    last = next((run_dir / path for path in reversed(paths) if is_start(path)), None)
    ended = read_object(last.with_name("exit.json")) if last else None
    # The last line of a table may lack its end; one that was cut short would be another number.
    whole = (".jsonl", ".csv", ".tsv") if ended and ended.get("why") == "completed" else ".jsonl"
    for path in paths:
        with suppress(OSError), open_regular(run_dir / path) as file:
            for data in iter(partial(file.read, _CHUNK), b""):
                logs.feed(path, data)
                if logs.closed(path):
                    break
            logs.feed(path, b"\n" if path.endswith(whole) else b"")
    if more:
        logs.faults[f"{more:,} more files"] = f"more than {MOST_FILES} of a run"
    return logs


def fault_words(faults: Mapping[str, str]) -> list[str]:
    """Says which log files are not read, or not to their end."""
    named = {path if can_be_shown(path) else ascii(path)[1:-1]: why for path, why in faults.items()}
    lines = [f"{path} is not read to its end: {why}" for path, why in list(named.items())[:_NAMED]]
    return [*lines, f"and {len(named) - _NAMED} more log files"] if len(named) > _NAMED else lines


def _with_attempts(rows: Iterable[MetricRow], starts: Sequence[float]) -> Iterator[MetricRow]:
    """Yields the rows of a source with their attempts.

    A row's time tells its attempt. Without times, steps that go back begin another attempt, as long as there
    are any; in the last one, steps that begin anew, such as those of each epoch, go on counting. Only rows
    with the same names are compared: a program may count some in episodes and others in steps.
    """
    attempt, behind = 0, 0
    reached: dict[tuple[str, ...], int] = {}
    for row in rows:
        names = tuple(row.values)
        last = reached.get(names, row.step)
        if row.time and starts:
            attempt = max(0, bisect_right(starts, row.time) - 1)
        elif row.step < last and (not starts or attempt + 1 < len(starts)):
            attempt, behind = attempt + 1, 0
            reached.clear()
        elif max(row.step, 2 * row.step) < last:
            behind += last + (row.step == 0)
            reached.clear()
        step, reached[names] = row.step + behind, row.step
        same = row.attempt == attempt and row.step == step
        yield row if same else replace(row, attempt=attempt, step=step)


def _side_by_side(parts: Sequence[Sequence[MetricRow]]) -> Iterator[MetricRow]:
    """Yields the rows of environments that step together, each at the sum of their steps."""
    reached = [0] * len(parts)
    timed = ((row.time, place, row) for place, rows in enumerate(parts) for row in rows)
    for _, place, row in sorted(timed, key=lambda item: item[:2]):
        reached[place] = row.step
        yield replace(row, step=sum(reached))


def _renamed(row: MetricRow, names: Mapping[str, str]) -> MetricRow:
    if all(names.get(name) == name for name in row.values):
        return row
    values = {new: value for name, value in row.values.items() if (new := names.get(name)) is not None}
    return replace(row, values=values)


def _labels(sources: Sequence[str]) -> dict[str, str]:
    """Returns what tells paths apart: their parts without those that all begin or end with."""
    parts = {source: _SUFFIX.sub("", source).split("/") for source in sources}
    for place in (0, -1):
        while all(parts.values()) and len({names[place] for names in parts.values()}) == 1:
            for names in parts.values():
                del names[place]
    return {source: "/".join(names) for source, names in parts.items()}
