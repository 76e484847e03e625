"""Steps a share of the environments in the current process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trainer.envs.block import Block
from trainer.envs.interface import OWN_CHOICE, Env, EnvFactory
from trainer.envs.schedule import WorkerCommand

_STEP_THEN_RESET = int(WorkerCommand.STEP_THEN_RESET)
_AUTORESET = int(WorkerCommand.STEP_AUTORESET)
_STEPS = (int(WorkerCommand.STEP), int(WorkerCommand.STEP_THEN_RESET), int(WorkerCommand.STEP_AUTORESET))
_RESETS = (int(WorkerCommand.STEP_THEN_RESET), int(WorkerCommand.RESET))
"""Plain integers: an enumeration's members take longer to find than a slot's bookkeeping altogether."""


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

    Attributes:
        share: the environments that are here.
        notes: remarks of the environments made since the last look.
    """

    def __init__(self, factory: EnvFactory, block: Block, share: Iterable[int]) -> None:
        self._factory = factory
        self._block = block
        self.share = list(share)
        self._rows = {
            slot: (block.action[slot], block.next_observation[slot], block.observation[slot])
            for slot in self.share
        }
        self._playing: dict[int, Playing | None] = dict.fromkeys(self._rows)
        self._free: dict[int, list[Env]] = {}
        self.notes: list[str] = []

    def step(self) -> None:
        """Carries out the orders that lie in the block."""
        block = self._block
        reward, success = block.reward, block.success
        terminated, truncated = block.terminated, block.truncated
        commands = block.command.tolist()
        for slot, (action, next_observation, observation) in self._rows.items():
            command = commands[slot]
            if command in _STEPS:
                playing = self._playing[slot]
                assert playing is not None, "step before reset"
                env = playing.env
                came, reward[slot], success[slot] = env.step(action)
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
        states = []
        for playing in self._playing.values():
            assert playing is not None, "state before reset"
            states.append({"task": playing.task, "goal": playing.goal, "env": playing.env.state()})
        return states

    def restore(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Continues the episodes that `state` described, one for each environment here."""
        for slot, state in zip(self._playing, states, strict=True):
            self._take(slot, state["task"], state["goal"]).restore(state["goal"], state["env"])

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
        return env

    def _kept_or_new(self, task: int) -> Env:
        if kept := self._free.get(task):
            return kept.pop()
        env = self._factory(task)
        if env.note:
            self.notes.append(env.note)
        return env
