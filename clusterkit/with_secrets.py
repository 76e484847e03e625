"""Starts a program with a run's secrets in its environment: `python with_secrets.py RUN_DIR PROGRAM...`.

The values lie encrypted beside it; their key is in the request of the run's submission (docs/secrets.md). The
decrypted values exist only in the memory of this process and of the program. The run's own program writes
through this process, which replaces each value with `***`; other programs, such as a shell, do not.

It is copied to the cluster with the values and run by the image's interpreter, so it uses only the standard
library of Python 3.8 and nothing of clusterkit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import signal
import sys
import time
from typing import Any, NoReturn

MASK = b"***"
_SHORTEST_LINE = 8
"""Bytes; a shorter line of a value, such as the last brace of a JSON key file, is not masked by itself."""
_DRAIN_SECONDS = 2.0
"""How long the output of processes that outlive the program is still copied."""
_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
)


def crypt(key: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt with the key stream of SHAKE256 (FIPS 202); a key must encrypt only once."""
    stream = hashlib.shake_256(key).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream))


def fail(message: str) -> NoReturn:
    """Print one line for the log and exit."""
    print("[clusterkit] " + message, file=sys.stderr, flush=True)
    raise SystemExit(2)


def read(run_dir: str) -> dict[str, Any]:
    """What is encrypted: `environment`, values by name, and `webhook`. Exits with 2 if it cannot be read."""
    number = os.environ.get("CLUSTERKIT_SUBMISSION", "0")
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        with open(os.path.join(run_dir, "submissions", number, "request.json"), encoding="utf-8") as file:
            key = bytes.fromhex(json.load(file)["seal"])
        with open(os.path.join(folder, "values"), "rb") as sealed:
            found: dict[str, Any] = json.loads(crypt(key, sealed.read()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"its secrets cannot be read: {type(error).__name__}")  # the message could quote them
    return found


class Masker:
    """Replaces values in a stream of bytes, also where one is split between two chunks.

    Args:
        values: what to replace; of a value with several lines, each line too.
    """

    def __init__(self, values: list[bytes]) -> None:
        lines = [line for value in values for line in value.splitlines() if len(line) >= _SHORTEST_LINE]
        self._values = sorted({*values, *lines}, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, self._values)))
        self._first = re.compile(b"|".join({re.escape(value[:1]) for value in self._values}))
        self._held = b""

    def add(self, chunk: bytes) -> bytes:
        """What can be written now; an end that may be the beginning of a value is kept back."""
        text, at = self._held + chunk, 0
        done: list[bytes] = []
        while True:
            match, kept = self._any.search(text, at), self._open_end(text, at)
            if match is None or match.start() >= kept:
                self._held = text[kept:]
                return b"".join([*done, text[at:kept]])
            done += [text[at : match.start()], MASK]
            at = match.end()

    def end(self) -> bytes:
        """What was kept back."""
        held, self._held = self._any.sub(MASK, self._held), b""
        return held

    def _open_end(self, text: bytes, at: int) -> int:
        """Where, from `at` on, the longest end of the text starts with which a longer value begins."""
        window = max(at, len(text) - len(self._values[0]) + 1)
        for match in self._first.finditer(text, window):
            end = text[match.start() :]
            if any(len(value) > len(end) and value.startswith(end) for value in self._values):
                return match.start()
        return len(text)


def write(target: int, data: bytes) -> None:
    """Write all; on a full disk the data is lost, but the program goes on."""
    while data:
        try:
            data = data[os.write(target, data) :]
        except OSError:
            return


def start(argv: list[str], environment: dict[str, str], ends: list[int], mask: set[int]) -> int:
    """Start the program with its output in two pipes; return its process number."""
    child = os.fork()
    if child:
        return child
    try:
        for target, end in zip((1, 2), ends):
            os.dup2(end, target)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"[clusterkit] cannot start {argv[0]!r}: {error}\n".encode())
    os._exit(126)


def copy(child: int, pipes: list[int], masker_of: dict[int, Masker], woken: int) -> int:
    """Copy the program's output until it has ended; return its status as `os.waitpid` tells it."""
    status, until, targets = None, 0.0, dict(zip(pipes, (1, 2)))
    while targets or status is None:
        left = None if status is None else max(0.0, until - time.monotonic())
        ready = select.select([*targets, woken], [], [], left)[0]
        for pipe in ready:
            chunk = os.read(pipe, 1 << 16)
            if pipe != woken:
                write(targets[pipe], masker_of[pipe].add(chunk) if chunk else masker_of[pipe].end())
                if not chunk:
                    del targets[pipe]
        if status is None:
            ended, found = os.waitpid(child, os.WNOHANG)
            if ended:
                status, until = found, time.monotonic() + _DRAIN_SECONDS
        elif time.monotonic() >= until:
            break
    for pipe, target in targets.items():
        write(target, masker_of[pipe].end())
    assert status is not None
    return status


def leave(status: int) -> NoReturn:
    """End with the program's exit code; after a signal with the one that a shell would show."""
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def main(arguments: list[str]) -> NoReturn:
    """Become the program, or its parent where its output is masked."""
    if len(arguments) < 2:
        fail("usage: with_secrets.py RUN_DIR PROGRAM [ARGUMENT...]")
    run_dir, *argv = arguments
    values: dict[str, str] = read(run_dir)["environment"]
    environment = {**os.environ, **values}
    if argv[-2:] != [os.path.join(run_dir, "launch.py"), run_dir]:
        os.execvpe(argv[0], argv, environment)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    pipes, ends = zip(os.pipe(), os.pipe())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_FORWARDED, signal.SIGCHLD))
    child = start(argv, environment, list(ends), before)
    for end in ends:
        os.close(end)
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    encoded = [value.encode("utf-8", "surrogateescape") for value in values.values()]
    leave(copy(child, list(pipes), {pipe: Masker(encoded) for pipe in pipes}, woken))


if __name__ == "__main__":
    main(sys.argv[1:])
