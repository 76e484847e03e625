"""What an update with explicit gradients needs beside matrix products, on any device.

`trainer.algorithms.kernels.plain` has these operations in PyTorch: the reference.

Letters in shapes: S seeds, B transitions in a seed's batch, K tasks, A numbers in an action, F features of an
observation, H output heads, M members of an ensemble (of all seeds, those of a seed side by side), R rows of
each member, W columns of a layer. Members of a seed have the seed's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from trainer.algorithms.optimizers import GuardedAdam, GuardedAverage
from trainer.nn.policy import ObservationEncoder
from trainer.replay import Batch


@dataclass(frozen=True)
class Constants:
    """Numbers of a configuration that operations depend on.

    Attributes:
        gamma: discount.
        reward_scale: factor on rewards.
        target_entropy: what temperatures steer the policy's entropy to, in nats.
        shared: whether one temperature is learnt for all tasks.
        log_std_bounds: least and greatest log standard deviation.
        tanh_bounds: whether a tanh brings it there, instead of a clamp.
    """

    gamma: float
    reward_scale: float
    target_entropy: float
    shared: bool
    log_std_bounds: tuple[float, float]
    tanh_bounds: bool


class Inputs(NamedTuple):
    """What networks are given in an update.

    Attributes:
        actor: (S, 2 B, F), features of the observations, then those of the next ones.
        taken: (S, B, F + A), features of the observations with the actions taken.
        proposed: (S, B, F + A), the same with room for the policy's actions.
        following: (S, B, F + A), features of the next observations with room for the policy's actions.
    """

    actor: Tensor
    taken: Tensor
    proposed: Tensor
    following: Tensor


class Step(Protocol):
    """An optimiser with the memory its gradients are written to."""

    def __call__(self, losses: Sequence[Tensor], blocked: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Takes the step of each seed whose numbers are finite.

        Args:
            losses: (S,) each, whose values decide, too.
            blocked: (S,), 1.0 for seeds that are to take none.

        Returns:
            The norms of all gradients together, (S,), and 1.0 for each seed that took no step, (S,).
        """

    def follow(self, blocked: Tensor) -> None:
        """Takes the step of each seed that is not `blocked` (S,), unclipped, whatever the gradients are."""


