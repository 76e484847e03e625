"""Our tags in MLflow, and names that MLflow takes as names of metrics and parameters. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

RUN_TAG = "clusterkit.run"
LOGGED_TAG = "clusterkit.logged"
"""How many bytes of the run's metrics.jsonl have arrived, or another text while a sync is at it."""
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
        name: of the metric or parameter.
        there: the names of the same kind that the run has there.
    """
    plain = mlflow_name(name)
    flat = _with_digest(plain.replace("/", "_"), name)
    clash = any(one.startswith(f"{plain}/") or plain.startswith(f"{one}/") for one in there)
    return flat if plain not in there and (clash or flat in there) else plain


def _with_digest(taken: str, name: str) -> str:
    short = taken.encode()[: _LONGEST - 9].decode(errors="ignore").rstrip("/ ")
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{short}-{digest[:8]}"
