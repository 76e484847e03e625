"""Gives commands that must not change anything temporary copies of the project's state."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.runs.ledger import Ledger
from clusterkit.runs.materials import chunk_cache

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class Copies:
    """Copies of the state in the project's folder `.clusterkit`."""

    ledger: Ledger
    chunks: Path
    """Chunk lists of images."""


@contextmanager
def copies(settings: Settings) -> Iterator[Copies]:
    """Copies of the ledger and of the chunk lists; empty if there are none."""
    remembered = settings.project_dir / ".clusterkit"
    with tempfile.TemporaryDirectory(prefix="clusterkit-plan-") as folder:
        chunks = Path(folder) / "chunks"
        if chunk_cache(settings).is_dir():
            shutil.copytree(chunk_cache(settings), chunks)
        with Ledger(remembered / "ledger.sqlite3", copy=True) as copy:
            yield Copies(copy, chunks)
