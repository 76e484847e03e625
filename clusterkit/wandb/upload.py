"""Uploads the offline W&B runs of pulled run directories, each step once, and verifies it.

It is safe to interrupt and repeat: unverified records are counted on the server first, and only the rest is
sent.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import WandbError
from clusterkit.wandb import client, server
from clusterkit.wandb.ledger import RecordedUpload, RunUpload, SqliteUploads, UploadState
from clusterkit.wandb.log import WandbLog, find_logs, inspect
from clusterkit.wandb.plan import RunPlan, UploadOutcome, plan, stage_run
from clusterkit.wandb.records import LogState
from clusterkit.wandb.server import Credentials

STALLED_SECONDS = 90.0
"""Seconds without a further step after which an upload is stopped; the client would try for minutes."""
_LOOK_SECONDS = 5.0
"""Seconds between queries of the server's count."""
_LOCK_SECONDS = 20.0
"""Seconds to wait for the client of a killed upload before giving up."""
_SETTLING_SECONDS, _SETTLING_LOOKS = 3.0, 10
"""Pause and number of checks until a killed client's helper has ended, which took up to two seconds."""


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
    outcome: Callable[[str], UploadOutcome],
    target: UploadTarget,
    ledger: SqliteUploads,
    live: bool = False,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[RunUpload]:
    """Uploads new records of runs, one run at a time. A failure does not stop the others.

    It may be called repeatedly while runs continue and their logs grow: each step is sent once.

    Args:
        run_dirs: local run directories by run id.
        outcome: a run's outcome by run id; decides what W&B shows.
        target: the destination.
        ledger: records what has arrived.
        live: also send logs that are still being written; otherwise they wait until they are closed.
        dry_run: only plan, without asking the server.
        tell: called with a line when an upload starts, and with its progress if it takes long.

    Raises:
        WandbError: no run can be uploaded: client missing, server unreachable or silent, key refused.
    """
    uploads = _Uploads(run_dirs, target, ledger, live, tell)
    for run_id, run_dir in run_dirs.items():
        paths = [*find_logs(run_dir), *find_logs(run_dir, online=True)]
        try:
            plans = uploads.plans(run_id, paths, outcome(run_id))
        except OSError as error:
            yield RunUpload(run_id, None, UploadState.FAILED, message=_of_file(error))
            continue
        if paths and not plans:
            yield RunUpload(run_id, None, UploadState.NOTHING)
        for run in plans:
            if not run.send:
                yield _nothing_new(run)
            elif dry_run:
                certain = run.certain
                history = sum(log.history - certain[log.path] for log in run.send)
                yield RunUpload(run_id, run.wandb_run_id, UploadState.WOULD_UPLOAD, len(run.send), history)
            else:
                tell(f"uploading {run_id}")
                try:
                    yield uploads.upload(run)
                except OSError as error:  # of files here; the network's are WandbErrors
                    yield _failed(run, _of_file(error))


