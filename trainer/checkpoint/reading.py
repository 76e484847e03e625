"""Finding, checking and loading checkpoints. Nothing here writes."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint.manifest import ForeignFormatError, Manifest, StoredReplay
from trainer.checkpoint.segments import REPLAY, read_segment
from trainer.errors import CheckpointError
from trainer.replay import ReplayRows

MANIFEST = "manifest.json"
_STEP_NAME = re.compile(r"step-(\d{12})")


def directory(run_dir: Path) -> Path:
    """Returns where a run keeps its checkpoints."""
    return run_dir / "checkpoints"


def folder_name(step: int) -> str:
    """Returns the name of the checkpoint of a step."""
    return f"step-{step:012d}"


def folders(home: Path) -> list[Path]:
    """Returns the checkpoints of a folder, good or not, by their steps."""
    return sorted(path for path in home.glob("step-*") if _STEP_NAME.fullmatch(path.name))


def read_manifest(path: Path) -> Manifest:
    """Reads the manifest of a checkpoint.

    Raises:
        CheckpointError: it is missing, torn or of another format.
    """
    try:
        return Manifest.from_bytes((path / MANIFEST).read_bytes())
    except OSError as error:
        raise CheckpointError(f"checkpoint {path}: no manifest ({error.strerror})") from error
    except ForeignFormatError as error:
        raise CheckpointError(
            f"checkpoint {path} {error}", hint="use the trainer version that wrote it"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path}: its manifest cannot be read: {error}") from error


def serial(path: Path) -> int:
    """Returns the serial number of a checkpoint; 0 where it cannot be read."""
    try:
        return read_manifest(path).serial
    except CheckpointError:
        return 0


def verify(path: Path, *, replay: bool = False) -> Manifest:
    """Checks a checkpoint against its manifest and returns the manifest.

    Args:
        path: the checkpoint.
        replay: also checks the segments of its replay. Only a resume needs them: they may have stayed on
            the cluster.

    Raises:
        CheckpointError: with the reason it cannot be used.
    """
    manifest = read_manifest(path)
    for name, entry in manifest.files.items():
        _check(path, path / name, entry.bytes, entry.sha256)
    if replay and manifest.replay is not None:
        for segment in manifest.replay.segments:
            _check(path, path.parent / REPLAY / segment.file, segment.bytes, segment.sha256)
    return manifest


def newest(
    run_dir: Path, refused: Callable[[str], None], *, replay: bool = False, loads: bool = False
) -> Path | None:
    """Returns the good checkpoint of a run that was saved last, or None.

    Args:
        run_dir: the run.
        refused: called with the reason for each one that cannot be used and is newer or of unknown age.
        replay: whether the rows of the replay must be good too.
        loads: whether its files must also hold nothing but data: a forged one matches its own manifest.
    """
    held = []
    for path in folders(directory(run_dir)):
        try:
            held.append((read_manifest(path).serial, path))
        except CheckpointError as error:
            refused(error.cause)
    for _, path in sorted(held, reverse=True):
        try:
            manifest = verify(path, replay=replay)
            for name in manifest.files if loads else ():
                load_file(path / name)
        except CheckpointError as error:
            refused(error.cause)
        else:
            return path
    return None


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads the parts of a checkpoint after verifying it; of a replay only its state, not the rows.

    Raises:
        CheckpointError: it is damaged, or holds more than data.
    """
    manifest = verify(path)
    return {Path(name).stem: load_file(path / name, device) for name in manifest.files}


def load_file(path: Path, device: torch.device | str = "cpu") -> Any:
    """Reads one file of tensors and plain values.

    Raises:
        CheckpointError: it is absent, damaged, or holds more than data.
    """
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"there is no {path}") from None
    except pickle.UnpicklingError as error:
        # PyTorch's own words advise to load it all the same, which would run what is in there
        raise CheckpointError(
            f"{path} is no file of tensors: it is damaged, or holds more than data"
        ) from error
    except Exception as error:  # unpickling garbage can raise nearly anything
        raise CheckpointError(f"{path} is no file of tensors: {str(error).splitlines()[0]}") from error


def load_replay(path: Path) -> tuple[StoredReplay, dict[str, Any], Iterator[ReplayRows]]:
    """Reads the replay of a checkpoint: what the manifest says of it, its state, and its rows in order.

    Raises:
        CheckpointError: it holds none, or a file of it is missing or damaged; of a segment at its turn.
    """
    stored = verify(path).replay
    if stored is None:
        raise CheckpointError(f"checkpoint {path} holds no replay")
    folder = path.parent / REPLAY
    return (
        stored,
        load_file(path / f"{REPLAY}.pt"),
        (read_segment(folder, segment) for segment in stored.segments),
    )


def _check(checkpoint: Path, file: Path, size: int, sha256: str) -> None:
    name = file.name if file.parent == checkpoint else f"{file.parent.name}/{file.name}"
    try:
        held = file.stat().st_size
        if not file.is_file():
            raise CheckpointError(f"checkpoint {checkpoint}: {name} is no file")
        if held != size:
            raise CheckpointError(f"checkpoint {checkpoint}: {name} has {held} bytes instead of {size}")
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint {checkpoint}: {name} is missing") from None
    except OSError as error:
        raise CheckpointError(f"checkpoint {checkpoint}: {name} cannot be read: {error.strerror}") from error
    if digest != sha256:
        raise CheckpointError(f"checkpoint {checkpoint}: {name} is damaged (its sha256 differs)")
