"""Environments that one process steps, by orders in a block of arrays that learner and workers share.

They are assigned to workers so that every worker takes about the same time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Iterable, Mapping, Sequence
from multiprocessing.context import SpawnContext
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.envs.interface import OWN_CHOICE, Env, EnvFactory, SplitEnv
from trainer.envs.schedule import WorkerCommand

_AUTORESET = int(WorkerCommand.STEP_AUTORESET)
_STEP_THEN_RESET = int(WorkerCommand.STEP_THEN_RESET)
_STEPS = (int(WorkerCommand.STEP), _STEP_THEN_RESET, _AUTORESET)
_RESETS = (_STEP_THEN_RESET, int(WorkerCommand.RESET))
"""Plain integers: an enumeration's members take longer to find than a slot's bookkeeping altogether."""

_ALIGNMENT = 64
"""Bytes; every array starts on a cache line of its own."""

Shape = tuple[int, int, int]
"""Number of environments, size of an observation, size of an action."""


class Block:
    """The shared arrays.

    Attributes:
        command: int8 (num_envs,), see `trainer.envs.schedule.WorkerCommand`.
        task: int32 (num_envs,), the task a reset starts.
        goal: int32 (num_envs,), its goal.
        action: float32 (num_envs, action_dim).
        observation: float32 (num_envs, observation_dim), the observation to act on next.
        next_observation: float32 (num_envs, observation_dim), the result of the last action.
        reward: float32 (num_envs,).
        success: bool (num_envs,).
        terminated: bool (num_envs,), whether the last step ended the episode for good.
        truncated: bool (num_envs,), whether the environment's time limit ended it.
    """

    command: npt.NDArray[np.int8]
    task: npt.NDArray[np.int32]
    goal: npt.NDArray[np.int32]
    action: npt.NDArray[np.float32]
    observation: npt.NDArray[np.float32]
    next_observation: npt.NDArray[np.float32]
    reward: npt.NDArray[np.float32]
    success: npt.NDArray[np.bool_]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    def __init__(self, memory: Any, shape: Shape) -> None:
        offset = 0
        for name, dtype, size in _layout(shape):
            array = np.frombuffer(memory, dtype, count=int(np.prod(size)), offset=offset).reshape(size)
            setattr(self, name, array)
            offset += _padded(array.nbytes)


def allocate(shape: Shape, context: SpawnContext | None) -> Any:
    """Returns zeroed memory for a `Block`: shared (with no name that could outlive us), or private."""
    size = sum(
        _padded(int(np.prod(dimensions)) * np.dtype(dtype).itemsize)
        for _, dtype, dimensions in _layout(shape)
    )
    return context.RawArray(ctypes.c_byte, size) if context else bytearray(size)


class Playing(NamedTuple):
    """An environment and the episode it is in."""

    task: int
    goal: int
    env: Env


class Slots:
    """Environments that carry out the orders in the block.

    An environment that is done with a task is kept and used again when the task comes back.

    Args:
        factory: makes the environments.
        block: orders, actions and results.
        share: which of the block's environments are here.
        notes: where remarks of the environments are added.

    Attributes:
        share: the environments that are here.
    """

    def __init__(self, factory: EnvFactory, block: Block, share: Iterable[int], notes: list[str]) -> None:
        self._factory = factory
        self._block = block
        self.share = list(share)
        self._rows = {
            slot: (block.action[slot], block.next_observation[slot], block.observation[slot])
            for slot in self.share
        }
        self._playing: dict[int, Playing | None] = dict.fromkeys(self.share)
        self._split: dict[int, SplitEnv] = {}
        self._free: dict[int, list[Env]] = {}
        self._notes = notes

    def step(self) -> None:
        """Carries out the orders that lie in the block."""
        block = self._block
        reward, success = block.reward, block.success
        terminated, truncated = block.terminated, block.truncated
        commands = block.command.tolist()
        for slot, halves in self._split.items():
            if commands[slot] in _STEPS:
                halves.begin(self._rows[slot][0])
        for slot, (action, next_observation, observation) in self._rows.items():
            command = commands[slot]
            if command in _STEPS:
                env, split = self._at(slot).env, self._split.get(slot)
                came, reward[slot], success[slot] = env.step(action) if split is None else split.end(action)
                next_observation[:] = came
                terminated[slot], truncated[slot] = env.terminated, env.truncated
                if command == _AUTORESET and (env.terminated or env.truncated):
                    observation[:] = env.reset(OWN_CHOICE)
                elif command != _STEP_THEN_RESET:
                    observation[:] = next_observation
            if command in _RESETS:
                task, goal = int(block.task[slot]), int(block.goal[slot])
                observation[:] = self._take(slot, task, goal).reset(goal)

    def state(self) -> list[dict[str, Any]]:
        """Returns for each environment here its task, goal and own state, for JSON."""
        all_playing = map(self._at, self.share)
        return [{"task": task, "goal": goal, "env": env.state()} for task, goal, env in all_playing]

    def restore(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Continues the episodes that `state` described, one for each environment here."""
        for slot, state in zip(self._playing, states, strict=True):
            self._take(slot, state["task"], state["goal"]).restore(state["goal"], state["env"])

    def _at(self, slot: int) -> Playing:
        playing = self._playing[slot]
        assert playing is not None, "an order before the first reset"
        return playing

    def _take(self, slot: int, task: int, goal: int) -> Env:
        """Makes a slot play a goal of a task, with the environment it has if that is one of the task."""
        before = self._playing[slot]
        if before is not None and before.task == task:
            env = before.env
        else:
            if before is not None:
                self._free.setdefault(before.task, []).append(before.env)
            env = self._kept_or_new(task)
        self._playing[slot] = Playing(task, goal, env)
        if isinstance(env, SplitEnv):
            self._split[slot] = env
        else:
            self._split.pop(slot, None)
        return env

    def _kept_or_new(self, task: int) -> Env:
        if kept := self._free.get(task):
            return kept.pop()
        env = self._factory(task)
        if env.note:
            self._notes.append(env.note)
        return env


