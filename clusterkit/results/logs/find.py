"""Knows by their names which files of a run hold metrics, and finds them in a pulled run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from clusterkit.results.logs.delimited import Delimited
from clusterkit.results.logs.format import LogFormat
from clusterkit.results.logs.jsonl import JsonLines
from clusterkit.results.logs.tfevents import EventFile
from clusterkit.results.logs.wandb import WandbHistory
from clusterkit.results.metrics import METRICS

MOST_FILES = 200
"""Most log files of a run."""
_DEEPEST = 12
_START = re.compile(r"attempts/\d{1,9}/start\.json")
_WITHOUT_LOGS = re.compile(r"(checkpoints|submissions|report)/|(.*/)?(__pycache__|wandb/[^/]+/files)/")
FORMATS: tuple[tuple[re.Pattern[str], type[LogFormat]], ...] = (
    (re.compile(r".+\.jsonl"), JsonLines),
    (re.compile(r".*\btfevents\b.*"), EventFile),
    (re.compile(r"run-.+\.wandb"), WandbHistory),
    (re.compile(r".+\.(csv|tsv)"), Delimited),
)
"""By the name of a file. A number in several files counts from the first format that has more than one."""


def format_of(path: str) -> type[LogFormat] | None:
    """Returns the format of a file, by its path inside the run; None if it holds no metrics."""
    if _WITHOUT_LOGS.match(path) or path.startswith("attempts/"):
        return None
    name = path.rpartition("/")[2]
    return next((kind for pattern, kind in FORMATS if pattern.fullmatch(name)), None)


def is_start(path: str) -> bool:
    """Whether a file tells when an attempt started."""
    return _START.fullmatch(path) is not None


def choose(paths: Iterable[str]) -> tuple[list[str], int]:
    """Returns which files of a run are read, also of its starts, and how many more logs there are.

    Args:
        paths: inside the run.
    """
    listed = list(paths)
    logs = sorted(filter(format_of, listed), key=lambda path: (path != METRICS, path.count("/"), path))
    starts = sorted(filter(is_start, listed), key=lambda path: (len(path), path))
    return [*logs[:MOST_FILES], *starts[-MOST_FILES:]], max(0, len(logs) - MOST_FILES)


def files_below(folder: Path, inside: str = "", depth: int = _DEEPEST) -> Iterator[str]:
    """Yields the regular files below a pulled run, by path inside it, except where no program logs.

    Links are not followed. A folder in the place of a W&B log is yielded, too: whoever reads it says so.
    """
    with suppress(OSError), os.scandir(folder / inside) as entries:
        for entry in entries:
            path = f"{inside}{entry.name}"
            if entry.is_file(follow_symlinks=False) or (
                entry.name.endswith(".wandb") and not entry.is_symlink()
            ):
                yield path
            elif depth and entry.is_dir(follow_symlinks=False) and not _WITHOUT_LOGS.match(f"{path}/"):
                yield from files_below(folder, f"{path}/", depth - 1)
