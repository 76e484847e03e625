"""The learner of DQN (Mnih et al. 2015); double (van Hasselt et al. 2016), dueling (Wang et al. 2016).

All gradients are written out: in an update of small networks PyTorch's way to them would take a large part.
Temporal-difference targets stay in float32 whatever the precision of the matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainer.algorithms.off_policy import OffPolicy
from trainer.algorithms.optimizers import GuardedAdam, GuardedAverage, flatten, norms, not_finite
from trainer.nn.epsilon_greedy import EpsilonGreedyPolicy
from trainer.replay import Batch

_DELTA = 1.0
"""Error from which on the Huber loss is linear, as in Mnih et al. 2015, who clip errors there."""


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
            left: share of the training that is left, from 1 to 0.
        """
        way = min(1.0, (1.0 - left) / self.exploration_share)
        return self.epsilon_start + way * (self.epsilon_end - self.epsilon_start)


class DQN(OffPolicy):
    """The learner.

    Args:
        config: the hyperparameters.
        observation_dim: numbers in an observation.
        choices: how many there are to choose from.
        num_tasks: tasks; there can be only 1.
        device: where everything lies.
        autocast: makes the context in which the networks are evaluated; full precision by default.
        micro_batches: parts in which a batch is computed, to save memory; what is learnt stays the same.
        reward_factor: (1,) on the device, what rewards are multiplied by; read anew by every update. None
            for 1.
        average: returns the means of tensors over all learners that have an equal part of each batch; this
            one is alone by default. Each then takes the same step.

    Attributes:
        policy: whose network learns; its parameters are parts of one tensor.
        targets: which follow the network.
    """

    configuration = DQNConfig

    def __init__(
        self,
        config: DQNConfig,
        observation_dim: int,
        choices: int,
        num_tasks: int = 1,
        device: torch.device | str = "cpu",
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        micro_batches: int = 1,
        reward_factor: Tensor | None = None,
        average: Callable[[Sequence[Tensor]], list[Tensor]] = list,
    ) -> None:
        if num_tasks != 1:
            raise ValueError(f"DQN learns one task, not {num_tasks}")
        self.config = config
        self.policy = make_policy(config, observation_dim, choices).to(device)
        self.targets = deepcopy(self.policy.actor).requires_grad_(False)
        flat, target = flatten([*self.policy.actor.parameters()]), flatten([*self.targets.parameters()])
        self._follow = GuardedAverage([target], [flat], config.tau)
        self._numbers = torch.arange(choices, device=device, dtype=torch.float32)
        self._since = torch.zeros((), device=device)
        self._gradient = torch.empty_like(flat)
        super().__init__(
            self.policy,
            {"targets": self.targets},
            {"network": GuardedAdam([flat], config.learning_rate, config.adam_eps, config.max_grad_norm)},
            {"since_target": self._since},
            reward_scale=config.reward_scale,
            reward_factor=reward_factor,
            autocast=autocast,
            micro_batches=micro_batches,
            average=average,
        )

    def by_task(self) -> dict[str, Tensor]:
        """Returns `epsilon` (1,), for the log."""
        return {"epsilon": self.policy.epsilon.view(1)}

    def schedule(self, left: float) -> None:
        """Sets the policy's epsilon.

        Args:
            left: share of the training that is left, from 1 to 0.
        """
        self.policy.epsilon.fill_(self.config.epsilon(left))

    @torch.no_grad()
    def update(self, batch: Batch, turn: int = 0) -> dict[str, Tensor]:
        """Learns from one batch; the target moves when its time has come.

        Args:
            batch: transitions, each of `n_step` steps.
            turn: 0.

        Returns:
            Scalars on the device, for the log: `loss/critic`, `q/mean`, of the actions taken, before clipping
            `grad_norm/critic`. Those of a skipped update say why it was skipped.
        """
        del turn  # every update is like the others
        size, (first, *others) = len(batch.reward), self._parts(batch)
        sums = self._slope(first, size, self._gradient)
        for part in others:
            torch._foreach_add_(sums, self._slope(part, size))
        # before anything is decided, so that all learners decide the same
        gradient, loss, q_mean = self._over_learners(sums)
        norm = norms(gradient)
        blocked = not_finite(loss, norm)
        self.optimizers["network"].step([gradient], norm, blocked)
        self._move_target(blocked)
        self._count(blocked)
        return {
            "loss/critic": loss,
            "q/mean": q_mean,
            "grad_norm/critic": norm,
        }

    def _slope(self, batch: Batch, size: int, gradient: Tensor | None = None) -> list[Tensor]:
        """Returns what these of `size` rows add to gradient (parameters,), loss and mean value.

        Args:
            batch: the rows.
            size: rows of the whole batch.
            gradient: where to write the gradient; a new tensor by default.
        """
        network = self.policy.actor
        target = self._target(batch)
        with self._precision:
            given, values = network.trace(self.policy.encoder(batch.observation, batch.task))
        taken = batch.action == self._numbers
        value = torch.where(taken, values, 0.0).sum(-1)
        loss = functional.huber_loss(value, target, reduction="sum", delta=_DELTA) / size
        slope = (value - target).clamp_(-_DELTA, _DELTA).div_(size)
        parts = network.slopes(given, torch.where(taken, slope[:, None], 0.0))
        gradient = torch.cat([part.flatten() for part in parts], out=gradient)
        return [gradient, loss, value.sum() / size]

    def _target(self, batch: Batch) -> Tensor:
        """Returns the temporal-difference targets (rows,)."""
        features = self.policy.encoder(batch.next_observation, batch.task)
        with self._precision:
            values: Tensor = self.targets(features)
            if self.config.double:
                chosen = self.policy.actor(features).argmax(-1, keepdim=True)
                following = values.gather(-1, chosen).squeeze(-1)
            else:
                following = values.amax(-1)
        return self._td_target(batch, following, self.config.gamma)

    def _move_target(self, blocked: Tensor) -> None:
        """Moves the target after each `target_interval` updates that were not skipped."""
        if self.config.target_interval > 1:
            self._since.add_(1.0 - blocked)
            waiting = self._since.lt(self.config.target_interval).float()
            self._since.mul_(waiting)
            blocked = torch.maximum(blocked, waiting)
        self._follow.step(blocked)


def make_policy(config: DQNConfig, observation_dim: int, choices: int) -> EpsilonGreedyPolicy:
    """Builds the policy of a configuration, with fresh weights."""
    return EpsilonGreedyPolicy(
        observation_dim, choices, hidden=config.hidden, dueling=config.dueling, epsilon=config.epsilon_start
    )
