"""The hyperparameters of soft actor-critic, and the policy that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainer.nn.policy import Policy


@dataclass(frozen=True)
class SACConfig:
    """The hyperparameters of the networks and of the update; names and values are those of a recipe.

    Attributes:
        actor_hidden: widths of the actor's hidden layers.
        critic_hidden: widths of each critic's hidden layers.
        layer_norm: normalise the critics' hidden layers.
        init: `he_uniform`, `fan_in_uniform`, `pytorch` or `orthogonal`, see `EnsembleMLP`.
        actor_learning_rate: Adam's, for the actor.
        critic_learning_rate: Adam's, for the critics.
        alpha_learning_rate: Adam's, for the temperatures.
        adam_eps: Adam's epsilon, for all three.
        gamma: discount.
        tau: share of the critics that enters the targets with each update.
        initial_alpha: each task's temperature at the start.
        max_grad_norm: bound on the norm of the actor's and of both critics' gradients; 0 for none.
        log_std_min: lower bound of the policy's log standard deviation.
        log_std_max: upper bound of it.
        reward_scale: factor on rewards.
        heads: `one-hot` (one output head) or `multi-head` (one per task).
        one_hot: append the task's one-hot id to the observation.
        target_entropy: what the temperatures steer the policy's entropy to, in nats; None for minus the count
            of an action's numbers.
        critic_network: `mlp`, or `residual` (see `ResidualMLP`).
        critic_reduction: `min` or `mean`: which value of the critics targets and policy take.
        value_bins: outputs of a critic that stand for a distribution of the value; 0 for the value itself.
        value_bound: greatest value of such a distribution, and what normalised returns fit into.
        value_smoothing: see `CategoricalValue`.
        weight_decay: AdamW's, for the actor and the critics.
        normalize_rewards: `none`, or `returns` (see `ReturnScale`).
        temperature: `per-task`, or `shared`: one of all tasks, learnt as by BRC (Nauman et al. 2025).
        log_std_bounding: `clip`, or `tanh`, see `Policy`.
    """

    actor_hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...]
    layer_norm: bool
    init: str
    actor_learning_rate: float
    critic_learning_rate: float
    alpha_learning_rate: float
    adam_eps: float
    gamma: float
    tau: float
    initial_alpha: float
    max_grad_norm: float
    log_std_min: float
    log_std_max: float
    reward_scale: float
    heads: str = "one-hot"
    one_hot: bool = False
    target_entropy: float | None = None
    critic_network: str = "mlp"
    critic_reduction: str = "min"
    value_bins: int = 0
    value_bound: float = 10.0
    value_smoothing: float = 0.0
    weight_decay: float = 0.0
    normalize_rewards: str = "none"
    temperature: str = "per-task"
    log_std_bounding: str = "clip"

    def entropy_aimed_at(self, action_dim: int) -> float:
        """Returns what the temperatures steer the policy's entropy to, in nats."""
        return -float(action_dim) if self.target_entropy is None else self.target_entropy

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> SACConfig:
        """Picks the fields out of a recipe's values."""
        # a recipe on one environment has no word for what only several tasks can differ in
        picked = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        for name in ("actor_hidden", "critic_hidden"):
            picked[name] = tuple(picked[name])
        return cls(**picked)


def make_policy(config: SACConfig, observation_dim: int, action_dim: int, num_tasks: int) -> Policy:
    """Builds the policy of a configuration, with fresh weights."""
    return Policy(
        observation_dim,
        action_dim,
        num_tasks,
        hidden=config.actor_hidden,
        one_hot=config.one_hot,
        multi_head=config.heads == "multi-head",
        init=config.init,
        log_std_bounds=(config.log_std_min, config.log_std_max),
        log_std_bounding=config.log_std_bounding,
    )
