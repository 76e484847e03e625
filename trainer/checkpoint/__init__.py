"""Checkpoints on disk: folders that appear atomically, are verified before use, and are pruned with care.

`checkpoints/step-<12 digits>/` holds one file per part (`model.pt`, `state.pt`, ...) and a manifest with
their sizes and digests. The rows of the replay lie in `checkpoints/replay/`, in segments that are written
once and shared by all checkpoints that need them: a save writes only the rows that are new. Files are read
with `weights_only=True`, and segments are plain numbers, so an untrusted checkpoint runs no code.
"""

from trainer.checkpoint.reading import directory, load, load_file, newest, verify
from trainer.checkpoint.segments import REPLAY
from trainer.checkpoint.store import CheckpointStore, Saved

__all__ = [
    "REPLAY",
    "CheckpointStore",
    "Saved",
    "directory",
    "load",
    "load_file",
    "newest",
    "verify",
]