class Operations(Protocol):
    """The operations; tensors that are returned are new, and what an underscore ends works in place."""

    def inputs(self, batch: Batch, encoder: ObservationEncoder) -> Inputs:
        """Lays out what networks are given, for a batch (S, B, ...)."""

    def bias_relu_(self, values: Tensor, bias: Tensor) -> Tensor:
        """Adds a bias (M, 1, W) to values (M, R, W), then cuts off below 0; what is no number stays so."""

    def mask_(self, gradient: Tensor, hidden: Tensor) -> Tensor:
        """Sets a gradient (M, R, W) to 0 where a hidden layer gave on 0, its ReLU's way back."""

    def mask_sum_(self, gradient: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
        """Does `mask_`, and writes the sum over the rows into `bias` (M, 1, W)."""

    def act(
        self, outputs: Tensor, bias: Tensor, noise: Tensor, task: Tensor, proposed: Tensor, following: Tensor
    ) -> Tensor:
        """Draws the policy's actions and writes them into the last A columns of the critics' inputs.

        Args:
            outputs: (S, 2 B, H 2 A), products of the actor's last layer, of each head means and then log
                deviations.
            bias: (S, 1, H 2 A), not yet added.
            noise: (S, 2, B, A), standard normal.
            task: (S, B), also the row's head if there are several.
            proposed: (S, B, F + A), for the first half of the rows.
            following: (S, B, F + A), for the second half.

        Returns:
            The log-densities of the actions, (S, 2, B).
        """

    def temperature(
        self, log_alpha: Tensor, log_density: Tensor, task: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Computes the temperatures' loss.

        Args:
            log_alpha: (S, K).
            log_density: (S, B), of the proposed actions; rows of the seeds may lie apart.
            task: (S, B).
            gradient: (S, K), into which the loss's gradient by `log_alpha` is written.

        Returns:
            The losses and the policy's entropies, (S,) both.
        """

    def values(self, hidden: Tensor, weight: Tensor, bias: Tensor, task: Tensor) -> Tensor:
        """Computes a critic's last layer.

        Args:
            hidden: (M, R, W).
            weight: (M, W, H).
            bias: (M, 1, H).
            task: (S, R), the row's head if there are several.

        Returns:
            The values, (M, R).
        """

    def td_slope(
        self,
        values: Tensor,
        target_values: Tensor,
        log_density: Tensor,
        log_alpha: Tensor,
        batch: Batch,
        reward_factor: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Computes the critics' squared temporal-difference error.

        Args:
            values: (2 S, B), of the actions taken.
            target_values: (2 S, B), of what followed.
            log_density: (S, B), of the following actions; rows of the seeds may lie apart.
            log_alpha: (S, K).
            batch: (S, B, ...): its rewards, tasks and whether it goes on.
            reward_factor: (S, K), or None.

        Returns:
            The loss's slope by the values, (2 S, B); the loss and the mean value, (S,) both.
        """

    def actor_slope(
        self, values: Tensor, log_density: Tensor, log_alpha: Tensor, task: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Computes the actor's loss.

        Args:
            values: (2 S, B), of the proposed actions.
            log_density: (S, B), of these; rows of the seeds may lie apart.
            log_alpha: (S, K).
            task: (S, B).

        Returns:
            The loss's slope by the values, (2 S, B), shared where both are least; the loss, (S,).
        """

    def last_layer(
        self,
        slope: Tensor,
        hidden: Tensor,
        weight: Tensor,
        task: Tensor,
        weight_gradient: Tensor,
        bias_gradient: Tensor,
        hidden_bias_gradient: Tensor,
    ) -> Tensor:
        """Goes back through a critic's last layer and the ReLU before it.

        Args:
            slope: (M, R), by the values.
            hidden: (M, R, W), what the layer was given.
            weight: (M, W, H).
            task: (S, R), the row's head if there are several.
            weight_gradient: (M, W, H), written.
            bias_gradient: (M, 1, H), written.
            hidden_bias_gradient: (M, 1, W), of the layer before, written.

        Returns:
            The gradient by what the hidden layer computed before its ReLU, (M, R, W).
        """

    def last_layer_frozen(self, slope: Tensor, hidden: Tensor, weight: Tensor, task: Tensor) -> Tensor:
        """Does the same with constant parameters."""

    def act_back(
        self,
        action_gradient: Tensor,
        outputs: Tensor,
        bias: Tensor,
        noise: Tensor,
        task: Tensor,
        log_alpha: Tensor,
        bias_gradient: Tensor,
    ) -> Tensor:
        """Goes back through the proposed actions to the actor's outputs.

        Args:
            action_gradient: (2 S, B, A), by the actions, of either critic.
            outputs: as `act` was given.
            bias: as `act` was given.
            noise: as `act` was given.
            task: (S, B).
            log_alpha: (S, K).
            bias_gradient: (S, 1, H 2 A), written.

        Returns:
            The loss's gradient by the first half of the outputs, (S, B, H 2 A).
        """

    def optimizer(
        self,
        optimizer: GuardedAdam,
        gradients: Sequence[Tensor],
        norm: Callable[[Sequence[Tensor]], Tensor],
    ) -> Step:
        """Returns the step of an optimiser.

        Args:
            optimizer: of one seed, or of several.
            gradients: one per parameter, in its shape; of several seeds, side by side along the first axis.
            norm: returns the norms of gradients, a number ([S]).
        """

    def average(self, average: GuardedAverage) -> Callable[[Tensor], None]:
        """Returns what moves targets, for each seed that is not blocked (S,)."""

    def count_(self, skipped: Tensor, blocked: Tensor) -> None:
        """Counts blocked (S,) updates in `skipped`, int64 (S, 2): in all, and in a row."""
