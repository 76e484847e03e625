"""Decides what to upload of the logs of one run. Pure.

A log is closed when nobody writes it any more: it has an exit record, a later log of the same W&B run exists,
or the run has ended. Only closed logs are uploaded: a client that meets the end of an open one would
declare the run failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from clusterkit.wandb.ledger import Upload
from clusterkit.wandb.log import WandbLog


@dataclass(frozen=True)
class RunPlan:
    """The logs of one W&B run in the order in which they were started."""

    wandb_run_id: str
    entity: str | None
    project: str | None
    logs: tuple[WandbLog, ...]
    """All of them: together they are what the server should hold."""
    send: tuple[WandbLog, ...]
    """Closed, and not proven to be on the server as they are now."""
    waiting: tuple[WandbLog, ...]
    """Still written."""
    doubtful: bool
    """An earlier upload of these logs was started and not proved; part of it may have arrived."""

    def already_sent(self, server_history: int) -> dict[Path, int]:
        """How many leading history records of each log in `send` the server already holds.

        Args:
            server_history: history lines the server has of this run, over all logs in order.
        """
        sent = {}
        left = server_history
        for log in self.logs:
            sent[log.path] = min(log.history, max(0, left))
            left -= log.history
        return {log.path: sent[log.path] for log in self.send}

    @property
    def expected_history(self) -> int:
        """History lines the server should hold once `send` is there."""
        if not self.send:
            return 0
        last = self.logs.index(self.send[-1])
        return sum(log.history for log in self.logs[: last + 1])


def plan(logs: Sequence[WandbLog], known: Mapping[Path, Upload | None], *, ended: bool) -> list[RunPlan]:
    """Plan the upload of one run's logs, one RunPlan for each W&B run id in them.

    Args:
        logs: the logs of one run directory. Logs that do not yet name their run are left out.
        known: what the ledger knows of them.
        ended: whether the run is over for good.
    """
    named = sorted((log.run_id, log.started, log.path, log) for log in logs if log.run_id)
    groups = groupby(named, lambda item: item[0])
    return [_plan(run_id, tuple(item[3] for item in group), known, ended) for run_id, group in groups]


def _plan(
    run_id: str, logs: tuple[WandbLog, ...], known: Mapping[Path, Upload | None], ended: bool
) -> RunPlan:
    send: list[WandbLog] = []
    waiting: list[WandbLog] = []
    doubtful = False
    for log in logs:
        before = known.get(log.path)
        doubtful |= before is not None and not before.proven
        if before is not None and before.proven and (before.size, before.sha256) == (log.size, log.sha256):
            continue
        closed = ended or log.exit_code is not None or log is not logs[-1]
        (send if closed else waiting).append(log)
    return RunPlan(run_id, logs[-1].entity, logs[-1].project, logs, tuple(send), tuple(waiting), doubtful)
