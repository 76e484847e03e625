"""Checks that a pulled run directory is complete, undamaged and belongs to the expected run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from clusterkit.results.checkpoints import replay_segments
from clusterkit.untrusted import can_be_shown, read_object

_LONGEST_LINE = 16 << 20


def problems(run_dir: Path, run_id: str) -> list[str]:
    """The problems of a local run directory apart from its checkpoints, one line each."""
    return [*_run_json(run_dir / "run.json", run_id), *_metrics(run_dir / "metrics.jsonl")]


def damaged_checkpoints(run_dir: Path, new: Collection[str] = ()) -> list[str]:
    """The checkpoint files of a local run directory that are not what their manifest says, one line each.

    Args:
        run_dir: the run directory.
        new: files that were just transferred, by path inside `run_dir`. New checkpoint files are compared
            with the SHA-256 in their manifest, older ones only by size.
    """
    return list(_checkpoints(run_dir, new))


def _run_json(path: Path, run_id: str) -> Iterator[str]:
    document = read_object(path)
    if document is None:
        yield "run.json is missing or not readable"
    elif document.get("run_id") != run_id:
        yield f"run.json belongs to another run: {document.get('run_id')!r}"


def _metrics(path: Path) -> Iterator[str]:
    """Checks each line; a last line without a newline is still being written and not a problem."""
    if not path.is_file():
        return
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                yield f"metrics.jsonl line {number} is longer than {_LONGEST_LINE >> 20} MiB"
                return
            if line.endswith(b"\n") and not _is_object(line):
                yield f"metrics.jsonl line {number} is not a JSON object"
                return


def _checkpoints(run_dir: Path, new: Collection[str]) -> Iterator[str]:
    wrong: dict[str, None] = {}  # ordered and unique: checkpoints share segments
    for manifest in sorted(run_dir.glob("checkpoints/step-*/manifest.json")):
        name = f"checkpoints/{manifest.parent.name}"
        document = read_object(manifest)
        files = document.get("files") if document else None
        if document is None or not isinstance(files, dict):
            yield f"{name}/manifest.json is not readable"
            continue
        changed = f"{name}/manifest.json" in new
        for path, facts in [
            *((f"{name}/{file}", facts) for file, facts in files.items()),
            *((f"checkpoints/replay/{each.get('file')}", each) for each in replay_segments(document) if each),
        ]:
            if _leaves(path):
                wrong[f"{name}/manifest.json names {ascii(path)[1:-1]}"] = None
            elif fault := _fault(run_dir, path, facts, read=changed or path in new):
                wrong[fault] = None
    yield from wrong


def _leaves(path: str) -> bool:
    """Whether a path is anything but a printable `checkpoints/FOLDER/FILE`."""
    names = path.split("/")
    return len(names) != 3 or not {"", ".", ".."}.isdisjoint(names) or not can_be_shown(path)


def _fault(run_dir: Path, path: str, facts: Any, *, read: bool) -> str | None:
    """The problem of a file that a manifest lists, if any.

    A missing file is not a problem: segments are pulled only with all checkpoints, and a live run may have
    deleted a checkpoint while it was copied.
    """
    file = run_dir / path
    if file.is_symlink() or not file.is_file() or not isinstance(facts, dict):
        return None
    size, expected, digest = file.stat().st_size, facts.get("bytes"), facts.get("sha256")
    if size != expected:
        return f"{path} has {size} bytes instead of {expected}"
    if read and isinstance(digest, str) and sha256_of(file) != digest:
        return f"{path} is damaged: its SHA-256 does not match its manifest"
    return None


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
