"""The values of one metric of several runs, read from their cluster as they are logged."""

from __future__ import annotations

import time
from collections.abc import Iterable

from clusterkit.results.growing import GrowingRun, read_logs
from clusterkit.results.logs.run_logs import RunLogs
from clusterkit.results.metrics import meant
from clusterkit.results.series import Series, series
from clusterkit.transport.base import Transport

FIND_SECONDS = 30.0
"""Seconds between two looks for new log files."""


class MetricReader:
    """Reads a metric of runs on one cluster, each byte once.

    Args:
        metric: its name.
        own: whether the runs are of a program of the user's own.
        step: the name of the steps; None finds it.
    """

    def __init__(self, metric: str, *, own: bool, step: str | None = None) -> None:
        self._metric, self._own, self._step = metric, own, step
        self._runs: dict[str, GrowingRun] = {}
        self._found = float("-inf")

    def read(self, transport: Transport, run_dirs: Iterable[str], *, ended: bool = False) -> None:
        """Reads what was appended to the logs of some runs since the last call.

        Args:
            transport: to their cluster.
            run_dirs: of the runs.
            ended: whether one has ended, so that no more of its files will come.

        Raises:
            TransportError: the connection failed.
        """
        runs = [self._run(run_dir) for run_dir in run_dirs]
        find = ended or time.monotonic() - self._found >= FIND_SECONDS
        read_logs(transport, runs, find=find and self._own)
        self._found = time.monotonic() if find else self._found

    def series(self, run_dir: str) -> Series:
        """Returns a run's values of the metric so far."""
        logs = self._run(run_dir).logs
        return series(logs.rows, meant(self._metric, logs.names))

    def names(self, run_dir: str) -> list[str]:
        """Returns the numbers that a run has logged so far."""
        return self._run(run_dir).logs.names

    def _run(self, run_dir: str) -> GrowingRun:
        if run_dir not in self._runs:
            logs = RunLogs(self._step, only=(self._metric, meant(self._metric, ())))
            self._runs[run_dir] = GrowingRun(run_dir, logs, own=self._own)
        return self._runs[run_dir]
