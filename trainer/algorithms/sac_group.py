"""Several seeds' soft actor-critics that learn in one update, each as it would alone.

Products and everything else that an update is made of are computed for all seeds at once: on a GPU, where
small networks cost their number of operations and not their arithmetic, the update of several costs little
more than that of one. Each seed keeps its own agent, whose tensors lie within those of the group meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from trainer.algorithms.optimizers import AdamOfEach, AverageOfEach
from trainer.algorithms.sac_learner import SAC
from trainer.algorithms.sac_update import SACUpdate
from trainer.nn.stacking import stack, stacked


class SACGroup(SACUpdate):
    """The update of several seeds. What one seed's numbers are never touches another's, also if not finite.

    Until `leave`, the tensors of the agents are parts of this group's. They are of use as before, but whoever
    holds an address of them has to look again.

    Args:
        agents: one per seed, of one configuration, on one device.
        streams: within which the default generators are each seed's own.
    """

    def __init__(self, agents: Sequence[SAC], streams: Sequence[AbstractContextManager[None]]) -> None:
        first = agents[0]
        factors = [agent.reward_factor for agent in agents if agent.reward_factor is not None]
        super().__init__(
            first.config,
            stacked([agent.policy for agent in agents]),
            stacked([agent.critics for agent in agents]),
            stacked([agent.targets for agent in agents]),
            stack([agent.log_alpha for agent in agents], dense=True),
            first.value,
            stack([agent.skipped for agent in agents], dense=True),
            first.autocast,
            first.micro_batches,
            stack(factors, dense=True) if factors else None,
            list,
        )
        self._agents = agents
        self._streams = streams
        self.optimizers = {
            name: AdamOfEach([agent.optimizers[name] for agent in agents]) for name in first.optimizers
        }
        self.polyak = AverageOfEach([agent.polyak for agent in agents])
        for agent in agents:
            agent.joined()

    def tensors(self) -> list[Tensor]:
        """Returns all that `update` writes to."""
        return [tensor for agent in self._agents for tensor in agent.tensors()]

    def leave(self) -> None:
        """Lets every agent go, with tensors of its own. The group is of no use afterwards."""
        for agent in self._agents:
            agent.leave()

    def _noise(self, action: Tensor) -> Tensor:
        noise = action.new_empty(len(action), 2, *action.shape[1:], dtype=torch.float32)
        for part, stream in zip(noise.unbind(), self._streams, strict=True):
            with stream:
                part.normal_()
        return noise

    def _norm(self, gradients: Sequence[Tensor]) -> Tensor:
        norms = torch._foreach_norm([own for each in gradients for own in each.chunk(len(self._agents))])
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms).view(len(gradients), -1), dim=0)
        return norm