def _layout(shape: Shape) -> list[tuple[str, Any, tuple[int, ...]]]:
    envs, observation, action = shape
    return [
        ("command", np.int8, (envs,)),
        ("task", np.int32, (envs,)),
        ("goal", np.int32, (envs,)),
        ("action", np.float32, (envs, action)),
        ("observation", np.float32, (envs, observation)),
        ("next_observation", np.float32, (envs, observation)),
        ("reward", np.float32, (envs,)),
        ("success", np.bool_, (envs,)),
        ("terminated", np.bool_, (envs,)),
        ("truncated", np.bool_, (envs,)),
    ]


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


_SLACK = 0.05
"""Share by which a worker with a loaded model may be ahead and still get the model's environments: reading a
model is slow."""


def assigned_shares(costs: Sequence[float], models: Sequence[Hashable], workers: int) -> list[list[int]]:
    """Assigns environments to workers so that their costs add up to about the same.

    The longest go first, each to the worker with the least to do, or nearly the least if it has the model.
    Source of the rule without models: https://doi.org/10.1137/0117039

    Args:
        costs: relative time of a step, by environment; positive.
        models: the model that each environment reads; a worker reads each model only once.
        workers: at least 1, at most one for each environment.

    Returns:
        Each worker's environments, those of a model in a row, which keeps it in the processor's caches;
        none goes without.
    """
    slack = _SLACK * sum(costs) / workers
    shares: list[list[int]] = [[] for _ in range(workers)]
    sums = [0.0] * workers
    for env in sorted(range(len(costs)), key=lambda env: -costs[env]):
        least = min(sums)
        near = [worker for worker in range(workers) if least and sums[worker] <= least + slack]
        owners = [worker for worker in near if any(models[env] == models[other] for other in shares[worker])]
        worker = min(owners or range(workers), key=sums.__getitem__)
        shares[worker].append(env)
        sums[worker] += costs[env]
    return [sorted(share, key=lambda env: (models.index(models[env]), env)) for share in shares]
