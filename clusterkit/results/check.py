"""Checks a pulled run directory: did what came arrive whole, and is it the run it claims to be?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clusterkit.run_dir import read_object


def problems(run_dir: Path, run_id: str) -> list[str]:
    """What is wrong with a local run directory, one line each; empty when all is well."""
    return [
        *_run_json(run_dir / "run.json", run_id),
        *_metrics(run_dir / "metrics.jsonl"),
        *_checkpoints(run_dir),
    ]


def _run_json(path: Path, run_id: str) -> Iterator[str]:
    document = read_object(path)
    if document is None:
        yield "run.json is missing or not readable"
    elif document.get("run_id") != run_id:
        yield f"run.json belongs to another run: {document.get('run_id')!r}"


def _metrics(path: Path) -> Iterator[str]:
    """A last line without its newline is still being written and is no problem."""
    if not path.is_file():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.endswith(b"\n") and not _is_object(line):
                yield f"metrics.jsonl line {number} is not a JSON object"
                return


def _checkpoints(run_dir: Path) -> Iterator[str]:
    wrong: dict[str, None] = {}  # in order, and once: checkpoints share segments
    for manifest in sorted(run_dir.glob("checkpoints/step-*/manifest.json")):
        name = f"checkpoints/{manifest.parent.name}"
        document = read_object(manifest)
        files = document.get("files") if document else None
        if document is None or not isinstance(files, dict):
            yield f"{name}/manifest.json is not readable"
            continue
        for path, facts in [
            *((f"{name}/{file}", facts) for file, facts in files.items()),
            *_segments(document),
        ]:
            file = run_dir / path
            size = file.stat().st_size if file.is_file() else None
            expected = facts.get("bytes") if isinstance(facts, dict) else None
            # What is missing is no fault: segments come only with all checkpoints, and a live run may have
            # dropped a checkpoint while it was copied.
            if size is not None and size != expected:
                wrong[f"{path} has {size} bytes instead of {expected}"] = None
    yield from wrong


def _segments(manifest: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    replay = manifest.get("replay")
    listed = replay.get("segments") if isinstance(replay, dict) else None
    for segment in listed if isinstance(listed, list) else []:
        if isinstance(segment, dict):
            yield f"checkpoints/replay/{segment.get('file')}", segment


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
