"""Running one rsync client: progress out, the file list in, and a clean end on Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from clusterkit.transport import rsync
from clusterkit.transport.base import ProgressCallback, Transferred

_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class TransferEnd:
    """How an rsync client ended."""

    code: int
    stderr: str
    transferred: Transferred


def run_rsync(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    progress: ProgressCallback | None = None,
    pass_fds: Sequence[int] = (),
    on_start: Callable[[], None] | None = None,
) -> TransferEnd:
    """Run rsync to its end; whatever interrupts us also ends rsync, which keeps its partial files.

    Args:
        argv: from `rsync.build_argv`.
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
        errors: list[bytes] = []
        helpers = [
            threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True),
            threading.Thread(target=_collect, args=(process.stderr, errors), daemon=True),
        ]
        for helper in helpers:
            helper.start()
        parser = rsync.OutputParser()
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
    return TransferEnd(code, b"".join(errors).decode("utf-8", "replace"), parser.transferred())


def find_rsync() -> str:
    """The rsync program of this machine.

    Raises:
        NoRsyncError: there is none.
    """
    program = shutil.which("rsync")
    if program is None:
        raise rsync.NoRsyncError(
            "rsync is not installed on this machine",
            where="this machine",
            hint="install it: apt install rsync, dnf install rsync or brew install rsync",
        )
    return program


def make_folders(folder: Path) -> None:
    """Create a folder and its missing parents, each with mode 0700 (not the umask's)."""
    missing = [folder, *folder.parents]
    for one in reversed(missing):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


def _feed(pipe: IO[bytes], data: bytes) -> None:
    try:
        with pipe:
            pipe.write(data)
    except BrokenPipeError:
        return  # rsync ended without reading it all; its exit status says why


def _collect(pipe: IO[bytes], chunks: list[bytes]) -> None:
    with pipe:
        while data := os.read(pipe.fileno(), 1 << 16):
            chunks.append(data)


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
