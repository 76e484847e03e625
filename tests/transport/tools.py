"""A machine without rsync: folders for PATH."""

from __future__ import annotations

import shutil
from pathlib import Path


def only(folder: Path, *programs: str) -> Path:
    """A folder with some programs of this machine."""
    folder.mkdir()
    for name in programs:
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def all_but_rsync(folder: Path) -> Path:
    """A folder with every program of this machine but rsync."""
    folder.mkdir(exist_ok=True)
    for place in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for program in Path(place).iterdir():
            if program.name != "rsync" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder
