"""Deep Q-learning (DQN, Mnih et al. 2015): the hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class DQNConfig:
    """The hyperparameters of the network and of the update; names and values are those of a recipe.

    Attributes:
        hidden: widths of the hidden layers, see `QNetwork`.
        double: the network chooses what follows, and its target says what that is worth (van Hasselt et al.
            2016); else the target does both.
        dueling: see `QNetwork`.
        n_step: rewards that a target sums up before it looks at a value, see `NStepReplay`.
        learning_rate: Adam's.
        adam_eps: Adam's epsilon.
        max_grad_norm: bound on the gradient's norm; 0 for none.
        gamma: discount of a step.
        tau: share of the network that enters its target when that moves: 1 copies it.
        target_interval: updates after which the target moves.
        epsilon_start: share of actions that are drawn at random, at the start.
        epsilon_end: the same, at the end.
        exploration_share: of the training, after which it has come to its end.
        reward_scale: factor on rewards.
    """

    hidden: tuple[int, ...]
    double: bool
    dueling: bool
    n_step: int
    learning_rate: float
    adam_eps: float
    max_grad_norm: float
    gamma: float
    tau: float
    target_interval: int
    epsilon_start: float
    epsilon_end: float
    exploration_share: float
    reward_scale: float

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> DQNConfig:
        """Picks the fields out of a recipe's values."""
        picked = {field.name: values[field.name] for field in fields(cls)}
        picked["hidden"] = tuple(picked["hidden"])
        return cls(**picked)

    def epsilon(self, left: float) -> float:
        """Returns the share of actions that are drawn at random, which falls linearly and then stays.

        Args:
            left: share of the training that is yet to come, from 1 to 0.
        """
        way = min(1.0, (1.0 - left) / self.exploration_share)
        return self.epsilon_start + way * (self.epsilon_end - self.epsilon_start)
