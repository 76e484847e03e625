"""Names that MLflow takes as names of metrics and parameters. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

_REFUSED = re.compile(r"[^\w.\- :/]|[\r\n]")
_LONGEST = 240
"""Bytes; MLflow takes 250 characters, and file systems 255 bytes."""


def mlflow_name(name: str) -> str:
    """A name as MLflow takes it. What it would refuse is replaced, and a digest tells such names apart.

    >>> mlflow_name("train/loss"), mlflow_name("train/loss (mean)")
    ('train/loss', 'train/loss _mean_-4ac37b76')
    """
    parts = _REFUSED.sub("_", name).split("/")
    taken = "/".join("_" if part in ("", ".", "..") else part for part in parts)
    if taken == name and len(taken.encode()) <= _LONGEST:
        return taken
    return _with_digest(taken, name)


def file_name(name: str, there: Collection[str]) -> str:
    """A name in MLflow's file store, where it is a path: none can be both a file and a folder.

    Args:
        name: of the metric.
        there: the names that the run has there.
    """
    plain = mlflow_name(name)
    flat = _with_digest(plain.replace("/", "_"), name)
    clash = any(one.startswith(f"{plain}/") or plain.startswith(f"{one}/") for one in there)
    return flat if plain not in there and (clash or flat in there) else plain


def _with_digest(taken: str, name: str) -> str:
    short = taken.encode()[: _LONGEST - 9].decode(errors="ignore").rstrip("/ ")
    return f"{short}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
