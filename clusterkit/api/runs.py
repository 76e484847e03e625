"""Runs as a Python program has them, and tables of what is known of them."""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from clusterkit.backends.jobs import JobState
from clusterkit.commands.cancel import cancel_runs
from clusterkit.commands.curves import curves_of
from clusterkit.commands.notifier import Notifier
from clusterkit.commands.sync import SyncRequest, sync_results
from clusterkit.commands.why import Shared, why, why_group
from clusterkit.errors import ClusterkitError, RunError, SchedulerError, TransportError
from clusterkit.project import open_ledger
from clusterkit.results.metrics import meant, no_such_metric, own_names
from clusterkit.results.selection import Checkpoints
from clusterkit.results.series import series
from clusterkit.runs.selection import Selection
from clusterkit.runs.status import StatusRow, query_runs
from clusterkit.runs.watching import watch
from clusterkit.units import plural
from clusterkit.untrusted import read_object, table_of_texts

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.transport.base import ProgressCallback


class Table(list[dict[str, Any]]):
    """Rows of values by name; a row lacks the names that it has no value of."""

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The values of each name, one for each row; None where the row has none."""
        names = dict.fromkeys(name for row in self for name in row)
        return {name: [row.get(name) for row in self] for name in names}

    def to_pandas(self) -> Any:
        """Returns a pandas.DataFrame.

        Raises:
            ClusterkitError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ClusterkitError("pandas is not installed", hint="pip install pandas") from None
        return pandas.DataFrame(self)


