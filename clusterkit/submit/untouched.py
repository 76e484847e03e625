"""Makes temporary copies of the project's state for commands that must not change anything."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.runs.ledger import Ledger
from clusterkit.submit.materials import chunk_cache

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class Copies:
    """Copies of the state in the project's `.clusterkit` folder."""

    ledger: Ledger
    chunks: Path
    """Folder of the images' chunk lists."""


@contextmanager
def copies(settings: Settings) -> Iterator[Copies]:
    """Copies the ledger and the chunk lists; the copies are empty if there are none."""
    remembered = settings.project_dir / ".clusterkit"
    with tempfile.TemporaryDirectory(prefix="clusterkit-plan-") as folder:
        chunks = Path(folder) / "chunks"
        if chunk_cache(settings).is_dir():
            shutil.copytree(chunk_cache(settings), chunks)
        with Ledger(remembered / "ledger.sqlite3", copy=True) as copy:
            yield Copies(copy, chunks)
