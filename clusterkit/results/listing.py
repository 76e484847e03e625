"""Lists run directories on the cluster: builds the command and parses its output. Pure.

One command on the open connection lists all wanted runs. The listing shows which checkpoint is the newest,
and if nothing has changed, it is the only command that runs on the cluster.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clusterkit.backends.jobs import GROUP_LOG, SCHEDULER_LOG, WORK_LIST
from clusterkit.untrusted import can_be_shown, of_tools

NO_SUCH_ROOT = 3
"""Exit status of the listing if the folder of all runs does not exist."""

LONGEST_LIST = 256 << 10
"""KiB of a list of code that is read: two million files."""
_WITHOUT_GNU_FIND = """
import os, stat, sys
def seconds(ns):
    return f"{ns // 10**9}.{ns % 10**9:09d}0"
def show(path):
    info = os.lstat(path)
    kind = "d" if stat.S_ISDIR(info.st_mode) else "f" if stat.S_ISREG(info.st_mode) else "o"
    kind = "l" if stat.S_ISLNK(info.st_mode) else kind
    read = "+" if os.access(path, os.R_OK) else "-"
    if kind + read == "d+" and path not in sys.argv:
        return
    line = f"{kind}{read} {info.st_size} {seconds(info.st_mtime_ns)} {seconds(info.st_ctime_ns)} {path}//"
    line = os.fsencode(line + (os.readlink(path) if kind == "l" else ""))
    if line not in code:
        sys.stdout.buffer.write(line + bytes(1))
for start in sys.argv[1:]:
    try:
        code = set(open(start + "/WORK_LIST", "rb").read().split(bytes(1)))
    except OSError:
        code = set()
    if os.path.lexists(start):
        show(start)
    for folder, folders, files in os.walk(start):
        for name in folders + files:
            show(os.path.join(folder, name))
