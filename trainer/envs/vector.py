"""Many environments stepped together, in this process or in worker processes over one block of shared memory.

Nothing is pickled per step: actions, orders, observations and rewards lie in shared arrays, and one byte
over a socket pair starts a worker and reports its end. `start` returns at once, so the learner works
while the environments step; `wait` gathers them. Workers get shares that take about the same time; what
comes out does not depend on who has which, nor on how many there are. `state` and `restore` let episodes go
on in other processes as if nothing had happened. A worker that dies, fails or hangs raises a `WorkerError`
that names its tasks, after which the vector is of no more use; a worker ends by itself when the parent is
gone.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import util
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.envs.faults import OverdueError, clear_alarm, fault_of, set_alarm
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Orders
from trainer.envs.slots import Block, Slots, allocate, assigned_shares
from trainer.envs.worker import AWAKE, START_TIMEOUT, Worker, end_all, one_thread_each, signals_blocked
from trainer.errors import WorkerError
from trainer.machine.processors import usable_processors

STEP_TIMEOUT = 60.0
"""Seconds that a share of the environments may take for a vector step before it counts as hung."""


class StepOutcome(NamedTuple):
    """The result of a vector step; the next step overwrites the arrays.

    Attributes:
        reward: float32, shape (num_envs,).
        success: bool, shape (num_envs,): solved at this step (not latched).
        next_observation: float32, shape (num_envs, observation_dim): the result of the action,
            even if the episode was cut off and the environment has started another since.
        terminated: bool, shape (num_envs,): the environment ended the episode for good.
        truncated: bool, shape (num_envs,): it was the last step that the environment allows. Meta-World's
            never end by themselves: there both are false.
    """

    reward: npt.NDArray[np.float32]
    success: npt.NDArray[np.bool_]
    next_observation: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    def copy(self) -> StepOutcome:
        """Returns the same in memory of its own."""
        return StepOutcome._make(array.copy() for array in self)


class VectorEnv:
    """A vector of environments.

    Args:
        factory: makes the environments.
        num_envs: how many.
        workers: worker processes; 0 steps the environments in this process, inside `wait`.
        helping: whether this process steps a share too, inside `wait`, unless the workers have one
            environment each: for callers with nothing else to do meanwhile.
        step_timeout: seconds after which a worker that does not answer counts as hung, and so do environments
            of this process, as far as `set_alarm` reaches.
        processors: how many there are for this process and these workers; by default all it may use.

    Attributes:
        notes: remarks of environments since the last `take_notes`.
        spoilt: which environments have returned numbers that are not finite, in the order of their notes.

    Raises:
        WorkerError: from `wait`.
    """

    def __init__(
        self,
        factory: EnvFactory,
        num_envs: int,
        *,
        workers: int = 0,
        helping: bool = False,
        step_timeout: float = STEP_TIMEOUT,
        processors: int | None = None,
    ) -> None:
        self._factory = factory
        self._step_timeout = step_timeout
        self._running = False
        self._assigned = workers == 0
        self.spoilt: list[str] = []
        self.notes: list[str] = []
        workers = min(workers, num_envs)
        self._helps = helping and 0 < workers < num_envs
        context = multiprocessing.get_context("spawn")
        shape = (num_envs, factory.observation_dim, factory.action_dim)
        memory = allocate(shape, context if workers else None)
        self._block = Block(memory, shape)
        self._own = None if workers else Slots(factory, self._block, range(num_envs), self.notes)
        self._own_begun = False
        self._workers: list[Worker] = []
        # without a processor of our own we would only keep the workers from theirs
        processors = usable_processors() if processors is None else processors
        awake = AWAKE if processors > workers else 0.0
        with signals_blocked(), one_thread_each():
            for _ in range(workers):
                self._workers.append(Worker(context, factory, memory, shape, self.notes, awake=awake))
        self._finalizer = util.Finalize(self, end_all, args=(list(self._workers),), exitpriority=10)

    @property
    def observation(self) -> npt.NDArray[np.float32]:
        """The current observation of each environment, shape (num_envs, observation_dim); a copy."""
        return self._block.observation.copy()

    def start(self, orders: Orders, action: npt.NDArray[np.float32] | None = None) -> None:
        """Starts a vector step and returns at once.

        Args:
            orders: each environment's order.
            action: shape (num_envs, action_dim), as the environments read it; None when none steps.
        """
        block = self._block
        block.command[:], block.task[:], block.goal[:] = orders
        if action is not None:
            block.action[:] = action
        if not self._assigned:
            self._assign()
        for worker in self._workers:
            worker.start()
        self._running = True

    def wait(self) -> StepOutcome:
        """Ends the vector step begun by `start`.

        Raises:
            WorkerError: a worker died, failed or did not answer in time.
        """
        assert self._running, "wait without start"
        self._running = False
        if self._own is not None:
            with self._fault_named(self._own.share):
                self._own.step()
        self._gather()
        block = self._block
        finite = np.isfinite(block.reward).all() and np.isfinite(block.next_observation).all()
        if not (finite and np.isfinite(block.observation).all()):
            self._name_spoilt()
        return StepOutcome(
            block.reward, block.success, block.next_observation, block.terminated, block.truncated
        )

    def take_notes(self) -> list[str]:
        """Returns the remarks of environments made since the last call, each once."""
        notes = list(dict.fromkeys(self.notes))
        self.notes.clear()
        return notes

    def reset(self, orders: Orders) -> None:
        """Carries out orders that step no environment."""
        self.start(orders)
        self.wait()

    def state(self) -> list[dict[str, Any]]:
        """Returns each environment's task, goal, observation and own state, for JSON.

        Only between vector steps.

        Raises:
            WorkerError: as from `wait`.
        """
        assert not self._running, "state within a vector step"
        for worker in self._workers:
            worker.ask_state()
        states: dict[int, dict[str, Any]] = {}
        if self._own is not None:
            with self._fault_named(self._own.share):
                states |= zip(self._own.share, self._own.state(), strict=True)
        for worker, part in zip(self._workers, self._gather(), strict=True):
            states |= zip(worker.share, part, strict=True)
        return [
            states[env] | {"observation": shown} for env, shown in enumerate(self._block.observation.tolist())
        ]

    def restore(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Continues from a `state`, bit for bit, instead of the first reset.

        Args:
            states: one for each environment. The number of workers may differ.

        Raises:
            WorkerError: as from `wait`.
        """
        assert not self._running, "restore within a vector step"
        block = self._block
        block.task[:] = [state["task"] for state in states]
        block.observation[:] = [state["observation"] for state in states]
        if not self._assigned:
            self._assign()
        for worker in self._workers:
            worker.restore([states[env] for env in worker.share], self._step_timeout)
        if self._own is not None:
            with self._fault_named(self._own.share):
                self._own.restore([states[env] for env in self._own.share])
        self._gather()

    def _name_spoilt(self) -> None:
        """Notes which environments have given numbers that are not finite, each kind once a task."""
        block = self._block
        for env, (reward, came, shown) in enumerate(
            zip(block.reward, block.next_observation, block.observation, strict=True)
        ):
            given = {"a reward": np.array([reward]), "an observation": came, "a first observation": shown}
            for what, numbers in given.items():
                odd = numbers[~np.isfinite(numbers)]
                if odd.size:
                    note = f"the environment of {self._names([env])} gave {what} that is {odd[0]}"
                    if note not in self.spoilt:
                        self.spoilt.append(note)
                        self.notes.append(note)
                    break  # what it shows next is often the same

    def _assign(self) -> None:
        """At the first orders: assigns the environments, by the cost of the tasks they begin with.

        Results do not depend on the assignment, so it need not follow the tasks that come later.
        """
        tasks = self._block.task.tolist()
        costs = [self._factory.cost(task) for task in tasks]
        models = [self._factory.model(task) for task in tasks]
        shares = assigned_shares(costs, models, len(self._workers) + self._helps)
        if self._helps:  # the last one, for the others may be larger by one
            self._own = Slots(self._factory, self._block, shares.pop(), self.notes)
        for worker, share in zip(self._workers, shares, strict=True):
            worker.assign(share)
        self._assigned = True

    def _gather(self) -> list[Any]:
        """Waits for all workers; returns what each was asked for."""
        return [
            worker.gather(self._step_timeout, partial(self._names, worker.share)) for worker in self._workers
        ]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid or 0 for worker in self._workers]

    def close(self) -> None:
        """Ends the workers."""
        self._finalizer()

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _fault_named(self, share: list[int]) -> Iterator[None]:
        """Turns an exception in this process into the one a worker would cause.

        Raises:
            WorkerError: an environment failed, or did not come back in time.
        """
        seconds = self._step_timeout if self._own_begun else max(self._step_timeout, START_TIMEOUT)
        armed = set_alarm(seconds)
        try:
            try:
                yield
            finally:
                if armed:
                    clear_alarm()
        except OverdueError as error:
            raise WorkerError(
                f"an environment of {self._names(share)} in this process has not answered for "
                f"{seconds:.0f} s",
                hint="resume from the last checkpoint; if it happens again, look for a full or failing node",
            ) from error
        except (Exception, SystemExit) as error:  # of somebody else's code
            fault = fault_of(error)
            raise WorkerError(
                f"an environment of {self._names(share)} failed: {fault.cause}", hint=fault.where
            ) from error
        self._own_begun = True

    def _names(self, share: list[int]) -> str:
        return ", ".join(dict.fromkeys(self._factory.tasks[task] for task in self._block.task[share]))
