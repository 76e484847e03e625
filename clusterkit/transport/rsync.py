"""Runs rsync: its argv, its output as it comes, and a clean end on Ctrl-C.

Written for rsync 3.1 and newer on both sides (`--info=progress2` appeared in 3.1.0, protected
arguments in 3.0.0); see rsync(1) for every option named here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from clusterkit.errors import TransportError
from clusterkit.folders import PARTIAL_DIR, make_private
from clusterkit.transport.base import ProgressCallback, SyncOptions, TransferProgress, Transferred, Words
from clusterkit.transport.faults import NoRsyncError, unwritable

REMOTE = "remote"
"""The host name rsync is shown; our own remote shell ignores it."""

VANISHED = 24
"""rsync's exit status when source files disappeared while it worked, as they do below a live run."""

_STOP_SECONDS = 10.0
_RATE_UNITS = {"k": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4}
_PROGRESS = re.compile(
    r"\s*([0-9]{1,18})\s+([0-9]{1,3})%\s+([0-9]{1,9}(?:\.[0-9]+)?)([kMGT])B/s\s+\S+"
    r"(?:\s+\(.*?(ir|to)-chk=\d+/\d+\))?"
)
_LONGEST_LINE = 4096
"""Of a line's bytes, those at its end are read: what a remote rsync says comes with the reports."""
_STATS = {
    "Number of regular files transferred": "files",
    "Literal data": "bytes",
}


@dataclass(frozen=True)
class TransferEnd:
    """How an rsync client ended."""

    code: int
    stderr: str
    transferred: Transferred


def build_argv(
    source: str,
    target: str,
    options: SyncOptions,
    *,
    folder: bool,
    pulling: bool,
    rsh: Sequence[str] | None = None,
) -> list[str]:
    """Argv of the rsync client that copies `source` onto `target`.

    Args:
        source: absolute path of a file or folder; on the remote side when `pulling`.
        target: absolute path; or on the remote side, when not `pulling`, one `safe_as_target`.
        options: what to move and how. `append` verifies the old part of a file by checksum and
            sends the file anew when it was replaced instead of grown.
        folder: the contents of `source` become the contents of `target`; else both are files.
        pulling: the source is the side that is not trusted: links that leave the tree are skipped.
        rsh: argv prefix of the remote shell; None copies on this machine.

    With `options.files_from` the caller feeds `files_from_input(options)` to standard input.
    """
    argv = [
        "rsync",
        "-pt" if options.files_only else "-rlpt",
        "--protect-args",
        "--no-human-readable",
        "--8-bit-output",
    ]
    argv += ["--info=progress2", "--stats", "--outbuf=L"]
    argv += _behaviour(options, folder=folder, pulling=pulling)
    if rsh is not None:
        argv.append(f"--rsh={quote_rsh(rsh)}")
    if folder:
        source, target = source.rstrip("/") + "/", target.rstrip("/") + "/"
    if rsh is not None and pulling:
        source = f"{REMOTE}:{_escape_wildcards(source)}"
    elif rsh is not None:
        target = f"{REMOTE}:{target}"
    return [*argv, "--", source, target]


def _behaviour(options: SyncOptions, *, folder: bool, pulling: bool) -> list[str]:
    argv: list[str] = []
    if options.append:
        argv.append("--append-verify")
    elif options.inplace:
        argv += ["--inplace", "--partial"]
    else:
        argv.append(f"--partial-dir={PARTIAL_DIR}")
    if not folder:  # a single file that is a link means what it points to
        argv.append("--copy-links")
    elif pulling and not options.files_only:
        argv.append("--safe-links")
    argv += [f"--exclude={pattern}" for pattern in options.exclude]
    if options.files_from is not None:
        argv += ["--from0", "--files-from=-"]
    if options.max_size is not None:
        argv.append(f"--max-size={options.max_size}")
    if options.delete:
        argv.append("--delete")
    argv += [f"--link-dest={folder}" for folder in options.link_dest]
    if options.checksum:
        argv.append("--checksum")
    if options.bandwidth_limit is not None:
        argv.append(f"--bwlimit={max(1, options.bandwidth_limit // 1024)}")  # rsync counts KiB/s
    if options.mode is not None:
        argv.append(f"--chmod={options.mode}")
    return argv


def prepare_target(target: Path, source: str, *, folder: bool) -> None:
    """Makes a target on this machine ready.

    Raises:
        TransportError: it is a folder and the source is a file, or its parent folder cannot be made.
    """
    if not folder and target.is_dir():
        raise TransportError(f"{target} on this machine is a folder, and {source} is a file")
    try:
        make_private(target.parent)
    except OSError as error:
        raise unwritable(str(target), error.strerror or str(error), where="this machine") from error


def files_from_input(options: SyncOptions) -> bytes:
    """Returns what rsync reads from standard input for `options.files_from`; empty without it.

    Raises:
        ValueError: a path is absolute, climbs with `..`, is empty or holds a NUL.
    """
    if options.files_from is None:
        return b""
    for path in options.files_from:
        if not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise ValueError(f"not a relative path below the source: {path!r}")
    # "./" keeps a leading "#" or ";" from being read as a comment
    return b"".join(b"./" + path.encode("utf-8", "surrogateescape") + b"\0" for path in options.files_from)


