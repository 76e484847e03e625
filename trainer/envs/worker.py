"""One worker process and the parent's end of it, joined by a socket.

A byte starts a vector step and a byte reports its end; the rest lies in the shared block. Only what is rare
and has no fixed size goes over the socket itself: notes, tracebacks, and the environments' states as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from trainer.envs.faults import PIECES, fault_of
from trainer.envs.interface import EnvFactory
from trainer.envs.slots import Block, Shape, Slots
from trainer.errors import WorkerError

_SHARE, _GO, _STATE, _RESTORE = b"h", b"g", b"s", b"r"
"""Orders: take the environments that follow, once and first of all; carry out what lies in the block; say
where the episodes are; continue those that follow."""
_NOTE, _TEXT, _DONE, _FAILED = b"n", b"t", b"d", b"f"
"""Answers: a line follows; a counted text follows; all is done; a counted fault follows and the end."""
_PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
AWAKE = 200e-6
"""Seconds to look for the next order, or for the answer, before sleeping."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Variables that numerical libraries read when imported: each library would start a thread per processor."""
START_TIMEOUT = 300.0
"""Seconds until the first answer: imports from a slow file system take long."""


class Worker:
    """The parent's end of one worker process.

    Args:
        context: how to start it.
        factory: makes the environments.
        memory: of the block.
        shape: of the block.
        notes: where remarks of its environments are added.
        awake: seconds that `gather` looks for the answer before it sleeps.

    Attributes:
        share: its environments.
        started: whether it has answered.
    """

    def __init__(
        self,
        context: SpawnContext,
        factory: EnvFactory,
        memory: Any,
        shape: Shape,
        notes: list[str],
        *,
        awake: float = 0.0,
    ) -> None:
        self.share: list[int] = []
        self._notes = notes
        self.pipe, theirs = socket.socketpair()
        args = (theirs, factory, memory, shape)
        self.process: SpawnProcess = context.Process(target=_serve, args=args, daemon=True)
        self.process.start()
        theirs.close()  # or the end of the worker would never show as the end of the stream
        self._awake = awake
        self.started = False

    def assign(self, share: list[int]) -> None:
        """Gives the worker its environments, before all other orders."""
        self.share = share
        with contextlib.suppress(OSError):
            self.pipe.sendall(_SHARE + _counted(share))

    def start(self) -> None:
        """Tells the worker to carry out the orders in the block; a dead worker shows in `gather`."""
        with contextlib.suppress(OSError):
            self.pipe.send(_GO)

    def ask_state(self) -> None:
        """Asks for the state of the episodes; `gather` returns the answer."""
        with contextlib.suppress(OSError):
            self.pipe.send(_STATE)

    def restore(self, states: Sequence[Mapping[str, Any]], timeout: float) -> None:
        """Tells the worker to continue the episodes described; one that does not listen shows in `gather`."""
        self.pipe.settimeout(self._limit(timeout))
        with contextlib.suppress(OSError):
            self.pipe.sendall(_RESTORE + _counted(states))

    def gather(self, timeout: float, names: Callable[[], str]) -> Any:
        """Waits for the worker's answer; returns what it was asked for, if anything.

        Raises:
            WorkerError: it died, failed or did not answer in time.
        """
        text = answer = None
        try:
            if self._awake:
                self.pipe.settimeout(None)
                answer = _looked(self.pipe, self._awake)
            if answer is None:
                answer = self._waited(timeout)
            while answer in (_NOTE, _TEXT):
                self.pipe.settimeout(self._limit(timeout))
                if answer == _NOTE:
                    self._notes.append(_line(self.pipe))
                else:
                    text = _uncounted(self.pipe)
                answer = self._waited(timeout)
        except TimeoutError:
            raise WorkerError(
                f"the environment worker of {names()} (pid {self.process.pid}) has not answered for "
                f"{self._limit(timeout):.0f} s",
                hint="resume from the last checkpoint; if it happens again, look for a full or failing node",
            ) from None
        except OSError:
            answer = b""
        self.started = True
        if answer == _FAILED:
            self.pipe.settimeout(5)
            cause, where = _uncounted(self.pipe)
            raise WorkerError(f"the environment worker of {names()} failed: {cause}", hint=where)
        if answer != _DONE:
            self.process.join(5)
            raise WorkerError(
                f"the environment worker of {names()} (pid {self.process.pid}) died "
                f"{ending(self.process.exitcode)}",
                hint=remedy(self.process.exitcode),
            )
        return text

    def _waited(self, timeout: float) -> bytes:
        """Waits for a byte. Time in which this process and its workers are stopped does not count.

        Raises:
            TimeoutError: none came in time.
        """
        self.pipe.settimeout(self._limit(timeout) / PIECES)
        for _ in range(PIECES - 1):
            with contextlib.suppress(TimeoutError):
                return self.pipe.recv(1)
        return self.pipe.recv(1)

    def _limit(self, timeout: float) -> float:
        return timeout if self.started else max(timeout, START_TIMEOUT)


