"""Uploads the offline W&B runs of pulled run directories, each step once, and proves it.

Safe to interrupt and to repeat: what the ledger does not call proven is counted on the server first, and only
the rest is sent.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clusterkit.errors import WandbError
from clusterkit.wandb import client, server
from clusterkit.wandb.credentials import Credentials
from clusterkit.wandb.framing import LogState
from clusterkit.wandb.ledger import Upload, UploadLedger
from clusterkit.wandb.log import WandbLog, find_logs, inspect, write_part
from clusterkit.wandb.plan import RunPlan, plan


class UploadState(StrEnum):
    """What became of one W&B run."""

    UPLOADED = "uploaded"
    WOULD_UPLOAD = "would upload"
    UP_TO_DATE = "up to date"
    RUNNING = "still running"
    NOTHING = "nothing logged"
    FAILED = "failed"


@dataclass(frozen=True)
class RunUpload:
    """The result for one W&B run."""

    run_id: str
    wandb_run_id: str | None
    state: UploadState
    logs: int = 0
    """Logs handed to the client."""
    history: int = 0
    """History records handed to the client."""
    message: str = ""
    """Why not, or what was lost; one line."""
    url: str | None = None


@dataclass(frozen=True)
class UploadTarget:
    """Where runs are uploaded: a server, and an entity and project when they differ from the log's."""

    credentials: Credentials
    entity: str | None = None
    project: str | None = None

    @property
    def destination(self) -> str:
        """The ledger's name for it."""
        return f"{self.credentials.base_url} {self.entity or '*'}/{self.project or '*'}"


def upload_runs(
    run_dirs: Mapping[str, Path],
    *,
    ended: Callable[[str], bool],
    target: UploadTarget,
    ledger: UploadLedger,
    dry_run: bool = False,
    on_run: Callable[[str], None] = lambda _: None,
) -> Iterator[RunUpload]:
    """Upload what is new and closed of some runs, one at a time. A failed one does not stop the others.

    Args:
        run_dirs: local run directories by run id.
        ended: whether a run (by run id) is over for good.
        target: where to.
        ledger: remembers what has arrived.
        dry_run: decide, and ask the server nothing.
        on_run: called with the run id when an upload starts.

    Raises:
        WandbError: no run can be uploaded: client missing, server out of reach, key refused.
    """
    for run_id, run_dir in run_dirs.items():
        logs = [inspect(path) for path in find_logs(run_dir)]
        known = {log.path: ledger.get(target.destination, _name(run_id, log)) for log in logs}
        over = ended(run_id)
        plans = plan(logs, known, ended=over)
        if logs and not plans:
            yield RunUpload(run_id, None, UploadState.NOTHING)
        for one in plans:
            if not one.send:
                state = UploadState.RUNNING if one.waiting else UploadState.UP_TO_DATE
                yield RunUpload(run_id, one.wandb_run_id, state)
            elif dry_run:
                history = sum(log.history for log in one.send)
                yield RunUpload(run_id, one.wandb_run_id, UploadState.WOULD_UPLOAD, len(one.send), history)
            else:
                on_run(run_id)
                yield _upload(run_id, one, target, ledger, may_finish=over and not one.waiting)


