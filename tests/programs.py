"""Programs of a test's own, for PATH."""

from __future__ import annotations

from pathlib import Path


def write_program(folder: Path, name: str, script: str) -> Path:
    """Writes a program that is a few lines of sh. Returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return folder
