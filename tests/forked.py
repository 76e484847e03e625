"""clusterkit commands, each in a process of its own that need not import anything.

A command works for some hundredths of a second and imports for half of one, and the tests type hundreds of
them. Here each is forked from a process that has imported all of clusterkit, and has folder, environment,
streams and exit code of its own. What a cold start is like, the tests show that start
`python -m clusterkit` themselves.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

READ_AT_IMPORT = ("PYTHON", "LANG", "LC_", "TZ", "TERM", "COLORTERM", "FORCE_COLOR", "NO_COLOR", "PY_COLORS")
"""How variables begin that Python, Rich or Typer look at before a command begins."""


def run(words: Sequence[str], *, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a clusterkit command to its end, with nothing to read.

    Args:
        words: of the command line, after `clusterkit`.
        folder: where it runs.
        env: all of its environment.
    """
    parent = _parent(env)
    if parent is None or not parent.free.acquire(blocking=False):
        return cold(words, folder=folder, env=env)
    try:
        return subprocess.CompletedProcess(_argv(words), *parent.run(words, folder, env))
    finally:
        parent.free.release()


def cold(words: Sequence[str], *, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """The same with imports of its own, as it is when a person types it."""
    return subprocess.run(
        _argv(words),
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _argv(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "clusterkit", *words]


class _Parent:
    """The process that has imported everything; it ends with this one."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.free = Lock()
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def run(self, words: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[int, str, str]:
        """The exit code, or less than zero the signal, and what came on both streams."""
        ends = [os.pipe(), os.pipe()]
        socket.send_fds(self._link, [b"\n"], [write for _, write in ends])
        for _, write in ends:
            os.close(write)
        self._link.sendall(json.dumps([[*words], str(folder), dict(env)]).encode() + b"\n")
        with ThreadPoolExecutor(2) as threads:
            stdout, stderr = threads.map(_all_of, [read for read, _ in ends])
        with self._link.makefile() as answers:
            return int(answers.readline()), stdout, stderr


_parents: dict[frozenset[tuple[str, str]], _Parent] = {}


def _parent(env: Mapping[str, str]) -> _Parent | None:
    if sys.platform != "linux":
        return None
    same = {name: value for name, value in env.items() if name.startswith(READ_AT_IMPORT)}
    key = frozenset(same.items())
    if key not in _parents:
        _parents[key] = _Parent(same)
    return _parents[key]


def _all_of(stream: int) -> str:
    with open(stream) as file:
        return file.read()


def _next_command(link: socket.socket) -> list[str] | None:
    """Returns in a new process what it is to do, and in this one None when nothing more comes."""
    while True:
        _, streams, _, _ = socket.recv_fds(link, 1, 2)
        if not streams:
            return None
        with link.makefile() as requests:
            words, folder, env = json.loads(requests.readline())
        process = os.fork()
        if process == 0:
            link.close()
            for number, stream in enumerate(streams, start=1):
                os.dup2(stream, number)
                os.close(stream)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(env)
            sys.path.insert(0, folder)
            return list(words)
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(process, 0)
        link.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _import_all() -> None:
    import clusterkit

    for module in pkgutil.walk_packages(clusterkit.__path__, "clusterkit."):
        if module.name not in ("clusterkit.__main__", "clusterkit.launch", "clusterkit.checkup.inside"):
            __import__(module.name)
    gc.freeze()  # what every process shares need not be looked at by each


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    _import_all()
    command = _next_command(socket.socket(fileno=int(sys.argv[1])))
    if command is not None:
        sys.argv[1:] = command
        runpy.run_module("clusterkit", run_name="__main__", alter_sys=True)