def _upload(
    run_id: str, one: RunPlan, target: UploadTarget, ledger: UploadLedger, *, may_finish: bool
) -> RunUpload:
    client.installed_version()
    with _only_upload_of(one) as lock:
        if lock is None:
            return _failed(run_id, one, "another upload of it is going on; sync again when it has ended")
        before = _server_history(one, target)
        if before is None and one.doubtful:
            message = "an earlier upload broke off and the server does not say how much arrived"
            return _failed(run_id, one, message)
        whole = sum(log.history for log in one.logs)
        if before is not None and before > whole:
            message = f"the server holds {before} steps of it and there are {whole} here: not the same run"
            return _failed(run_id, one, message)
        skip = one.already_sent(before or 0)
        for log in one.send:
            ledger.put(target.destination, _name(run_id, log), _entry(log, proven=False))
        verdict = _send(one, skip, target, may_finish=may_finish, lock=lock)
        if not verdict.ok:
            return _failed(run_id, one, verdict.reason)
        after = None if before is None else _wait_for_history(one, target)
        if before is not None and (after is None or after < one.expected_history):
            message = f"the server shows {after} of {one.expected_history} steps; sync again to send the rest"
            return _failed(run_id, one, message)
        for log in one.send:
            ledger.put(target.destination, _name(run_id, log), _entry(log, proven=True))
    return RunUpload(
        run_id,
        one.wandb_run_id,
        UploadState.UPLOADED,
        logs=len(one.send),
        history=sum(log.history - skip[log.path] for log in one.send),
        message="; ".join([*_damage(one), *verdict.warnings]),
        url=verdict.url,
    )


def _failed(run_id: str, one: RunPlan, message: str) -> RunUpload:
    return RunUpload(run_id, one.wandb_run_id, UploadState.FAILED, len(one.send), message=message)


@contextmanager
def _only_upload_of(one: RunPlan) -> Iterator[int | None]:
    """A lock on a W&B run, as a file descriptor, or None when somebody else holds it.

    The client inherits it: when we are killed and the client goes on, nobody counts what the server holds
    until it is done.
    """
    lock = os.open(one.logs[0].path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = True
        except BlockingIOError:
            ours = False
        yield lock if ours else None
    finally:
        os.close(lock)


def _send(
    one: RunPlan, skip: Mapping[Path, int], target: UploadTarget, *, may_finish: bool, lock: int
) -> client.Verdict:
    with tempfile.TemporaryDirectory(prefix="clusterkit-wandb-") as stage:
        return client.sync(
            [_stage(log, Path(stage), skip_history=skip[log.path]) for log in one.send],
            stage=Path(stage),
            credentials=target.credentials,
            entity=target.entity,
            project=target.project,
            may_finish=may_finish,
            keep_open=(lock,),
        )


def _stage(log: WandbLog, stage: Path, *, skip_history: int) -> str:
    """Lay out what the client needs of one log in `stage`; returns the folder's name."""
    source = log.path.parent
    folder = stage / source.name
    folder.mkdir()
    write_part(log, folder / log.path.name, skip_history=skip_history)
    files = folder / "files"
    files.mkdir()
    for item in source.glob("files/*"):
        # The client rewrites some of these files; folders of media it only reads.
        if item.is_dir():
            (files / item.name).symlink_to(item.resolve())
        else:
            shutil.copyfile(item, files / item.name)
    return folder.name


def _server_history(one: RunPlan, target: UploadTarget) -> int | None:
    return server.history_lines(
        target.credentials,
        entity=target.entity or one.entity,
        project=target.project or one.project,
        run_id=one.wandb_run_id,
    )


def _wait_for_history(one: RunPlan, target: UploadTarget) -> int | None:
    """The server's count once it is as expected, or the last one after some seconds: it may lag."""
    count = None
    for pause in (0.0, 0.5, 1.0, 2.0, 4.0):
        time.sleep(pause)
        with suppress(WandbError):
            count = _server_history(one, target)
        if count is not None and count >= one.expected_history:
            break
    return count


def _damage(one: RunPlan) -> list[str]:
    """What the logs themselves lack, in words."""
    return [
        f"{log.path.name} is damaged after step {log.last_step}; what comes before was sent"
        for log in one.send
        if log.state is LogState.CORRUPT
    ]


def _entry(log: WandbLog, *, proven: bool) -> Upload:
    return Upload(log.size, log.sha256, log.history, proven)


def _name(run_id: str, log: WandbLog) -> str:
    return f"{run_id}/wandb/{log.path.parent.name}/{log.path.name}"
