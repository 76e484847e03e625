"""Multi-task soft actor-critic (Haarnoja et al. 2018, multi-task as in McLean et al. 2025).

One call of `update` is critic, target, actor and temperature step, in this order. It reads tensors and writes
parameters in place, with static shapes and nothing that depends on the host, so that it can be captured
as it is. The temporal-difference target, the log-densities and the temperatures stay in float32 whatever
the precision of the matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from trainer.nn.distributions import squashed_gaussian
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.policy import Policy
from trainer.replay import Batch

_CRITICS = 2
_CRITIC_OUTPUT_BOUND = 3e-3
"""Initial bound of the critics' output layer, from the code of McLean et al. 2025."""


@dataclass(frozen=True)
class SACConfig:
    """The hyperparameters of the networks and of the update; names and values are those of a recipe.

    Attributes:
        heads: `one-hot` (one output head) or `multi-head` (one per task).
        one_hot: append the task's one-hot id to the observation.
        actor_hidden: widths of the actor's hidden layers.
        critic_hidden: widths of each critic's hidden layers.
        layer_norm: normalise the critics' hidden layers.
        init: `he_uniform` or `fan_in_uniform`.
        actor_learning_rate: Adam's, for the actor.
        critic_learning_rate: Adam's, for the critics.
        alpha_learning_rate: Adam's, for the temperatures.
        adam_eps: Adam's epsilon, for all three.
        gamma: discount.
        tau: share of the critics that enters the targets with each update.
        initial_alpha: each task's temperature at the start.
        target_entropy: what the temperatures steer the policy's entropy to.
        max_grad_norm: bound on the norm of the actor's and of both critics' gradients; 0 for none.
        log_std_min: lower bound of the policy's log standard deviation.
        log_std_max: upper bound of it.
        reward_scale: factor on rewards.
    """

    heads: str
    one_hot: bool
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
    target_entropy: float
    max_grad_norm: float
    log_std_min: float
    log_std_max: float
    reward_scale: float

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> SACConfig:
        """Picks the fields out of a recipe's values."""
        picked = {field.name: values[field.name] for field in fields(cls)}
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
    )


class SAC:
    """The learner: networks, targets, temperatures and their optimisers.

    Args:
        config: the hyperparameters.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action, each in [-1, 1].
        num_tasks: tasks.
        device: where everything lies.
        autocast: makes the context in which the networks are evaluated; full precision by default.
    """

    def __init__(
        self,
        config: SACConfig,
        observation_dim: int,
        action_dim: int,
        num_tasks: int,
        device: torch.device | str = "cpu",
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.config = config
        self._autocast = autocast
        self.policy = make_policy(config, observation_dim, action_dim, num_tasks).to(device)
        self.critics = EnsembleMLP(
            _CRITICS,
            self.policy.encoder.features + action_dim,
            config.critic_hidden,
            1,
            heads=num_tasks if config.heads == "multi-head" else 1,
            layer_norm=config.layer_norm,
            init=config.init,
            output_bound=_CRITIC_OUTPUT_BOUND,
        ).to(device)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.full((num_tasks,), config.initial_alpha, device=device).log_().requires_grad_()
        self._actor_parameters: list[Tensor] = list(self.policy.actor.parameters())
        self._critic_parameters: list[Tensor] = list(self.critics.parameters())
        self._target_parameters: list[Tensor] = list(self.targets.parameters())
        self._optimizers = {
            "actor": self._adam(self._actor_parameters, config.actor_learning_rate),
            "critics": self._adam(self._critic_parameters, config.critic_learning_rate),
            "alpha": self._adam([self.log_alpha], config.alpha_learning_rate),
        }

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Learns from one batch.

        Returns:
            Scalars on the device, for the log: `loss/critic`, `loss/actor`, `loss/alpha`, `q/mean`,
            `entropy`.
        """
        task = batch.task
        features = self.policy.encoder(batch.observation, task)
        alpha = self.log_alpha.detach().exp()[task]  # all losses use the temperature before this update

        target = self._td_target(batch, alpha)
        values = self._values(self.critics, features, batch.action, task)
        critic_loss = (values - target).square().mean()
        self._step("critics", critic_loss, self._critic_parameters, self.config.max_grad_norm)
        with torch.no_grad():
            torch._foreach_lerp_(self._target_parameters, self._critic_parameters, self.config.tau)

        action, log_density = self._act(features, task)
        actor_loss = (alpha * log_density - self._values(self.critics, features, action, task).amin(0)).mean()
        # gradients are asked for by name, so none are computed for the critics' weights
        self._step("actor", actor_loss, self._actor_parameters, self.config.max_grad_norm)

        surplus = log_density.detach() + self.config.target_entropy
        alpha_loss = -(self.log_alpha[task] * surplus).mean()
        self._step("alpha", alpha_loss, [self.log_alpha], 0.0)
        return {
            "loss/critic": critic_loss.detach(),
            "loss/actor": actor_loss.detach(),
            "loss/alpha": alpha_loss.detach(),
            "q/mean": values.detach().mean(),
            "entropy": -log_density.detach().mean(),
        }

    @property
    def alpha(self) -> Tensor:
        """The temperatures, shape (num_tasks,)."""
        return self.log_alpha.detach().exp()

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that is learnt, optimisers included."""
        return {
            "policy": self.policy.state_dict(),
            "critics": self.critics.state_dict(),
            "targets": self.targets.state_dict(),
            "log_alpha": self.log_alpha.detach().clone(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned, from a learner of the same configuration and sizes."""
        self.policy.load_state_dict(state["policy"])
        self.critics.load_state_dict(state["critics"])
        self.targets.load_state_dict(state["targets"])
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])

    @torch.no_grad()
    def _td_target(self, batch: Batch, alpha: Tensor) -> Tensor:
        features = self.policy.encoder(batch.next_observation, batch.task)
        action, log_density = self._act(features, batch.task)
        value = self._values(self.targets, features, action, batch.task).amin(0) - alpha * log_density
        return self.config.reward_scale * batch.reward + self.config.gamma * value

    def _act(self, features: Tensor, task: Tensor) -> tuple[Tensor, Tensor]:
        with self._autocast():
            mean, log_std = self.policy.distribution(features, task)
        return squashed_gaussian(mean, log_std)

    def _values(self, critics: EnsembleMLP, features: Tensor, action: Tensor, task: Tensor) -> Tensor:
        with self._autocast():
            values: Tensor = critics(torch.cat([features, action], -1), task)
        return values.squeeze(-1)

    def _step(self, name: str, loss: Tensor, parameters: list[Tensor], max_norm: float) -> None:
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        if max_norm > 0:
            nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)
        self._optimizers[name].step()

    def _adam(self, parameters: list[Tensor], learning_rate: float) -> torch.optim.Adam:
        return torch.optim.Adam(parameters, lr=learning_rate, eps=self.config.adam_eps, fused=True)
