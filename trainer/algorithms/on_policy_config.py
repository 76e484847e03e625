"""The hyperparameters of PPO and A2C, and the networks that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from trainer.envs.spaces import ActionSpace
from trainer.nn.actor_critic import ActorCritic, TaskActor
from trainer.nn.heads import CategoricalHead, GaussianHead


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig:
    """What both algorithms have; names and values are those of a recipe.

    Attributes:
        hidden: widths of the hidden layers of the policy and, apart from it, of the value network.
        activation: `tanh` or `relu`.
        initial_log_std: log standard deviation of continuous actions at the start.
        learning_rate: the optimiser's, at the start.
        learning_rate_schedule: `constant`, or `linear` to zero at the last step.
        max_grad_norm: bound on the norm of all gradients together; 0 for none.
        gamma: discount a step.
        gae_lambda: see `trainer.replay.rollout`.
        entropy_coefficient: weight of the entropy bonus, at the start.
        entropy_schedule: `constant`, or `linear` to zero at the last step.
        value_coefficient: weight of the value loss.
        normalize_advantages: standardise the advantages of each batch.
        normalize_observations: standardise observations by running statistics.
        normalize_rewards: divide rewards by the running deviation of the discounted return.
    """

    hidden: tuple[int, ...]
    activation: str
    initial_log_std: float
    learning_rate: float
    learning_rate_schedule: str
    max_grad_norm: float
    gamma: float
    gae_lambda: float
    entropy_coefficient: float
    entropy_schedule: str
    value_coefficient: float
    normalize_advantages: bool
    normalize_observations: bool
    normalize_rewards: bool

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Picks the fields out of a recipe's values."""
        picked = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        picked["hidden"] = tuple(picked["hidden"])
        return cls(**picked)


@dataclass(frozen=True, kw_only=True)
class PPOConfig(OnPolicyConfig):
    """The hyperparameters of proximal policy optimisation.

    Attributes:
        adam_eps: Adam's epsilon.
        clip_range: how far the probability ratio may move from 1 before its gradient is cut.
        value_clip_range: the same for the value estimate; 0 for no clipping.
        target_kl: a rollout is learnt from no more once the policy has moved 1.5 times this far; 0 is off.
    """

    adam_eps: float
    clip_range: float
    value_clip_range: float
    target_kl: float


@dataclass(frozen=True, kw_only=True)
class MultiTaskPPOConfig(PPOConfig):
    """The hyperparameters of PPO on Meta-World's tasks: no network for values, nothing normalised.

    Attributes:
        log_std_min: least log standard deviation of actions, which the policy's network gives.
        log_std_max: greatest.
        baseline_ridge: see `trainer.algorithms.multi_task_ppo_learner`.
        episode_steps: length of every episode.
    """

    log_std_min: float
    log_std_max: float
    baseline_ridge: float
    episode_steps: int
    initial_log_std: float = 0.0
    value_coefficient: float = 0.0
    value_clip_range: float = 0.0
    normalize_observations: bool = False
    normalize_rewards: bool = False


@dataclass(frozen=True, kw_only=True)
class A2CConfig(OnPolicyConfig):
    """The hyperparameters of advantage actor-critic.

    Attributes:
        optimizer: `rmsprop` or `adam`.
        optimizer_eps: the optimiser's epsilon, added to the root as in PyTorch.
        rmsprop_alpha: decay of RMSprop's mean square.
    """

    optimizer: str
    optimizer_eps: float
    rmsprop_alpha: float


def make_actor_critic(config: OnPolicyConfig, observation_dim: int, actions: ActionSpace) -> ActorCritic:
    """Builds the networks of a configuration, with fresh weights."""
    discrete = actions.kind == "discrete"
    return ActorCritic(
        observation_dim,
        actions.dim,
        CategoricalHead(actions.nvec) if discrete else GaussianHead(actions.dim, config.initial_log_std),
        hidden=config.hidden,
        activation=config.activation,
        normalize=config.normalize_observations,
    )


def make_task_actor(
    config: MultiTaskPPOConfig, observation_dim: int, action_dim: int, num_tasks: int
) -> TaskActor:
    """Builds the policy of a configuration for several tasks, with fresh weights."""
    return TaskActor(
        observation_dim,
        action_dim,
        num_tasks,
        hidden=config.hidden,
        activation=config.activation,
        log_std_bounds=(config.log_std_min, config.log_std_max),
    )
