"""The results of uploads to W&B."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class UploadState(StrEnum):
    """The upload state of one W&B run."""

    UPLOADED = "uploaded"
    LIVE = "live"
    """The current part of an active run has arrived."""
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
    """Logs passed to the client."""
    history: int = 0
    """History records passed to the client."""
    message: str = ""
    """Why not, or what was lost; one line."""
    url: str | None = None