class Runs(Sequence["Runs"]):
    """One run or several; each of them alone by its place or in a loop.

    Raises:
        RunError: there is none.
    """

    def __init__(
        self,
        settings: Settings,
        runs: Sequence[LedgerRun],
        values: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        if not runs:
            raise RunError("there is no run", hint="`submit` makes one")
        self._settings, self._runs, self._values = settings, tuple(dict.fromkeys(runs)), values

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the runs."""
        return tuple(run.run_id for run in self._runs)

    @property
    def name(self) -> str:
        """The id of the run, or of the group if they are of one; else how many they are."""
        groups = {run.group or run.run_id for run in self._runs}
        return self.ids[0] if len(self) == 1 else groups.pop() if len(groups) == 1 else f"{len(self)} runs"

    def __repr__(self) -> str:
        return f"<{plural(len(self), 'run')}: {self.name}>" if len(self) > 1 else f"<run {self.name}>"

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, place: int) -> Runs: ...

    @overload
    def __getitem__(self, place: slice) -> Runs: ...

    def __getitem__(self, place: int | slice) -> Runs:
        runs = self._runs[place] if isinstance(place, slice) else [self._runs[place]]
        return Runs(self._settings, runs, self._values)

    def status(self) -> Table:
        """Returns a row for each run, with the values that `status --json` prints (docs/status.md).

        Raises:
            ClusterkitError: as `clusterkit status` fails.
        """
        with self._watching() as (ledger, notifier):
            report = query_runs(
                self._settings, ledger, names=self.ids, selection=Selection(), ended=notifier.tell
            )
        return Table(row.as_object() for row in report.rows)

    def wait(
        self,
        *,
        timeout: float | None = None,
        check: bool = True,
        tell: Callable[[str], object] | None = None,
    ) -> Table:
        """Waits until all runs have ended; returns their rows as `status` does. Ctrl-C ends only the waiting.

        Args:
            timeout: seconds; None is no limit.
            check: whether a run that does not complete is an error.
            tell: called with a line when the state or progress of a run changes, such as `print`.

        Raises:
            RunError: a run has not completed, or not ended in time.
            TransportError: a cluster cannot be asked any more.
            ClusterkitError: as `clusterkit status` fails.
        """
        until = clock.monotonic() + timeout if timeout is not None else float("inf")
        told: dict[str, str] = {}
        with self._watching() as (ledger, notifier):
            for look in watch(self._settings, ledger, names=self.ids, ended=notifier.tell):
                lines = {row.run.run_id: _line(row) for row in look.report.rows}
                for run_id in lines if tell else ():
                    if tell and told.get(run_id) != lines[run_id]:
                        tell(lines[run_id])
                told = lines
                if not look.over and clock.monotonic() > until:
                    raise RunError(f"{self.name} has not ended after {timeout:g} s", hint="it goes on")
        for cluster, cause in look.report.silent.items():
            raise TransportError(f"{cluster}: {cause}", hint="wait again once it answers: the runs go on")
        short = [row for row in look.report.rows if row.state.state is not JobState.COMPLETED]
        if short and check:
            of_all = f"{len(short)} of {len(self)} runs did not complete: " if len(self) > 1 else ""
            raise RunError(f"{of_all}{_line(short[0])}", hint="`.why()` tells the cause")
        return Table(row.as_object() for row in look.report.rows)

    def metrics(self, *names: str) -> Table:
        """Returns what the runs have logged so far: a row for each run and step.

        A row has `run_id`, `seed`, the swept values, `step`, and the metrics that were logged there.

        Args:
            names: of metrics; none for all.

        Raises:
            RunError: no run has logged a metric of that name.
            ClusterkitError: as `clusterkit curves` fails.
        """
        (looks,) = curves_of(self._settings, self._runs, follow=False, bar=no_bar)
        logged = [own_names(look.rows) for look in looks]
        known = {name for mine in logged for name in mine}
        for name in names:
            if meant(name, known) not in known:
                raise no_such_metric(name, known)
        table = Table()
        for look, mine in zip(looks, logged, strict=True):
            steps: dict[int, dict[str, Any]] = {}
            for name in names or mine:
                for step, value in series(look.rows, meant(name, known)).points:
                    steps.setdefault(step, {})[name] = value
            head = {"run_id": look.run.run_id, "seed": look.run.seed, **self._swept(look.run)}
            table += [{**head, "step": step, **steps[step]} for step in sorted(steps)]
        return table

    def why(self) -> Table:
        """Returns why the runs wait, failed or are silent, a row for each cause (docs/why.md).

        A row has the values that `why --json` prints of one of its runs, and `run_ids`: all of them.

        Raises:
            ClusterkitError: as `clusterkit why` fails.
        """
        with self._watching() as (ledger, _):
            runs = ledger.find(self.ids)
            if len(runs) == 1:
                causes: Sequence[Shared] = [Shared(why(self._settings, ledger, runs[0]), self.ids)]
            else:
                causes = why_group(self._settings, ledger, runs, bar=no_bar).shared
        return Table({**one.exemplar.as_object(), "run_ids": list(one.run_ids)} for one in causes)

    def sync(self, *, checkpoints: str = "last") -> list[Path]:
        """Brings the results home, as `clusterkit sync-results` does; returns the folder of each run.

        Args:
            checkpoints: "last", "best", "all" or "none".

        Raises:
            ClusterkitError: as `clusterkit sync-results` fails.
        """
        request = SyncRequest(names=self.ids, checkpoints=Checkpoints(checkpoints))
        with open_ledger(self._settings) as ledger:
            synced = sync_results(self._settings, request, ledger, bar=no_bar)
        for fault in synced.faults():
            raise fault
        return [synced.results / run.run_id for run in synced.runs]

    def cancel(self) -> Table:
        """Cancels those that have not ended; returns a row for each run, as `cancel --json` prints it.

        Raises:
            ClusterkitError: as `clusterkit cancel` fails.
        """
        with open_ledger(self._settings) as ledger:
            result = cancel_runs(self._settings, ledger, ledger.find(self.ids), bar=no_bar)
        for cluster, cause in result.silent.items():
            raise TransportError(f"{cluster} gives no answer, its runs continue: {cause}")
        for run in result.unclear:
            raise SchedulerError(f"{run.run_id} is still being submitted", hint="try again in a minute")
        return Table(result.as_objects())

    @contextmanager
    def _watching(self) -> Iterator[tuple[Ledger, Notifier]]:
        """Opens the ledger, and what tells of runs that are found to have ended."""
        with open_ledger(self._settings, only_reads=True) as ledger:
            notifier = Notifier(self._settings, ledger)
            yield ledger, notifier
        for fault in notifier.faults:
            warnings.warn(fault, stacklevel=4)

    def _swept(self, run: LedgerRun) -> Mapping[str, Any]:
        """Returns the swept values of a run that was submitted here or synced; none of others."""
        values = self._values.get(run.run_id)
        if values is None:
            spec = read_object(self._settings.project.results / run.run_id / "run.json") or {}
            values = table_of_texts(spec.get("sweep")) or {}
        return {name: _as_written(value) for name, value in values.items()}


def _as_written(text: str) -> int | float | str:
    """Returns the number that a text is; any other text as it is."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _line(row: StatusRow) -> str:
    state = row.state
    progress = f"  {state.progress:.0%}" if state.progress is not None else ""
    return f"{row.run.run_id}  {state.state.value}{progress}{f'  {state.why}' if state.why else ''}"


@contextmanager
def no_bar(*_: object) -> Iterator[ProgressCallback]:
    """Takes the place of a progress bar."""
    yield lambda _: None
