"""One worker process and the parent's end of it: a byte starts a vector step, a byte reports its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.block import Block, Shape
from trainer.envs.interface import Env, EnvFactory
from trainer.envs.schedule import Command
from trainer.errors import WorkerError

_GO, _NOTE, _DONE, _FAILED = b"g", b"n", b"d", b"f"
_PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_AWAKE = 200e-6
"""Seconds a worker looks for its next order before it sleeps."""
_START_TIMEOUT = 300.0
"""Seconds for a worker's first answer: imports from a slow file system take their time."""


class Slots:
    """Steps a share of the environments in the process it lives in.

    An environment that is done with a task is kept and used again when the task comes back.

    Attributes:
        notes: what the environments made since the last look have to say.
    """

    def __init__(self, factory: EnvFactory, block: Block, share: npt.NDArray[np.int_]) -> None:
        self._factory = factory
        self._block = block
        self._playing: dict[int, tuple[int, Env] | None] = dict.fromkeys(int(slot) for slot in share)
        self._free: dict[int, list[Env]] = {}
        self.notes: list[str] = []

    def step(self) -> None:
        """Carries out the orders that lie in the block."""
        block = self._block
        commands = block.command.tolist()  # numpy's integers take microseconds to compare with an enum
        for slot in self._playing:
            command = commands[slot]
            if command in (Command.STEP, Command.STEP_THEN_RESET):
                playing = self._playing[slot]
                assert playing is not None, "step before reset"
                observation, reward, success = playing[1].step(block.action[slot])
                block.next_observation[slot] = observation
                block.reward[slot] = reward
                block.success[slot] = success
                if command == Command.STEP:
                    block.observation[slot] = observation
            if command in (Command.STEP_THEN_RESET, Command.RESET):
                env = self._take(slot, int(block.task[slot]))
                block.observation[slot] = env.reset(int(block.goal[slot]))

    def _take(self, slot: int, task: int) -> Env:
        playing = self._playing[slot]
        if playing is not None and playing[0] == task:
            return playing[1]
        if playing is not None:
            self._free.setdefault(playing[0], []).append(playing[1])
        free = self._free.get(task)
        if free:
            env = free.pop()
        else:
            env = self._factory(task)
            if env.note:
                self.notes.append(env.note)
        self._playing[slot] = task, env
        return env


class Worker:
    """The parent's end of one worker process."""

    def __init__(
        self,
        context: SpawnContext,
        factory: EnvFactory,
        memory: Any,
        shape: Shape,
        share: npt.NDArray[np.int_],
    ) -> None:
        self.share = share
        self.notes: list[str] = []
        self.pipe, theirs = socket.socketpair()
        args = (theirs, factory, memory, shape, share)
        self.process: SpawnProcess = context.Process(target=_serve, args=args, daemon=True)
        self.process.start()
        theirs.close()  # or the end of the worker would never show as the end of the stream
        self._started = False

    def start(self) -> None:
        """Tells the worker to carry out the orders in the block; a dead worker shows in `gather`."""
        with contextlib.suppress(OSError):
            self.pipe.send(_GO)

    def gather(self, timeout: float, names: Callable[[], str]) -> None:
        """Waits for the worker's answer.

        Raises:
            WorkerError: it died, failed or did not answer in time.
        """
        self.pipe.settimeout(timeout if self._started else max(timeout, _START_TIMEOUT))
        try:
            while (answer := self.pipe.recv(1)) == _NOTE:
                self.notes.append(self._line())
        except TimeoutError:
            raise WorkerError(
                f"the environment worker of {names()} (pid {self.process.pid}) has not answered for "
                f"{self.pipe.gettimeout():.0f} s",
                hint="resume from the last checkpoint; if it happens again, look for a full or failing node",
            ) from None
        except OSError:
            answer = b""
        self._started = True
        if answer == _FAILED:
            text = self._rest()
            raise WorkerError(
                f"the environment worker of {names()} failed: {text.strip().splitlines()[-1]}", hint=text
            )
        if answer != _DONE:
            self.process.join(5)
            raise WorkerError(
                f"the environment worker of {names()} (pid {self.process.pid}) died "
                f"{_ending(self.process.exitcode)}",
                hint="SIGKILL often means that memory ran out: ask for more, or use fewer environments",
            )

    def _line(self) -> str:
        line = bytearray()
        while (byte := self.pipe.recv(1)) not in (b"\n", b""):
            line += byte
        return line.decode(errors="replace")

    def _rest(self) -> str:
        self.pipe.settimeout(5)
        with self.pipe.makefile("rb") as stream:
            return stream.read().decode(errors="replace")


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"


def end_all(workers: Sequence[Worker]) -> None:
    """Ends the workers: the end of the stream is their order to go, and whoever does not is killed."""
    for worker in workers:
        worker.pipe.close()
    for worker in workers:
        worker.process.join(2)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Holds back the signals meant for the parent while workers start, who inherit the mask.

    A signal to the whole process group would otherwise kill a worker that is still importing.
    """
    resource_tracker.ensure_running()  # its start would unblock some of them again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _order(pipe: socket.socket) -> bytes:
    """Waits for the parent's byte, at first awake: to be woken takes longer than most gaps between steps."""
    asleep_at = time.perf_counter() + _AWAKE
    while time.perf_counter() < asleep_at:
        with contextlib.suppress(BlockingIOError):
            return pipe.recv(1, socket.MSG_DONTWAIT)
        os.sched_yield()  # whoever has work goes first
    return pipe.recv(1)


def _serve(
    pipe: socket.socket,
    factory: EnvFactory,
    memory: Any,
    shape: Shape,
    share: npt.NDArray[np.int_],
) -> None:
    """A worker's life: carry out the orders in the block at each byte, end with the stream."""
    for number in _PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent decides; it ends us by closing the stream
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PARENTS_SIGNALS)
    try:
        slots = Slots(factory, Block(memory, shape), share)
        while _order(pipe) == _GO:
            slots.step()
            for note in slots.notes:
                pipe.sendall(_NOTE + " ".join(note.split()).encode() + b"\n")
            slots.notes.clear()
            pipe.send(_DONE)
    except (ConnectionError, BrokenPipeError):
        return
    except Exception:
        with contextlib.suppress(OSError):
            pipe.sendall(_FAILED + traceback.format_exc().encode())
        os._exit(1)
