"""Every foreseeable fault of the trainer is a TrainerError: what happened, and what to do next."""

from __future__ import annotations


class TrainerError(Exception):
    """A fault with a one-line cause and, where there is one, a next step for the user.

    Args:
        cause: what happened and where; one line.
        hint: what to do next, or the details; shown on its own lines.
    """

    exit_code = 1

    def __init__(self, cause: str, *, hint: str | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.hint = hint


class UsageError(TrainerError):
    """The command line asks for something that cannot be. Nothing was started."""

    exit_code = 2


class WorkerError(TrainerError):
    """An environment worker died, failed or stopped answering."""


class CheckpointError(TrainerError):
    """A checkpoint is torn, foreign or does not fit this run."""


class DivergedError(TrainerError):
    """Update after update gave numbers that are not finite."""
