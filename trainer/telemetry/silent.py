"""The telemetry of a rank that writes nothing: it only prints events, with its rank."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.telemetry.session import Telemetry
from trainer.telemetry.usage import Clock


class SilentTelemetry(Telemetry):
    """Has the interface of `Telemetry`, and writes no file.

    Args:
        rank: of this process.
    """

    def __init__(self, rank: int) -> None:
        self.clock = Clock()
        self._rank = rank

    def train(self, step: int, values: Mapping[str, Any]) -> None:
        """Does nothing."""

    def evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        """Does nothing."""

    def checkpoint(self, step: int, path: Path | str, size: int, seconds: float) -> None:
        """Does nothing."""

    def event(self, step: int, message: str) -> None:  # noqa: ARG002 - a print has no column for it
        """Prints the message."""
        sys.stdout.write(f"[rank {self._rank}] {message}\n")
        sys.stdout.flush()

    def heartbeat(self, **facts: Any) -> None:
        """Does nothing."""

    def close(self, exit_code: int = 0) -> None:
        """Does nothing."""
