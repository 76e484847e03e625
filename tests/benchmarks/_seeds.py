"""Several seeds' learners with replays of random transitions, whose updates are one."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.benchmarks._learners import ACTION, OBSERVATION, TASKS
from trainer import recipe
from trainer.algorithms.capture import CapturedUpdate, CudaRecorder
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_learner import SAC, SACGroup
from trainer.loops.generators import Stream
from trainer.replay import Replay, ReplayGroup

_STEPS = 100
_EPISODE = 50


class Seeds:
    """The update of some seeds, each with a draw from its own replay; that of one is the trainer's own.

    Args:
        name: of the recipe, on ten tasks.
        seeds: how many.
        device: where they learn.
    """

    def __init__(self, name: str, seeds: int, device: torch.device) -> None:
        values = recipe.load(name).values
        config = SACConfig.from_values(values)
        self.agents = [SAC(config, OBSERVATION, ACTION, TASKS, device) for _ in range(seeds)]
        self._replays = [_filled(seed, values["batch_size"], device) for seed in range(seeds)]
        streams = [Stream(device) for _ in range(seeds)]
        self._group = SACGroup(self.agents, streams) if seeds > 1 else None
        self._together = ReplayGroup(self._replays, streams)
        generators = [stream.generator for stream in streams if stream.generator is not None]
        recorder = CudaRecorder(device, generators) if generators else None
        self.update = CapturedUpdate(self.step, self._written, device, recorder)

    def step(self) -> dict[str, Tensor]:
        """One update of all, as it is captured."""
        if self._group is None:
            return self.agents[0].update(self._replays[0].sample())
        return self._group.update(self._together.sample())

    def operations(self) -> int:
        """Operations of an update that compute or copy something: what a GPU would launch, about."""
        with patch("trainer.nn.mlp.PREFER_ONEDNN", False), _Operations() as counter:
            self.step()
        return sum(counter.found.values())

    def _written(self) -> list[Tensor]:
        held = [*self.agents, *self._replays]
        return [tensor for one in held for tensor in one.tensors()]


def _filled(seed: int, batch: int, device: torch.device) -> Replay:
    replay = Replay(TASKS, TASKS, 100_000, batch, _EPISODE, OBSERVATION, ACTION, device)
    rng = np.random.default_rng(seed)
    for step in range(_STEPS):
        seen, action, following = (
            rng.standard_normal((TASKS, width), np.float32) for width in (OBSERVATION, ACTION, OBSERVATION)
        )
        remaining = np.full(TASKS, _EPISODE - step % _EPISODE)
        replay.add(seen, action, seen[:, 0], following, np.arange(TASKS), remaining)
    return replay


class _Operations(TorchDispatchMode):
    """Counts operations, but for those that only make a view of a tensor or find it memory."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        infos = [argument.alias_info for argument in operation._schema.arguments]
        views = any(info is not None and not info.is_write for info in infos)
        name = operation.__name__.partition(".")[0]
        if not views and not name.startswith(("empty", "new_empty", "_record_function")):
            self.found[name] += 1
        return operation(*args, **(kwargs or {}))
