"""Counts and removes the code that ended runs still have in their working directories. Pure.

A run that ends by itself removes its copy of the code (templates/work.sh.j2); one that is killed does not. A
file counts as copied code while it is as the copy left it, by its change time, too, which no program can set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusterkit.backends.jobs import WORK, WORK_LIST
from clusterkit.folders import PARTIAL_DIR
from clusterkit.resources import shell_script
from clusterkit.results.listing import LONGEST_LIST


@dataclass(frozen=True)
class CodeCopy:
    """The copied code of one run."""

    files: int
    bytes: int


NO_CODE = CodeCopy(0, 0)


def code_argv(what: str, root: str, runs: Mapping[str, int]) -> list[str]:
    """Returns argv that prints lines for `parse_code`; it needs GNU find, without which it finds nothing.

    Args:
        what: `count` or `remove`.
        root: the folder of all runs.
        runs: run id -> number of its submissions; a run with more of them keeps its code.
    """
    script = shell_script(
        "code-copies.sh",
        WORK=WORK,
        WORK_LIST=WORK_LIST,
        PARTIAL_DIR=PARTIAL_DIR,
        LONGEST_LIST=LONGEST_LIST,
    )
    return ["sh", "-c", script, "sh", what, root, *(f"{count}:{run_id}" for run_id, count in runs.items())]


def parse_code(stdout: str) -> tuple[dict[str, CodeCopy], dict[str, str]]:
    """Returns the copies that are there now, and why others were not removed; both by run id."""
    copies, left = {}, {}
    for line in stdout.splitlines():
        match line.split(" "):
            case ["code", run_id, files, size] if files.isdecimal() and size.isdecimal():
                copies[run_id] = CodeCopy(int(files), int(size))
            case ["again", run_id]:
                left[run_id] = "it was submitted again meanwhile"
            case ["lives", run_id]:
                left[run_id] = "a process of it still runs"
            case ["failed", run_id]:
                left[run_id] = "nothing can be written to its folder"
    return copies, left
