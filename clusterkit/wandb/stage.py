"""Prepares copies of logs for the wandb client: whole records that the server lacks, with a proper end."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from clusterkit.wandb import records
from clusterkit.wandb.log import WandbLog, write_part
from clusterkit.wandb.outcome import UploadOutcome
from clusterkit.wandb.plan import RunPlan


def stage_run(one: RunPlan, sent: Mapping[Path, int], stage: Path) -> list[str]:
    """Prepare a run's logs for sending.

    Args:
        one: the plan.
        sent: the number of leading history records of each log that the server has.
        stage: an empty folder.

    Returns:
        The folders' names in `stage`, in the order in which the logs were started.
    """
    return [_stage_log(one, log, sent[log.path], stage) for log in one.send]


def _stage_log(one: RunPlan, log: WandbLog, skip_history: int, stage: Path) -> str:
    source = log.path.parent
    # The client takes no folder of an online run.
    folder = stage / (f"offline-{source.name}" if log.online else source.name)
    folder.mkdir()
    ending = _ending(one.outcome, log) if one.told and log is one.logs[-1] else None
    write_part(
        log,
        folder / log.path.name,
        skip_history=skip_history,
        growing=log is one.growing,
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
    """The final records, by the scheduler: a program may be killed before or after it reports its own end."""
    if outcome is UploadOutcome.FINISHED:
        return [records.encode_exit(0)]
    code = log.exit_code if log.exit_code is not None and log.exit_code > 0 else 1
    return [
        *([records.encode_preempting()] if outcome is UploadOutcome.PREEMPTED else []),
        records.encode_exit(code),
    ]