def _line(pipe: socket.socket) -> str:
    line = bytearray()
    while (byte := pipe.recv(1)) not in (b"\n", b""):
        line += byte
    return line.decode(errors="replace")


def _counted(value: Any) -> bytes:
    """A value as JSON, after a line with its length in bytes."""
    text = json.dumps(value).encode()
    return b"%d\n%s" % (len(text), text)


def _uncounted(pipe: socket.socket) -> Any:
    """Reads a value that `_counted` wrote.

    Raises:
        ConnectionError: the stream ended within it.
    """
    line = _line(pipe)
    text = bytearray()
    while line and len(text) < int(line):
        piece = pipe.recv(int(line) - len(text))
        if not piece:
            break
        text += piece
    if not line or len(text) < int(line):
        raise ConnectionError("the stream ended within a value")
    return json.loads(text)


def ignore_parents_signals() -> None:
    """Leaves the signals of the process group to the parent, who ends its workers by closing the stream."""
    for number in _PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PARENTS_SIGNALS)


def ending(code: int | None) -> str:
    """Describes how a process with that exit code ended."""
    if code is not None and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"


def remedy(code: int | None) -> str:
    """Returns advice for a process that ended with that exit code."""
    if code is None:
        return "it was still shutting down; its own lines above may say why"
    if code == -signal.SIGKILL:
        return "SIGKILL often means that memory ran out: request more, or use fewer environments"
    if code < 0:
        return "a library crashed, or someone sent the signal; PYTHONFAULTHANDLER=1 shows where"
    return "the environment's code ended its own process; look for os._exit in it"


def end_all(workers: Sequence[Worker]) -> None:
    """Ends the workers: the end of the stream tells them to exit; those that do not are killed.

    A worker that is still importing has nothing to finish and could not read the stream.
    """
    for worker in workers:
        worker.pipe.close()
    until = time.monotonic() + 2
    for worker in workers:
        if worker.started:
            worker.process.join(max(0.0, until - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Blocks the signals meant for the parent while workers, which inherit the mask, start.

    A signal to the whole process group would otherwise kill a worker that is still importing.
    """
    resource_tracker.ensure_running()  # its start would unblock some of them again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Makes processes started within it compute in one thread each, whatever the parent's setting.

    There are many workers already: with a thread per processor in each they would only wait for one another.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _looked(pipe: socket.socket, seconds: float) -> bytes | None:
    """Polls for a byte, because waking up takes longer than most gaps between steps; None if none came.

    Args:
        pipe: without a timeout, which would make each poll wait.
        seconds: how long.
    """
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        with contextlib.suppress(BlockingIOError):
            return pipe.recv(1, socket.MSG_DONTWAIT)
        os.sched_yield()  # whoever has work goes first
    return None


def _order(pipe: socket.socket) -> bytes:
    """Waits for the parent's byte; empty when it is gone."""
    order = _looked(pipe, AWAKE)
    return pipe.recv(1) if order is None else order


def _serve(pipe: socket.socket, factory: EnvFactory, memory: Any, shape: Shape) -> None:
    """Serves as a worker: carries out the orders in the block at each byte, ends with the stream."""
    ignore_parents_signals()
    try:
        if pipe.recv(1) != _SHARE:
            return
        notes: list[str] = []
        slots = Slots(factory, Block(memory, shape), _uncounted(pipe), notes)
        while order := _order(pipe):
            if order == _GO:
                slots.step()
            elif order == _STATE:
                pipe.sendall(_TEXT + _counted(slots.state()))
            else:
                slots.restore(_uncounted(pipe))
            for note in notes:
                pipe.sendall(_NOTE + " ".join(note.split()).encode() + b"\n")
            notes.clear()
            pipe.send(_DONE)
    except (ConnectionError, BrokenPipeError):
        return
    except (Exception, SystemExit) as error:
        with contextlib.suppress(OSError):
            pipe.sendall(_FAILED + _counted(fault_of(error)))
        os._exit(1)