@dataclass(frozen=True)
class _Uploads:
    """Uploads to one destination; see `upload_runs`."""

    run_dirs: Mapping[str, Path]
    target: UploadTarget
    ledger: SqliteUploads
    live: bool
    tell: Callable[[str], None]

    def _name(self, run_id: str, log: WandbLog) -> str:
        """Returns a log's name in the ledger."""
        return f"{run_id}/{log.path.relative_to(self.run_dirs[run_id]).as_posix()}"

    def plans(self, run_id: str, paths: Iterable[Path], outcome: UploadOutcome) -> list[RunPlan]:
        """Returns the uploads to make, by the current logs and ledger."""
        logs = [inspect(path) for path in paths]
        there = {log.path: self.ledger.get(self.target.destination, self._name(run_id, log)) for log in logs}
        recorded = {path: upload for path, upload in there.items() if upload is not None}
        return plan(run_id, logs, recorded, outcome=outcome, live=self.live)

    def upload(self, run: RunPlan) -> RunUpload:
        """Uploads a run's logs, as they are now, and verify that they have arrived."""
        version = client.installed_version()
        with _only_upload_of(run) as lock:
            if lock is None:
                return _failed(run, "it is already being uploaded; sync again when that has finished")
            # While this one waited, another may have sent all of it.
            plans = self.plans(run.run_id, [log.path for log in run.logs], run.outcome)
            if len(plans) != 1:
                return _failed(run, "its logs were replaced in the meantime; sync again")
            (run,) = plans
            if not run.send:
                return _nothing_new(run)
            before = self._settled_history(run) if run.doubtful else self.server_history(run)
            if before is None and (run.doubtful or not client.is_known(version)):
                why = (
                    "an earlier upload was interrupted"
                    if run.doubtful
                    else f"wandb {version} is not known here"
                )
                return _failed(run, f"{why}, and the server does not say how much arrived")
            whole = sum(log.history for log in run.logs)
            if before is not None and before > whole:
                counts = f"the server holds {before} steps of it and there are {whole} here"
                return _failed(run, f"{counts}: not the same run")
            sent = run.already_sent(before)
            if before == run.expected_history and all(log.online or log is run.growing for log in run.send):
                self._record(run)
                return RunUpload(run.run_id, run.wandb_run_id, UploadState.UP_TO_DATE)
            self._record(run, only=run.certain)
            watch = _Watch(self, run, before or 0)
            verdict = self._send(run, sent, lock, watch)
            if watch.given_up:
                raise WandbError(
                    verdict.reason,
                    hint="the results are safe on this machine; `clusterkit sync-results` sends what is "
                    "missing",
                )
            if not verdict.ok:
                return _failed(run, verdict.reason)
            after = None if before is None else self._wait_for_history(run)
            if before is not None and (after is None or after < run.expected_history):
                counts = f"the server shows {after} of {run.expected_history} steps"
                return _failed(run, f"{counts}; sync again to send the rest")
            self._record(run)
        doubts = [] if client.is_known(version) else [client.unknown(version)]
        return RunUpload(
            run.run_id,
            run.wandb_run_id,
            UploadState.LIVE if run.growing else UploadState.UPLOADED,
            logs=len(run.send),
            history=sum(log.history - sent[log.path] for log in run.send),
            message="; ".join([*doubts, *_damage(run), *verdict.warnings]),
            url=verdict.url,
        )

    def _record(self, run: RunPlan, *, only: Mapping[Path, int] | None = None) -> None:
        """Records that everything sent has arrived, or before the upload that only some certainly has."""
        for log in run.send:
            arrived = log.history if only is None else only[log.path]
            outcome = run.outcome if run.told and log is run.logs[-1] else UploadOutcome.RUNNING
            row = RecordedUpload(log.size, log.sha256, log.history, only is None, arrived, outcome)
            self.ledger.put(self.target.destination, self._name(run.run_id, log), row)

    def _send(self, run: RunPlan, sent: Mapping[Path, int], lock: int, watch: _Watch) -> client.ClientVerdict:
        mark = hashlib.sha256(os.fsencode(run.logs[0].path.resolve())).hexdigest()[:16]
        prefix = f"clusterkit-wandb-{mark}-"
        for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):  # by an upload of it that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix) as stage:
            return client.sync(
                stage_run(run, sent, Path(stage)),
                stage=Path(stage),
                credentials=self.target.credentials,
                entity=self.target.entity,
                project=self.target.project,
                may_finish=run.told,
                keep_open=(lock,),
                watch=watch,
            )

    def server_history(self, run: RunPlan, *, timeout: float = 15.0) -> int | None:
        """Returns the number of history lines that the server holds; see `server.history_lines`."""
        return server.history_lines(
            self.target.credentials,
            timeout=timeout,
            entity=self.target.entity or run.entity,
            project=self.target.project or run.project,
            run_id=run.wandb_run_id,
        )

    def _settled_history(self, run: RunPlan) -> int | None:
        """Returns the server's count once it is stable: a killed client's helper lives a little longer."""
        count = self.server_history(run)
        for _ in range(_SETTLING_LOOKS):
            last = count
            time.sleep(_SETTLING_SECONDS)
            count = self.server_history(run)
            if count == last:
                break
        return count

    def _wait_for_history(self, run: RunPlan) -> int | None:
        """Returns the server's count once it is as expected, or the last one after some seconds."""
        count = None
        for pause in (0.0, 0.5, 1.0, 2.0, 4.0):
            time.sleep(pause)
            with suppress(WandbError):
                count = self.server_history(run)
            if count is not None and count >= run.expected_history:
                break
        return count


def _nothing_new(run: RunPlan) -> RunUpload:
    state = UploadState.RUNNING if run.waiting else UploadState.UP_TO_DATE
    return RunUpload(run.run_id, run.wandb_run_id, state)


def _of_file(error: OSError) -> str:
    return f"{error.filename or 'a file'}: {error.strerror or error}"


def _failed(run: RunPlan, message: str) -> RunUpload:
    return RunUpload(run.run_id, run.wandb_run_id, UploadState.FAILED, len(run.send), message=message)


@contextmanager
def _only_upload_of(run: RunPlan) -> Iterator[int | None]:
    """Returns a lock on a W&B run, as a file descriptor, or None if another process keeps holding it.

    The client inherits it: if this process is killed and the client continues, no other upload counts the
    server's records until the client is done.
    """
    lock = os.open(run.logs[0].path, os.O_RDONLY)
    until = time.monotonic() + _LOCK_SECONDS
    try:
        while not (ours := _locked(lock)) and time.monotonic() < until:
            time.sleep(0.2)
        yield lock if ours else None
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Watch:
    """Reports the progress of a long upload, and stops it when nothing more arrives.

    After all steps only files remain, for which the client itself limits its time.
    """

    def __init__(self, uploads: _Uploads, run: RunPlan, before: int) -> None:
        self._uploads, self._run = uploads, run
        self._count, self._since = before, 0.0
        self.given_up = False

    def __call__(self, seconds: float) -> str | None:
        count = None
        with suppress(WandbError):
            count = self._uploads.server_history(self._run, timeout=_LOOK_SECONDS)
        if count is not None and count > self._count:
            self._count, self._since = count, seconds
        whole, url = self._run.expected_history, self._uploads.target.credentials.base_url
        there = f"{self._count} of {whole} steps are there"
        if self._count >= whole:
            self._uploads.tell(f"{there}; waiting for its files to reach {url}, for {seconds:.0f} s so far")
            return None
        silent = seconds - self._since
        if silent < STALLED_SECONDS:
            self._uploads.tell(f"{there}; waiting for {url}, for {silent:.0f} s since the last of them")
            return None
        self.given_up = True
        return f"{url} has taken nothing for {silent:.0f} s: {there}"


def _damage(run: RunPlan) -> list[str]:
    """Returns a description of what the logs themselves lack."""
    return [
        f"{log.path.name} is damaged after step {log.last_step}; what comes before was sent"
        for log in run.send
        if log.state is LogState.CORRUPT
    ]
