"""Plans the upload of one run's logs, and prepares copies of them for the wandb client.

A log is closed when nothing writes it any more: it has an exit record, a later log of the same W&B run
exists, or the run has ended. The history of an open log can be uploaded while the run is watched, as a part
after which the client marks the run neither finished nor failed. A copy has the whole records that the server
lacks. How the run ended comes from the scheduler and the job's records, not from the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clusterkit.backends.jobs import JobState
from clusterkit.runs.run_dir import RunDirectory
from clusterkit.wandb import records
from clusterkit.wandb.ledger import RecordedUpload
from clusterkit.wandb.log import WandbLog, write_part


class UploadOutcome(StrEnum):
    """The state that W&B should show."""

    RUNNING = "running"
    """It is running or will be restarted."""
    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"
    """The scheduler preempted it and may restart it."""
    CRASHED = "crashed"
    """Its node failed. W&B detects silent runs itself, so nothing is sent."""

    @property
    def over(self) -> bool:
        """Whether nothing is writing its logs now."""
        return self is not UploadOutcome.RUNNING

    @property
    def told(self) -> bool:
        """Whether the server is told about the end."""
        return self in (UploadOutcome.FINISHED, UploadOutcome.FAILED, UploadOutcome.PREEMPTED)


_BY_STATE: Mapping[str, UploadOutcome] = {
    JobState.COMPLETED: UploadOutcome.FINISHED,
    JobState.FAILED: UploadOutcome.FAILED,
    JobState.CANCELLED: UploadOutcome.FAILED,
    JobState.TIMEOUT: UploadOutcome.FAILED,
    JobState.OUT_OF_MEMORY: UploadOutcome.FAILED,
    JobState.PREEMPTED: UploadOutcome.PREEMPTED,
    JobState.NODE_FAIL: UploadOutcome.CRASHED,
}


def outcome_of(state: str, run: RunDirectory | None) -> UploadOutcome:
    """Returns the outcome of a run.

    Args:
        state: the newest known `JobState` of its job.
        run: its pulled run directory, whose record of the end counts; None if unreadable.
    """
    return _BY_STATE.get(run.state(state) if run else state, UploadOutcome.RUNNING)


@dataclass(frozen=True)
class RunPlan:
    """The logs of one W&B run, in order of their start."""

    run_id: str
    wandb_run_id: str
    entity: str | None
    project: str | None
    outcome: UploadOutcome
    logs: tuple[WandbLog, ...]
    """All logs, which together are what the server should hold."""
    send: tuple[WandbLog, ...]
    """Logs to send: not verified in their current state, and closed or watched."""
    waiting: tuple[WandbLog, ...]
    """Logs still being written without anything new to send."""
    growing: WandbLog | None
    """The log in `send` that is still being written."""
    known: Mapping[Path, RecordedUpload]
    """The ledger's records of the logs."""

    @property
    def doubtful(self) -> bool:
        """Whether an upload was started but not verified; part of it may have arrived."""
        return any(not upload.proven for upload in self.known.values())

    @property
    def certain(self) -> dict[Path, int]:
        """The number of leading history records of each log that are verified to be on the server."""
        return {
            log.path: min(log.history, self.known[log.path].certain) if log.path in self.known else 0
            for log in self.logs
        }

    @property
    def told(self) -> bool:
        """Whether the end of the last log ends the run, and the server is told so."""
        return self.outcome.told and not self.waiting and self.send[-1:] == self.logs[-1:]

    def already_sent(self, server_history: int | None) -> dict[Path, int]:
        """Returns the number of leading history records of each log that the server already holds.

        Records beyond the verified ones came with interrupted uploads, in the order of the logs; any further
        ones left no trace in the ledger.

        Args:
            server_history: the server's number of history lines; None if unknown.
        """
        sent = self.certain
        if server_history is None:
            return sent
        left = server_history - sum(sent.values())
        if left < 0:  # the ledger is of another life of this run
            sent, left = dict.fromkeys(sent, 0), server_history
        tried = {path: upload.history for path, upload in self.known.items() if not upload.proven}
        for limits in (tried, {log.path: log.history for log in self.logs}):
            for log in self.logs:
                more = min(left, max(0, min(log.history, limits.get(log.path, 0)) - sent[log.path]))
                sent[log.path] += more
                left -= more
        return sent

    @property
    def expected_history(self) -> int:
        """History lines the server should hold after `send` has arrived."""
        certain = self.certain
        return sum(log.history if log in self.send else certain[log.path] for log in self.logs)


