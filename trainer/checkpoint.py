"""Checkpoints on disk: directories that appear whole, are verified before use, and are pruned with care.

`checkpoints/step-<12 digits>/` holds one file per part (`model.pt`, `state.pt`, `replay.pt`) and a
manifest with their sizes and digests. It appears by rename when all of it is on disk. The replay, which
is large, stays only with the newest checkpoint. Files are read with `weights_only=True`: a checkpoint
from a stranger runs no code.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.errors import CheckpointError
from trainer.files import atomic_write_json, publish_directory

SCHEMA = 1
REPLAY = "replay"
_MANIFEST = "manifest.json"
_STEP_NAME = re.compile(r"step-(\d{12})")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that has been written.

    Attributes:
        path: its directory.
        nbytes: bytes of its files.
        seconds: time it took.
    """

    path: Path
    nbytes: int
    seconds: float


def directory(run_dir: Path) -> Path:
    """Returns where a run keeps its checkpoints."""
    return run_dir / "checkpoints"


def save(
    run_dir: Path, step: int, parts: Mapping[str, Any], *, run_id: str, recipe: str, keep: int = 3
) -> Saved:
    """Writes a checkpoint, then prunes older ones.

    Args:
        run_dir: the run.
        step: environment steps so far.
        parts: name to what `torch.save` can write and `torch.load(weights_only=True)` read.
        run_id: noted in the manifest.
        recipe: noted in the manifest.
        keep: how many checkpoints stay.

    Raises:
        OSError: no space, no permission; the checkpoints there are untouched then.
    """
    begun = time.perf_counter()
    home = directory(run_dir)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in home.glob(".step-*"):
        shutil.rmtree(leftover)
    final = home / f"step-{step:012d}"
    if _is_good(final):
        manifest = _manifest(final)
    else:
        temporary = home / f".{final.name}"
        temporary.mkdir(mode=0o700)
        try:
            manifest = _write(temporary, step, parts, run_id, recipe)
            if final.exists():  # not good, or we would not be here
                shutil.rmtree(final)
            publish_directory(temporary, final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    _prune(home, keep)
    nbytes = sum(entry["bytes"] for entry in manifest["files"].values())
    return Saved(final, nbytes, time.perf_counter() - begun)


def verify(path: Path) -> dict[str, Any]:
    """Checks a checkpoint against its manifest and returns the manifest.

    Raises:
        CheckpointError: with the reason it cannot be used.
    """
    manifest = _manifest(path)
    for name, entry in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"checkpoint {path}: {name} is missing")
        if file.stat().st_size != entry["bytes"]:
            raise CheckpointError(
                f"checkpoint {path}: {name} has {file.stat().st_size} bytes instead of {entry['bytes']}"
            )
        if _sha256(file) != entry["sha256"]:
            raise CheckpointError(f"checkpoint {path}: {name} is damaged (its sha256 differs)")
    return manifest


def newest(run_dir: Path, refused: Callable[[str], None]) -> Path | None:
    """Returns the newest good checkpoint of a run, or None.

    Args:
        run_dir: the run.
        refused: told the reason of each one that is newer but cannot be used.
    """
    for path in reversed(_all(directory(run_dir))):
        try:
            verify(path)
        except CheckpointError as error:
            refused(error.cause)
        else:
            return path
    return None


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads the parts of a checkpoint after verifying it; the replay may be absent in an older one.

    Raises:
        CheckpointError: it is damaged, or holds more than data.
    """
    manifest = verify(path)
    return {Path(name).stem: load_file(path / name, device) for name in manifest["files"]}


def load_file(path: Path, device: torch.device | str = "cpu") -> Any:
    """Reads one file of tensors and plain values.

    Raises:
        CheckpointError: it is absent, damaged, or holds more than data.
    """
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"there is no {path}") from None
    except Exception as error:  # unpickling garbage can raise nearly anything
        raise CheckpointError(f"{path} is no file of tensors: {str(error).splitlines()[0]}") from error


def _write(folder: Path, step: int, parts: Mapping[str, Any], run_id: str, recipe: str) -> dict[str, Any]:
    files = {}
    for name, content in parts.items():
        file = folder / f"{name}.pt"
        torch.save(content, file)
        files[file.name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    manifest = {
        "schema": SCHEMA,
        "step": step,
        "time": time.time(),
        "run_id": run_id,
        "recipe": recipe,
        "files": files,
    }
    atomic_write_json(folder / _MANIFEST, manifest)
    return manifest


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_bytes())
        schema, _ = manifest["schema"], manifest["files"].items()
    except OSError as error:
        raise CheckpointError(f"checkpoint {path}: no manifest ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {path}: its manifest cannot be read") from error
    if schema != SCHEMA:
        raise CheckpointError(
            f"checkpoint {path} has format {schema}; this trainer reads format {SCHEMA}",
            hint="use the trainer version that wrote it",
        )
    return manifest


def _is_good(path: Path) -> bool:
    try:
        verify(path)
    except CheckpointError:
        return False
    return True


def _prune(home: Path, keep: int) -> None:
    """Drops the replay of all but the newest checkpoint, and checkpoints beyond `keep`."""
    older = _all(home)[:-1]
    for path in older[: max(len(older) - keep + 1, 0)]:
        shutil.rmtree(path)
    for path in older[max(len(older) - keep + 1, 0) :]:
        name = f"{REPLAY}.pt"
        if (path / name).exists():
            manifest = _manifest(path)
            # the manifest first: a crash in between leaves a file too many, not a checkpoint that looks torn
            manifest["files"].pop(name, None)
            atomic_write_json(path / _MANIFEST, manifest)
            (path / name).unlink()


def _all(home: Path) -> list[Path]:
    return sorted(path for path in home.glob("step-*") if _STEP_NAME.fullmatch(path.name))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
