"""Our tags and names in MLflow, and runs in its file store that a killed sync left half written.

MLflow reads no run at all while one of them has a torn line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

from clusterkit.untrusted import ordinal

RUN_TAG = "clusterkit.run"
LOGGED_TAG = "clusterkit.logged"
"""How many bytes of the run's logs have arrived, or another text while a sync is at it."""
_WHOLE_LINE = re.compile(rb"-?[0-9]+ \S+( -?[0-9]+)?( \S+ \S+)?\n")
_REFUSED = re.compile(r"[^\w.\- :/]|[\r\n]")
_LONGEST = 240
"""Bytes; MLflow takes 250 characters, and file systems 255 bytes."""


def mlflow_name(name: str) -> str:
    """Returns a name as MLflow takes it; a digest tells names apart of which it would refuse something.

    >>> mlflow_name("train/loss"), mlflow_name("train/loss (mean)")
    ('train/loss', 'train/loss _mean_-4ac37b76')
    """
    parts = _REFUSED.sub("_", name).split("/")
    taken = "/".join("_" if part in ("", ".", "..") else part for part in parts)
    if taken == name and len(taken.encode()) <= _LONGEST:
        return taken
    return _with_digest(taken, name)


def file_name(name: str, there: Collection[str]) -> str:
    """Returns a name in MLflow's file store, where it is a path: none can be both a file and a folder.

    Args:
        name: of the metric or parameter.
        there: the names of the same kind that the run has there.
    """
    plain = mlflow_name(name)
    flat = _with_digest(plain.replace("/", "_"), name)
    clash = any(other.startswith(f"{plain}/") or plain.startswith(f"{other}/") for other in there)
    return flat if plain not in there and (clash or flat in there) else plain


def _with_digest(taken: str, name: str) -> str:
    short = taken.encode()[: _LONGEST - 9].decode(errors="ignore").rstrip("/ ")
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{short}-{digest[:8]}"


def repair(experiment: Path) -> None:
    """Drops torn lines and empty files of our unfinished runs; the next sync logs them again.

    Args:
        experiment: folder of the experiment in the store, which only this process may be writing to.

    Raises:
        OSError: a file cannot be read or written.
    """
    for tag in experiment.glob(f"*/tags/{LOGGED_TAG}"):
        if ordinal(tag.read_text("utf-8", "replace")) is None:
            run = tag.parents[1]
            for file in filter(Path.is_file, run.glob("metrics/**/*")):
                _drop_torn_lines(file)
            for file in filter(Path.is_file, run.glob("params/**/*")):
                if not file.stat().st_size:
                    file.unlink()


def _drop_torn_lines(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if _WHOLE_LINE.fullmatch(line)]
    if not whole:
        file.unlink()
    elif len(whole) < len(lines):
        file.write_bytes(b"".join(whole))