def plan(
    run_id: str,
    logs: Iterable[WandbLog],
    known: Mapping[Path, RecordedUpload],
    *,
    outcome: UploadOutcome,
    live: bool = False,
) -> list[RunPlan]:
    """Plans the upload of one run's logs, one RunPlan for each W&B run id in them.

    Args:
        run_id: of the run.
        logs: the logs of its run directory. Logs that do not yet name their W&B run are left out.
        known: the ledger's records of them.
        outcome: the run's outcome.
        live: whether to send the current part of a log that is still being written.
    """
    named: dict[str, list[WandbLog]] = {}
    for log in sorted(logs, key=lambda log: (log.run_id or "", log.started, log.path)):
        if log.run_id:
            named.setdefault(log.run_id, []).append(log)
    return [_plan(run_id, tuple(mine), known, outcome, live) for mine in named.values()]


def _plan(
    run_id: str,
    logs: tuple[WandbLog, ...],
    known: Mapping[Path, RecordedUpload],
    outcome: UploadOutcome,
    live: bool,
) -> RunPlan:
    before = {log.path: known[log.path] for log in logs if log.path in known}
    send: list[WandbLog] = []
    waiting: list[WandbLog] = []
    growing = None
    for log in logs:
        final = log is logs[-1]
        upload = before.get(log.path)
        to_tell = final and outcome.told and not log.online
        outcome_sent = upload is not None and (not to_tell or upload.told in ("", outcome))
        if upload is not None and upload.proves(log.size, log.sha256) and outcome_sent:
            continue
        if outcome.over or not final or (log.exit_code is not None and not log.online):
            send.append(log)
        elif live and not log.online and log.history > (upload.certain if upload else 0):
            send.append(log)
            growing = log
        else:
            waiting.append(log)
    last = logs[-1]
    return RunPlan(
        run_id=run_id,
        wandb_run_id=str(last.run_id),
        entity=last.entity,
        project=last.project,
        outcome=outcome,
        logs=logs,
        send=tuple(send),
        waiting=tuple(waiting),
        growing=growing,
        known=before,
    )


def stage_run(run: RunPlan, sent: Mapping[Path, int], stage: Path) -> list[str]:
    """Prepares a run's logs for sending.

    Args:
        run: its plan.
        sent: the number of leading history records of each log that the server has.
        stage: an empty folder.

    Returns:
        The folders' names in `stage`, in the order in which the logs were started.
    """
    return [_stage_log(run, log, sent[log.path], stage) for log in run.send]


def _stage_log(run: RunPlan, log: WandbLog, skip_history: int, stage: Path) -> str:
    source = log.path.parent
    # The client takes no folder of an online run.
    folder = stage / (f"offline-{source.name}" if log.online else source.name)
    folder.mkdir()
    ending = _ending(run.outcome, log) if run.told and log is run.logs[-1] else None
    write_part(
        log,
        folder / log.path.name,
        skip_history=skip_history,
        growing=log is run.growing,
        ending=ending,
    )
    files = folder / "files"
    files.mkdir()
    for item in source.glob("files/*"):
        # The client rewrites some of these files; folders of media it only reads.
        if item.is_dir():
            (files / item.name).symlink_to(item.resolve())
        else:
            shutil.copyfile(item, files / item.name)
    return folder.name


def _ending(outcome: UploadOutcome, log: WandbLog) -> list[bytes]:
    """Returns the final records, by the scheduler: a program may be killed before it reports its end."""
    if outcome is UploadOutcome.FINISHED:
        return [records.encode_exit(0)]
    code = log.exit_code if log.exit_code is not None and log.exit_code > 0 else 1
    return [
        *([records.encode_preempting()] if outcome is UploadOutcome.PREEMPTED else []),
        records.encode_exit(code),
    ]
