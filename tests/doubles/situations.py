"""Runs commands where a shell, a terminal or a machine leaves something out; used by tests/cli/test_edge.py.

Every command is forked from a process that has imported all of clusterkit, as in tests/forking.py, and has
what is changed about the world to itself.
"""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

SECONDS = 60
"""After which a command that waits for something is ended, by SIGALRM."""


def nothing_else() -> None:
    """The world as it is."""


def stdin_closed() -> None:
    """`<&-`."""
    os.close(0)
    sys.stdin = None  # type: ignore[assignment]


def stdout_closed() -> None:
    """`>&-`."""
    os.close(1)
    sys.stdout = None  # type: ignore[assignment]


def stdout_full() -> None:
    """`>/dev/full`."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def stderr_full() -> None:
    """`2>/dev/full`."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


def reader_gone() -> None:
    """`| head -0`."""
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, 1)


def ascii_only() -> None:
    """PYTHONIOENCODING=ascii, as where no locale is set."""
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "wb", closefd=False), "ascii", "strict", write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "wb", closefd=False), "ascii", "strict", write_through=True)


def no_home() -> None:
    """As in a container: no HOME, and nobody knows the user."""
    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME"):
        os.environ.pop(name, None)


def missing_home() -> None:
    """HOME=/nonexistent."""
    os.environ["HOME"] = "/nonexistent"


def mistake() -> None:
    """What nobody has foreseen, at the beginning of the command."""
    from clusterkit.cli import app

    load = app.load

    def loaded(name: str) -> Any:
        command = load(name)
        command.callback = _raising(command.callback)
        return command

    app.load = loaded


def mistake_in_a_thread() -> None:
    """The same while another thread goes on."""
    from clusterkit.project import load

    def loaded(*given: Any) -> Any:
        thread = threading.Thread(target=_planted)
        thread.start()
        thread.join()
        return load(*given)

    sys.modules["clusterkit.cli.config"].load = loaded  # type: ignore[attr-defined]


def _raising(command: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(command)
    def raising(**_: object) -> NoReturn:
        _planted()

    return raising


def _planted() -> NoReturn:
    hidden = "api_key=0123456789abcdef0123456789abcdef"
    raise ZeroDivisionError(f"planted, with {hidden}")


def _run(situation: str, words: list[str], folder: str) -> NoReturn:
    signal.alarm(SECONDS)
    os.chdir(folder)
    sys.argv[1:] = words
    globals()[situation]()
    forking.run_and_leave("clusterkit")


def _result(situation: str, words: list[str], folder: str) -> dict[str, object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            _run(situation, words, folder)
        _, status = os.waitpid(child, 0)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="backslashreplace"))
    return {"code": os.waitstatus_to_exitcode(status), "out": said[0], "err": said[1]}


def main() -> None:
    """A line of cases comes in, and a line with their results goes out, again and again."""
    forking.import_all("clusterkit")
    for line in os.fdopen(os.dup(0)):  # commands find sys.stdin as it is at their start
        environ, cases = json.loads(line)
        os.environ.clear()
        os.environ.update(environ)
        sys.stdout.write(json.dumps([_result(*case) for case in cases]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from tests import forking

    main()
