"""Twin delayed deep deterministic policy gradients (TD3, Fujimoto et al. 2018): the hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class TD3Config:
    """The hyperparameters of the networks and of the update; names and values are those of a recipe.

    Attributes:
        actor_hidden: widths of the actor's hidden layers.
        critic_hidden: widths of each critic's hidden layers.
        layer_norm: normalise the critics' hidden layers.
        init: `he_uniform`, `fan_in_uniform`, `pytorch` or `orthogonal`, see `EnsembleMLP`.
        actor_learning_rate: Adam's, for the actor.
        critic_learning_rate: Adam's, for the critics.
        adam_eps: Adam's epsilon, for both.
        max_grad_norm: bound on the norm of the actor's and of both critics' gradients; 0 for none.
        gamma: discount.
        tau: share of the networks that enters their targets with each update of the policy.
        policy_delay: updates of the critics for each one of the policy.
        exploration_noise: standard deviation of the noise on actions that are played.
        target_noise: standard deviation of the noise on actions that the critics' targets are taken at.
        target_noise_clip: bound of that noise.
        reward_scale: factor on rewards.
        heads: `one-hot` (one output head) or `multi-head` (one per task).
        one_hot: append the task's one-hot id to the observation.
    """

    actor_hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...]
    layer_norm: bool
    init: str
    actor_learning_rate: float
    critic_learning_rate: float
    adam_eps: float
    max_grad_norm: float
    gamma: float
    tau: float
    policy_delay: int
    exploration_noise: float
    target_noise: float
    target_noise_clip: float
    reward_scale: float
    heads: str = "one-hot"
    one_hot: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> TD3Config:
        """Picks the fields out of a recipe's values."""
        # a recipe on one environment has no word for what only several tasks can differ in
        picked = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        for name in ("actor_hidden", "critic_hidden"):
            picked[name] = tuple(picked[name])
        return cls(**picked)