def quote_rsh(words: Sequence[str]) -> str:
    """Joins words the way rsync splits `--rsh`: blanks split, quotes keep, a doubled quote is one."""
    return " ".join("'" + word.replace("'", "''") + "'" for word in words)


def safe_as_target(path: str) -> bool:
    """Returns whether a remote target reaches rsync's remote half unchanged.

    It globs even targets, takes a pattern without a match as it stands, and so can be told neither
    way about a new file whose name holds a wildcard. Folders avoid this: enter them, then name `.`.
    """
    return re.search(r"[*?[]", path) is None


def _escape_wildcards(path: str) -> str:
    """Remote sources are globbed by the remote rsync, where backslashes count only beside a wildcard."""
    if safe_as_target(path):
        return path
    return re.sub(r"([*?[\]\\])", r"\\\1", path)


class OutputParser:
    """Reads rsync's standard output as it comes: progress reports, then the closing statistics."""

    def __init__(self) -> None:
        self._rest = b""
        self._stats: dict[str, int] = {}
        self._bounds = (0.0, float("inf"))

    def feed(self, data: bytes) -> list[TransferProgress]:
        """Returns the progress reports that became complete with these bytes."""
        *lines, rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = rest[-_LONGEST_LINE:]
        reports = (self._line(line.decode("utf-8", "replace")) for line in lines)
        return [report for report in reports if report is not None]

    def transferred(self) -> Transferred:
        """Returns the totals. Zeros for statistics rsync did not print."""
        self.feed(b"\n")
        return Transferred(**{"files": 0, "bytes": 0, **self._stats})

    def _line(self, line: str) -> TransferProgress | None:
        if report := _PROGRESS.match(line):
            arrived, percent, rate, unit, check = report.groups()
            total = self._total(int(arrived), int(percent), growing=check == "ir")
            return TransferProgress(int(arrived), total, float(rate) * _RATE_UNITS[unit])
        name, _, value = line.partition(":")
        if name in _STATS and (digits := re.match(r"\s*([0-9,.]{1,24})", value)):
            self._stats[_STATS[name]] = int(re.sub(r"\D", "", digits[1]) or 0)
        return None

    def _total(self, arrived: int, percent: int, *, growing: bool) -> int | None:
        """The total, narrowed down from whole per cents: percent <= 100 * done / total < percent + 1."""
        if growing:  # rsync is still discovering files
            self._bounds = (0.0, float("inf"))
            return None
        if percent == 0:
            return None
        if percent >= 100:
            return arrived
        low, high = (
            max(self._bounds[0], 100 * arrived / (percent + 1)),
            min(self._bounds[1], 100 * arrived / percent),
        )
        if low > high:  # the list has grown since the last report
            low, high = 100 * arrived / (percent + 1), 100 * arrived / percent
        self._bounds = (low, high)
        return max(arrived, round((low + high) / 2))


def run_rsync(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    progress: ProgressCallback | None = None,
    pass_fds: Sequence[int] = (),
    on_start: Callable[[], None] | None = None,
) -> TransferEnd:
    """Runs rsync to its end; whatever interrupts us also ends rsync, which keeps its partial files.

    Args:
        argv: from `build_argv`.
        stdin: what it reads from standard input.
        progress: called in the calling thread with each report.
        pass_fds: file descriptors that rsync and its remote shell inherit.
        on_start: called once the process runs (time to close this side's copies of `pass_fds`).

    Raises:
        NoRsyncError: there is no rsync on this machine.
    """
    program = find_rsync()
    process = subprocess.Popen(
        [program, *argv[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
        pass_fds=pass_fds,
        start_new_session=True,  # a Ctrl-C reaches us alone, and we end rsync in order
    )
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise AssertionError("pipes were asked for")
    try:
        if on_start is not None:
            on_start()
        errors = Words()
        helpers = [
            threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True),
            threading.Thread(target=_collect, args=(process.stderr, errors), daemon=True),
        ]
        for helper in helpers:
            helper.start()
        parser = OutputParser()
        while data := os.read(process.stdout.fileno(), 1 << 16):
            for report in parser.feed(data):
                if progress is not None:
                    progress(report)
        code = process.wait()
        for helper in helpers:
            helper.join()
    except BaseException:
        _stop(process)
        raise
    finally:
        process.stdout.close()
    return TransferEnd(code, errors.text, parser.transferred())


def find_rsync() -> str:
    """Returns the rsync program of this machine.

    Raises:
        NoRsyncError: there is none.
    """
    program = shutil.which("rsync")
    if program is None:
        raise NoRsyncError(
            "rsync is not installed on this machine",
            where="this machine",
            hint="install it: apt install rsync, dnf install rsync or brew install rsync",
        )
    return program


def _feed(pipe: IO[bytes], data: bytes) -> None:
    try:
        with pipe:
            pipe.write(data)
    except BrokenPipeError:
        return  # rsync ended without reading it all; its exit status says why


def _collect(pipe: IO[bytes], words: Words) -> None:
    with pipe:
        while data := os.read(pipe.fileno(), 1 << 16):
            words.add(data)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT lets rsync move its unfinished file into the partial folder; SIGKILL is the last resort."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
