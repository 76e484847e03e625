"""All processes of this machine, read from /proc, where there is one: a minimal system has no ps."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A living process."""

    pid: int
    parent: int
    name: str
    """The program's, at most 15 characters."""
    arguments: str
    """The command line, with blanks between its words."""


def processes() -> list[Process]:
    """Returns all that live; zombies do not."""
    if not Path("/proc/self/stat").exists():
        return _listed_by_ps()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text(errors="replace")
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended
            continue
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        state, parent, *_ = stat[stat.rindex(")") + 2 :].split()
        if state not in "ZX":
            found.append(Process(int(folder.name), int(parent), name, " ".join(words).strip()))
    return found


def _listed_by_ps() -> list[Process]:
    columns = ["ps", "-axww", "-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "ucomm=", "-o", "args="]
    listed = subprocess.run(columns, capture_output=True, text=True, check=True).stdout
    rows = (line.split(maxsplit=4) for line in listed.splitlines())
    return [
        Process(int(pid), int(parent), name[:15], " ".join(arguments))
        for pid, parent, state, name, *arguments in rows
        if not state.startswith("Z")
    ]
