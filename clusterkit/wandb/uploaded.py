"""What came of uploads to W&B."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class UploadState(StrEnum):
    """What became of one W&B run."""

    UPLOADED = "uploaded"
    LIVE = "live"
    """What there is of a run that goes on has arrived."""
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
