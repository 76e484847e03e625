"""Acting while a rollout is gathered, during which the weights stay as they are.

The noise of a whole rollout is drawn at once, from the host's default generator on any device. Beside a GPU a
small network acts on the host, from a copy made once a rollout: to go there and back at each step would
take longer. A large one acts on the GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.nn.actor_critic import ActorCritic
from trainer.placement import acts_on_host


class RolloutActing:
    """Draws actions for the environments.

    Args:
        policy: the networks that learn.
        steps: of a rollout.
        envs: rows of every call.
    """

    def __init__(self, policy: ActorCritic, steps: int, envs: int) -> None:
        device = policy.device
        self._shape = steps, envs
        self._policy = policy
        self._device = device
        weights = sum(parameter.numel() for parameter in policy.actor.parameters())
        on_host = device.type == "cpu" or acts_on_host(weights, envs)
        self._copy = None
        if on_host and device.type != "cpu":
            self._copy = copy.deepcopy(policy).cpu().requires_grad_(False)
        self._actor = self._copy or policy
        self._acts_on = torch.device("cpu") if on_host else device
        self._noise = torch.zeros(0)

    def begin(self) -> None:
        """Takes over the weights and draws the noise of a rollout."""
        self._noise = self._policy.head.draw_noise(*self._shape)
        self._look()

    def act(self, observation: npt.NDArray[np.float32], step: int) -> npt.NDArray[np.float32]:
        """Draws an action for each environment.

        Args:
            observation: (envs, observation_dim).
            step: of the rollout.

        Returns:
            Shape (envs, action_dim).
        """
        seen = torch.from_numpy(observation).to(self._acts_on)
        action = self._actor.sample(seen, self._noise[step].to(self._acts_on))
        array: npt.NDArray[np.float32] = action.cpu().numpy()
        return array

    def state_dict(self) -> dict[str, Any]:
        """Returns the noise of this rollout."""
        return {"noise": self._noise}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict` returned, and the weights as they are now."""
        self._noise = state["noise"]
        self._look()

    def _look(self) -> None:
        if self._copy is not None:
            self._copy.load_state_dict(self._policy.state_dict())
