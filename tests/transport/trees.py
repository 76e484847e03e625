"""Names that break careless programs, and looking at trees of files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

ODD_NAMES = (
    "vertical\vtab and\u2028line separator",
    "plain",
    "two words",
    "-rf",
    "new\nline",
    "quote'\"`",
    "$HOME",
    "grüße 漢字",
    "#comment",
    "wild*[x]?",
    "tab\t",
    "back\\slash",
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tree(folder: Path) -> Path:
    for number, name in enumerate(ODD_NAMES):
        (folder / name).write_bytes(os.urandom(100 + number))
    below = folder / "sub dir" / "deeper"
    below.mkdir(parents=True)
    (below / "script").write_bytes(b"#!/bin/sh\n")
    (below / "script").chmod(0o750)
    (folder / "link").symlink_to("plain")
    return folder
