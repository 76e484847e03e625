"""clusterkit and trainer commands, each in a process of its own that need not import anything.

A command works for some hundredths of a second and imports for half of one, or with PyTorch for three, and
the tests type hundreds of them. Here each is forked from a process that has imported all of its program, and
has folder, environment, streams, session and exit code of its own. What a cold start is like, the tests show
that start `python -m clusterkit` or `python -m trainer` themselves.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import forking

PATIENCE_SECONDS = 120.0
_BY_PYTHON = ("PYTHON", "LANG", "LC_", "TZ", "LD_")
READ_AT_IMPORT = {
    "clusterkit": (*_BY_PYTHON, "FORCE_COLOR", "PY_COLORS"),
    "trainer": (
        *(*_BY_PYTHON, "TERM", "COLORTERM", "FORCE_COLOR", "NO_COLOR", "OMP_", "MKL_", "OPENBLAS_"),
        *("TORCH", "PYTORCH", "KMP_", "CUDA_", "MUJOCO_", "PYOPENGL"),
    ),
}
"""How variables begin that Python or a program's libraries look at before a command begins."""


def of_python(program: str = "clusterkit", env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that are read at import: commands with the same ones come from the same process."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_IMPORT[program])}


def run(
    words: Sequence[str], *, folder: Path, env: Mapping[str, str], program: str = "clusterkit"
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with nothing to read.

    Args:
        words: of the command line, after the program's name.
        folder: where it runs.
        env: all of its environment.
        program: clusterkit or trainer.
    """
    parent = _parent(program, env)
    if parent is None:
        return cold(words, folder=folder, env=env, program=program)
    ends = [os.pipe(), os.pipe()]
    process = parent.fork(words, folder, env, [write for _, write in ends], own_session=False)
    with ThreadPoolExecutor(2) as threads:
        stdout, stderr = threads.map(_all_of, [read for read, _ in ends])
    return subprocess.CompletedProcess(_argv(program, words), process.wait(), stdout, stderr)


def cold(
    words: Sequence[str], *, folder: Path, env: Mapping[str, str], program: str = "clusterkit"
) -> subprocess.CompletedProcess[str]:
    """The same with imports of its own, as it is when a person types it."""
    return subprocess.run(
        _argv(program, words),
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def start(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    program: str = "trainer",
) -> Process | subprocess.Popen[str]:
    """Start a command in a session of its own; what it writes on both streams comes from `communicate`.

    Args:
        words: of the command line, after the program's name.
        env: all of its environment; by default this process's.
        folder: where it runs; by default where this process does.
        program: clusterkit or trainer.
    """
    env = os.environ if env is None else env
    folder = Path.cwd() if folder is None else folder
    parent = _parent(program, env)
    if parent is None:
        return subprocess.Popen(
            _argv(program, words),
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    read, write = os.pipe()
    return parent.fork(words, folder, env, [write, os.dup(write)], own_session=True, output=read)


def at_terminal(
    words: Sequence[str], terminal: int, *, env: Mapping[str, str], folder: Path
) -> Process | subprocess.Popen[bytes]:
    """Start a clusterkit command on a terminal, in a session of its own.

    Args:
        words: of the command line, after the program's name.
        terminal: the descriptor that is the program's end; it is closed here.
        env: all of its environment.
        folder: where it runs.
    """
    parent = _parent("clusterkit", env)
    if parent is not None:
        return parent.fork(words, folder, env, [terminal], own_session=False, terminal=True)
    argv = _argv("clusterkit", words)
    code = f"import os; os.login_tty({terminal}); os.execv({argv[0]!r}, {argv!r})"
    process = subprocess.Popen([argv[0], "-c", code], cwd=folder, env=env, pass_fds=[terminal])
    os.close(terminal)
    return process


class Process:
    """A command that was started: as `subprocess.Popen`, as far as the tests need it.

    Attributes:
        pid: its process id, and its group's if the session is its own.
        returncode: None before it was found to have ended; less than zero is a signal.
    """

    def __init__(self, answers: int, output: int) -> None:
        self._answers = open(answers)  # noqa: SIM115
        self._output = output
        self._written = b""
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not after so many seconds.
        """
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("the command", timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """All it has written, once it and all that could write has ended.

        Raises:
            subprocess.TimeoutExpired: as `wait`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self._output >= 0:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([self._output], [], [], left)[0]:
                raise subprocess.TimeoutExpired("the command", timeout or 0, self._written)
            part = os.read(self._output, 65536)
            self._written += part
            if not part:
                os.close(self._output)
                self._output = -1
        self.wait(None if end is None else max(1.0, end - time.monotonic()))
        return self._written.decode(), None

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class _Parent:
    """A process that has imported everything, for the whole test run; it ends with the last that asks it."""

    def __init__(self, program: str, env: Mapping[str, str]) -> None:
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
        seen = hashlib.sha256(repr((program, sorted(env.items()))).encode()).hexdigest()
        address = f"clusterkit-tests-{run}-{seen[:16]}"
        self._link = socket.socket(socket.AF_UNIX)
        self._processes: list[subprocess.Popen[bytes]] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._link.connect_ex("\0" + address):
            assert time.monotonic() < deadline, f"no process to fork {program} from"
            if all(process.poll() is not None for process in self._processes):
                argv = [sys.executable, forking.__file__, program, address]
                self._processes.append(
                    subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                )
            time.sleep(0.01)

    def fork(
        self,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        streams: list[int],
        *,
        own_session: bool,
        terminal: bool = False,
        output: int = -1,
    ) -> Process:
        """A new process, which alone holds the streams from now on."""
        answers, told = os.pipe()
        with tempfile.TemporaryFile("w+") as request:
            json.dump(forking.Command([*words], str(folder), dict(env), own_session, terminal), request)
            request.flush()
            request.seek(0)
            socket.send_fds(self._link, [b"\n"], [request.fileno(), *streams, told])
        for end in (*streams, told):
            os.close(end)
        return Process(answers, output)


_parents: dict[tuple[str, frozenset[tuple[str, str]]], _Parent] = {}


def _parent(program: str, env: Mapping[str, str]) -> _Parent | None:
    if sys.platform != "linux":
        return None
    same = of_python(program, env)
    key = program, frozenset(same.items())
    if key not in _parents:
        _parents[key] = _Parent(program, same)
    return _parents[key]


def _argv(program: str, words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", program, *words]


def _all_of(stream: int) -> str:
    with open(stream) as file:
        return file.read()
