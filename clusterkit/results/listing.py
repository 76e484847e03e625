"""What lies in run directories on the cluster: the command that lists them and the reader of its output.

One listing of all wanted runs costs one command on the open connection. It tells which checkpoint is the
newest, and when nothing has changed it is all that is asked of the cluster. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

NO_SUCH_ROOT = 3
"""Exit status of the listing when the folder of all runs does not exist."""

_WITHOUT_GNU_FIND = """
import os, stat, sys
def show(path):
    info = os.lstat(path)
    kind = "d" if stat.S_ISDIR(info.st_mode) else "f" if stat.S_ISREG(info.st_mode) else "o"
    line = f"{kind} {info.st_size} {info.st_mtime_ns // 10**9}.{info.st_mtime_ns % 10**9:09d} {path}"
    sys.stdout.buffer.write(os.fsencode(line) + bytes(1))
for start in sys.argv[1:]:
    if os.path.lexists(start):
        show(start)
    for folder, folders, files in os.walk(start):
        for name in folders + files:
            show(os.path.join(folder, name))
"""

_SCRIPT = f"""
cd -- "$1" || exit {NO_SUCH_ROOT}
shift
if find . -prune -printf '' 2>/dev/null; then
    exec find "$@" -printf '%y %s %T@ %p\\0'
fi
exec python3 -c "$PROGRAM" "$@"
"""
"""%y type, %s bytes, %T@ mtime in seconds with fraction, %p path. BSD and busybox find have no -printf."""

_ENTRY = re.compile(r"(.) (\d+) (\d+)(?:\.(\d+))? \./(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class RemoteFile:
    """A regular file in a run directory."""

    path: str
    """Relative to the folder of all runs; its first part is the run id."""
    size: int
    mtime_ns: int

    @property
    def run_id(self) -> str:
        """The run it belongs to."""
        return self.path.partition("/")[0]

    @property
    def inside(self) -> str:
        """Its path inside the run directory."""
        return self.path.partition("/")[2]


@dataclass(frozen=True)
class Listing:
    """The content of some run directories."""

    run_ids: frozenset[str]
    """The runs that exist."""
    files: tuple[RemoteFile, ...]
    refused: tuple[str, ...]
    """Names that are not brought home, escaped: control characters or bytes that are no UTF-8."""


def list_argv(runs_root: str, run_ids: Sequence[str]) -> list[str]:
    """Argv that lists run directories; runs that do not exist are left out, links are not followed."""
    program = f"PROGRAM='{_WITHOUT_GNU_FIND}'\n{_SCRIPT}"
    return ["sh", "-c", program, "sh", runs_root, *(f"./{run_id}" for run_id in run_ids)]


def parse_listing(stdout: bytes) -> Listing:
    """Read what `list_argv` printed. Links, devices, sockets and pipes are passed over."""
    run_ids = set()
    files = []
    refused = []
    for raw in stdout.split(b"\0"):
        entry = _ENTRY.fullmatch(raw.decode("utf-8", "surrogateescape"))
        if entry is None:
            continue
        kind, size, seconds, fraction, path = entry.groups()
        if kind == "d" and "/" not in path:
            run_ids.add(path)
        elif kind == "f" and _CONTROL.search(path):
            refused.append(ascii(path)[1:-1])
        elif kind == "f" and "/" in path:
            nanoseconds = int((fraction or "")[:9].ljust(9, "0"))
            files.append(RemoteFile(path, int(size), int(seconds) * 10**9 + nanoseconds))
    return Listing(frozenset(run_ids), tuple(files), tuple(refused))
