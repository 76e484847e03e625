"""The evaluating process and the parent's end of it: goals go in, results come out.

The weights lie in shared memory, so that an order is a few bytes and never waits for the other side.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from multiprocessing import util
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from trainer.envs.faults import fault_of
from trainer.envs.interface import EnvFactory
from trainer.envs.worker import ending, ignore_parents_signals, remedy, signals_blocked
from trainer.errors import TrainerError, WorkerError
from trainer.evaluation.evaluator import Evaluator
from trainer.evaluation.result import Evaluation
from trainer.machine.device import configure
from trainer.nn.actor import Actor

_NICENESS = 10
"""Training has priority; beside other normal work the evaluator still gets a tenth of a processor."""
_START_TIMEOUT = 330.0
"""Seconds until the first step: a little longer than the evaluator itself waits for its workers to start."""
_PATIENCE = 1.5
"""Step timeouts without a step after which the evaluator counts as hung: it names a hung worker after one."""

Goals = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Setup:
    """The process's inputs at its start.

    Attributes:
        policy: lies in shared memory, where the parent writes the weights of the coming evaluation.
        threads: of PyTorch; the other attributes are those of `Evaluator`.
    """

    factory: EnvFactory
    policy: Actor
    episodes: int
    workers: int
    threads: int
    max_steps: int | None
    step_timeout: float


@dataclass(frozen=True)
class Played:
    """The answer to an order, with the seconds it took."""

    evaluation: Evaluation
    seconds: float


@dataclass(frozen=True)
class _EvaluationFault:
    """Why there will be no answer: the predicate of a sentence, and a hint."""

    cause: str
    hint: str | None


class EvaluatorProcess:
    """The parent's end of a process that has just been started.

    Args:
        setup: what the process plays with.

    Attributes:
        playing: whether an answer is expected.
        close: ends the process and its workers, whatever they are doing, within two seconds.
    """

    def __init__(self, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self._beats = context.RawValue(ctypes.c_int64)
        self._seen = 0
        self._silence, self._looked = 0.0, time.monotonic()
        self._step_timeout = setup.step_timeout
        self._fault: _EvaluationFault | None = None
        self.playing = False
        self._pipe: Connection[Goals, Played | _EvaluationFault]
        self._pipe, theirs = context.Pipe()
        # no daemon, for those may not have workers of their own; the finaliser ends it in their stead
        self._process = context.Process(target=_serve, args=(theirs, setup, self._beats))
        with signals_blocked():
            self._process.start()
        theirs.close()  # or the end of the process would never show as the end of the stream
        self.close = util.Finalize(self, _end, args=(self._process, self._pipe), exitpriority=10)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid or 0

    def play(self, goals: Goals) -> None:
        """Orders an evaluation; a dead process shows in `listen`."""
        self.playing = True
        self._silence = 0.0
        with contextlib.suppress(OSError):
            self._pipe.send(goals)

    def listen(self, timeout: float) -> Played | None:
        """Waits that many seconds for an answer and returns it, or None.

        Raises:
            WorkerError: there will be none: the process died, failed or hangs.
        """
        if self._fault is None:
            try:
                answer = self._pipe.recv() if self._pipe.poll(timeout) else self._silent()
            except (EOFError, OSError):
                answer = self._death()
            if not isinstance(answer, _EvaluationFault):
                self.playing = self.playing and answer is None
                return answer
            self._fault = answer
        raise WorkerError(f"the evaluator (pid {self.pid}) {self._fault.cause}", hint=self._fault.hint)

    def _silent(self) -> _EvaluationFault | None:
        """Counts the time without a step; returns a fault when it is too long."""
        now = time.monotonic()
        # between two looks little counts: it may be us who stood still, in a checkpoint or a suspended job
        self._silence += min(now - self._looked, 1.0)
        self._looked = now
        if not self.playing or self._beats.value != self._seen:
            self._silence, self._seen = 0.0, self._beats.value
        limit = _PATIENCE * self._step_timeout if self._seen else _START_TIMEOUT
        if self._silence <= limit:
            return None
        return _EvaluationFault(f"has made no step for {limit:.0f} s", "look for a full or failing node")

    def _death(self) -> _EvaluationFault:
        self._process.join(1)
        code = self._process.exitcode
        return _EvaluationFault(f"died {ending(code)}", remedy(code))


def _end(process: SpawnProcess, pipe: Connection[Goals, Played | _EvaluationFault]) -> None:
    """Ends the process: the end of the stream tells it to exit; if it does not, it is killed."""
    pipe.close()
    process.join(1)
    if process.exitcode is None:
        process.kill()
        process.join(0.5)


def _serve(pipe: Connection[Played | _EvaluationFault, Goals], setup: Setup, beats: ctypes.c_int64) -> None:
    """Serves as the evaluating process.

    Args:
        pipe: goals come in, answers go out.
        setup: what to play with.
        beats: counted up with every vector step.
    """
    ignore_parents_signals()
    os.nice(_NICENESS)
    orders: SimpleQueue[Goals] = SimpleQueue()
    threading.Thread(target=_take_orders, args=(pipe, orders), daemon=True).start()

    def beat() -> bool:
        beats.value += 1
        return False

    try:
        configure("cpu", threads=setup.threads)
        evaluator = Evaluator(
            setup.factory,
            setup.episodes,
            workers=setup.workers,
            max_steps=setup.max_steps,
            step_timeout=setup.step_timeout,
        )
        while True:
            goals = orders.get()
            begun = time.perf_counter()
            evaluation = evaluator.run(partial(setup.policy.act, greedy=True), goals, beat)
            assert evaluation is not None, "a beat interrupts nothing"
            pipe.send(Played(evaluation, time.perf_counter() - begun))
    except TrainerError as error:
        _report(pipe, _EvaluationFault(f"failed: {error.cause}", error.hint))
    except (Exception, SystemExit) as error:
        fault = fault_of(error)
        _report(pipe, _EvaluationFault(f"failed: {fault.cause}", fault.where))


def _take_orders(pipe: Connection[Played | _EvaluationFault, Goals], orders: SimpleQueue[Goals]) -> None:
    """Forwards orders. The end of the stream ends the process, whatever its main thread is waiting for.

    The workers are killed, because a hung one would not see the end of its own stream.
    """
    with contextlib.suppress(EOFError, OSError):
        while True:
            orders.put(pipe.recv())
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(0)


def _report(pipe: Connection[Played | _EvaluationFault, Goals], fault: _EvaluationFault) -> None:
    with contextlib.suppress(OSError):
        pipe.send(fault)
