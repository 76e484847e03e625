"""The values of one metric of several runs, read from their cluster as they are logged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from clusterkit.results.growing import MetricsReader, read_metrics
from clusterkit.results.metrics import MetricRow, each
from clusterkit.results.series import Series, series
from clusterkit.transport.base import Transport


class _RunMetric:
    """One run's rows that have the metric, and the names of all numbers that it logs."""

    def __init__(self, run_dir: str, metric: str) -> None:
        self._metric = metric
        self.reader = MetricsReader(run_dir, self._add)
        self.rows: list[MetricRow] = []
        self.names: set[str] = set()

    def _add(self, lines: Iterable[bytes]) -> None:
        for row in each(lines):
            if row.kind in ("train", "eval"):
                self.names |= {name for name in row.values if row.logged(name) is not None}
                if self._metric in row.values:
                    self.rows.append(replace(row, values={self._metric: row.values[self._metric]}))


class MetricReader:
    """Reads a metric of runs on one cluster, each byte once."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._runs: dict[str, _RunMetric] = {}

    def read(self, transport: Transport, run_dirs: Iterable[str]) -> None:
        """Reads what was appended to the metrics of some runs since the last call.

        Raises:
            TransportError: the connection failed.
        """
        read_metrics(transport, [self._run(run_dir).reader for run_dir in run_dirs])

    def series(self, run_dir: str) -> Series:
        """Returns a run's values of the metric so far."""
        return series(self._run(run_dir).rows, self._metric)

    def names(self, run_dir: str) -> list[str]:
        """Returns the numbers that a run has logged so far."""
        return sorted(self._run(run_dir).names)

    def _run(self, run_dir: str) -> _RunMetric:
        if run_dir not in self._runs:
            self._runs[run_dir] = _RunMetric(run_dir, self._metric)
        return self._runs[run_dir]