""".replace("WORK_LIST", WORK_LIST)

_SCRIPT = f"""
cd -- "$1" || exit {NO_SUCH_ROOT}
set -f
set -- $(cat)
exec 3>&1
code() {{
    find "$@" -maxdepth 1 -name {WORK_LIST} -type f -size -{LONGEST_LIST}k \\
        -exec cat {{}} {{}} \\; 2>/dev/null
}}
status=$({{ {{
    code "$@"
    find "$@" -type d -path './*/*' -readable \\
        -o \\( -readable -printf '%y+ %s %T@ %C@ %p//%l\\0' \\) -o -printf '%y- %s %T@ %C@ %p//%l\\0'
    echo $? >&4
    code "$@"
}} | LC_ALL=C sort -z | LC_ALL=C uniq -zu >&3; }} 4>&1)
test "$status" != 0 || exit 0
! find . -prune -readable -printf '' 2>/dev/null || exit "$status"
exec python3 -c "$PROGRAM" "$@"
"""
"""%y type, %s bytes, %T@ mtime and %C@ ctime in seconds with fraction, %p path (without a //), %l target of a
link; + is readable. Left out are folders, unless they cannot be read or are a run, and the code in working
directories as it was copied (templates/work.sh.j2): lines that are there more than once. No program can set a
ctime, so no file that it wrote has such a line, whatever its size and mtime. A list is read twice, as a job
may remove it meanwhile, or write it. BSD and busybox find have no -printf."""

_ENTRY = re.compile(r"(.)([+-]) (\d{1,19}) (-?\d{1,18})(?:\.(\d+))? (?:[\d.-]+ )?(.*?)//(.*)", re.DOTALL)
_OF_ENVIRONMENT = re.compile(r"([^/]+/.+?/)(?:pyvenv\.cfg|conda-meta/.*)", re.DOTALL | re.IGNORECASE)
"""A file inside a run by which a virtual environment below it is known."""
_NOT_BELOW = re.compile(r"/\.{0,2}(/|\Z)")
_OF_GROUP = re.compile(
    r"[^/]+/(submissions/\d+/[a-z]+ (\.\./){4}groups/[^/]+/submissions/\d+/[a-z]+"
    rf"|{re.escape(SCHEDULER_LOG)} (\.\./){{2}}groups/[^/]+/{GROUP_LOG})"
)
"""clusterkit's own links to the scheduler's output for a whole group, which are not pulled."""
_OF_WANDB = re.compile(
    r"[^/]+/([^\0]*/)?wandb/((offline-)?run-[^/]+/logs/debug-core\.log [^\0]*/core-debug-[0-9_]+\.log"
    r"|(latest-run|debug(-internal|-core)?\.log) (offline-)?run-[^\0]*)"
)
"""The W&B client's links: to a log in its cache, one in each run directory of its, and to its newest run."""
_LONGEST_NAME, _LONGEST_PATH = 255, 2048
"""Bytes: the limit of file systems for a name, and a path limit with space for the results folder."""
_KINDS = {
    "f": "a file",
    "l": "a link to outside the run",
    "p": "a named pipe",
    "s": "a socket",
    "c": "a device",
    "b": "a device",
}


class RemoteFile(NamedTuple):
    """A regular file in a run directory."""

    path: str
    """Relative to the folder of all runs; the first component is the run id."""
    size: int
    mtime_ns: int

    @property
    def run_id(self) -> str:
        """The run that the file belongs to."""
        return self.path.partition("/")[0]

    @property
    def inside(self) -> str:
        """The path inside the run directory."""
        return self.path.partition("/")[2]


@dataclass(frozen=True)
class Refused:
    """A path of a run that is not pulled."""

    path: str
    """As in `RemoteFile`."""
    why: str

    @property
    def text(self) -> str:
        """The path inside the run and the reason, escaped to one line."""
        inside = self.path.partition("/")[2]
        name = inside if can_be_shown(inside) else ascii(inside)[1:-1]
        return f"{name if len(name) <= 200 else name[:200] + '...'}: {self.why}"


class RunLink(NamedTuple):
    """A link that stays inside its run."""

    path: str
    """As in `RemoteFile`."""
    target: str
    """What it leads to in the end, likewise."""


@dataclass(frozen=True)
class Listing:
    """The content of some run directories."""

    run_ids: frozenset[str]
    """The wanted runs that exist on the cluster."""
    files: tuple[RemoteFile, ...]
    refused: tuple[Refused, ...]
    """What stays on the cluster, except links that nobody misses: clusterkit's and the W&B client's own."""
    links: tuple[RunLink, ...] = ()


def list_argv(runs_root: str) -> list[str]:
    """Returns argv that lists run directories; it skips runs that do not exist and does not follow links."""
    return ["sh", "-c", f"PROGRAM='{_WITHOUT_GNU_FIND}'\n{_SCRIPT}", "sh", runs_root]


def list_input(run_ids: Sequence[str]) -> bytes:
    """Its standard input for some runs, whose ids have no blanks."""
    return "".join(f"./{run_id}\n" for run_id in dict.fromkeys(run_ids)).encode()


def parse_listing(stdout: bytes, run_ids: Collection[str]) -> Listing:
    """Parses the output of `list_argv` for these runs as untrusted input.

    Raises:
        ValueError: it names another run, an absolute path, or a path with `..`.
    """
    found: set[str] = set()
    files: dict[str, RemoteFile] = {}
    refused: dict[str, Refused] = {}
    links: dict[str, str] = {}
    for line in stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            continue
        kind, read, size, seconds, fraction, path, target = entry.groups()
        if target and kind != "l":
            raise ValueError(f"it names {path[:200]!a}//")
        path = _below(path, run_ids)
        if "/" not in path:
            if kind == "d":
                found.add(path)
            else:
                refused[path] = Refused(f"{path}/", f"{_kind(kind)}, not a folder")
            continue
        why = _why_not(kind, path, target, readable=read == "+")
        if why:
            refused[path] = Refused(path, why)
        elif kind == "l":
            if (inside := _stays_inside(path, target)) and not _OF_WANDB.fullmatch(f"{path} {target}"):
                links[path] = inside
        elif kind == "f":
            nanoseconds = int((fraction or "")[:9].ljust(9, "0"))
            files[path] = RemoteFile(path, int(size), int(seconds) * 10**9 + nanoseconds)
    for folder in _environments((*files, *links)):
        files = {path: file for path, file in files.items() if not path.startswith(folder)}
        links = {path: target for path, target in links.items() if not path.startswith(folder)}
        refused[folder] = Refused(folder, "a virtual environment")
    for path in parent_folders(files) & files.keys():
        refused[path] = Refused(path, "a file and a folder at once")
        del files[path]
    ends = tuple(RunLink(path, _end(path, links)) for path in links)
    return Listing(frozenset(found), tuple(files.values()), tuple(refused.values()), ends)


_MAKES_ENVIRONMENT = re.compile(r"[^/]+/(?:pyvenv\.cfg|conda-meta(?:/.*)?)", re.DOTALL | re.IGNORECASE)
"""What would make the run's own folder one."""


def _environments(files: Iterable[str]) -> list[str]:
    """Returns the outermost folders that are virtual environments, each with a slash at its end."""
    found: list[str] = []
    marked = {match[1] for path in files if (match := _OF_ENVIRONMENT.fullmatch(path))}
    for folder in sorted(marked):
        if not found or not folder.startswith(found[-1]):
            found.append(folder)
    return found


def _below(path: str, run_ids: Collection[str]) -> str:
    """Returns a validated path without its leading `./`."""
    start, _, rest = path.partition("/")
    if start != "." or rest.partition("/")[0] not in run_ids or _NOT_BELOW.search(path):
        raise ValueError(f"it names {path[:200]!a}")
    return rest


def _why_not(kind: str, path: str, target: str, *, readable: bool) -> str | None:
    """Returns why a path must not be pulled; None if it may be pulled or is not needed."""
    if kind == "l":
        link = f"{path} {target}"
        if _OF_GROUP.fullmatch(link) or _OF_WANDB.fullmatch(link):
            return None
        if _stays_inside(path, target) and can_be_shown(path) and not _too_long(path.encode()):
            return None
    if of_tools(path):
        return "its name is one of git's, or of another tool that runs programs from there"
    if _MAKES_ENVIRONMENT.fullmatch(path):
        return "its name is that of a part of a virtual environment"
    if not can_be_shown(path):
        return "its name contains characters that cannot be shown"
    if len(path) > _LONGEST_NAME // 4 and _too_long(path.encode()):
        return "its name is too long"
    if kind not in "fd":
        return _kind(kind) + (f" (to {ascii(target[:100])[1:-1]})" if kind == "l" else "")
    return None if readable else "it cannot be read there"


def _too_long(path: bytes) -> bool:
    if len(path) <= _LONGEST_NAME:
        return False
    return len(path) > _LONGEST_PATH or any(len(name) > _LONGEST_NAME for name in path.split(b"/"))


def _kind(letter: str) -> str:
    return _KINDS.get(letter, "neither a file nor a folder")


def _stays_inside(path: str, target: str) -> str | None:
    """Returns the target of a link, taken as text, if it lies in its own run."""
    if not target or target.startswith("/"):
        return None
    way = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return way if way.startswith(path.partition("/")[0] + "/") else None


def _end(path: str, links: Mapping[str, str]) -> str:
    """Returns where a chain of links leads; somewhere on it, if it is a ring or longer than Linux follows."""
    for _ in range(40):
        if path not in links:
            break
        path = links[path]
    return path


def parent_folders(paths: Iterable[str]) -> set[str]:
    """Returns all parent folders of some files."""
    folders: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in folders:
            folders.add(path)
    return folders
