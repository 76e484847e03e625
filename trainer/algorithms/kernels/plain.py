"""The operations of an update with explicit gradients, in PyTorch: what the kernels are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer.algorithms.kernels.operations import Constants, Inputs, Operations, Step
from trainer.algorithms.optimizers import AdamOfEach, AverageOfEach, GuardedAdam, GuardedAverage, not_finite
from trainer.nn.policy import ObservationEncoder, squashed_gaussian
from trainer.replay import Batch


def plain(constants: Constants) -> Operations:
    """Returns the operations, on any device and in any precision."""
    return _Plain(constants)


class _Plain:
    def __init__(self, constants: Constants) -> None:
        self._constants = constants

    def inputs(self, batch: Batch, encoder: ObservationEncoder) -> Inputs:
        now = encoder(batch.observation, batch.task)
        then = encoder(batch.next_observation, batch.task)
        room = torch.empty_like(batch.action)
        return Inputs(
            torch.cat([now, then], -2),
            torch.cat([now, batch.action], -1),
            torch.cat([now, room], -1),
            torch.cat([then, room], -1),
        )

    def bias_relu_(self, values: Tensor, bias: Tensor) -> Tensor:
        return values.add_(bias).relu_()

    def mask_(self, gradient: Tensor, hidden: Tensor) -> Tensor:
        return gradient.masked_fill_(hidden <= 0.0, 0.0)

    def mask_sum_(self, gradient: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
        torch.sum(self.mask_(gradient, hidden), -2, keepdim=True, out=bias)
        return gradient

    def act(
        self, outputs: Tensor, bias: Tensor, noise: Tensor, task: Tensor, proposed: Tensor, following: Tensor
    ) -> Tensor:
        actions = noise.shape[-1]
        mean, log_std = self._heads(outputs, bias, torch.cat([task, task], -1), actions)
        action, log_density = squashed_gaussian(mean, self._bounded(log_std), noise.flatten(1, 2))
        for room, own in zip((proposed, following), action.chunk(2, -2), strict=True):
            room[..., -actions:].copy_(own)
        return log_density.view(len(task), 2, -1)

    def temperature(
        self, log_alpha: Tensor, log_density: Tensor, task: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        surplus = log_density + self._constants.target_entropy
        entropy = -log_density.mean(-1)
        if self._constants.shared:  # linear in alpha, and held once a task
            gradient.copy_(log_alpha.exp() * -surplus.mean(-1, keepdim=True))
            return gradient[:, 0].clone(), entropy
        one_hot = task[..., None] == torch.arange(log_alpha.shape[-1], device=task.device)
        torch.mean(-(one_hot * surplus[..., None]), -2, out=gradient)  # linear in log alpha
        return (log_alpha * gradient).sum(-1), entropy

    def values(self, hidden: Tensor, weight: Tensor, bias: Tensor, task: Tensor) -> Tensor:
        values = torch.baddbmm(bias, hidden, weight)
        return torch.where(_own_head(task, weight), values, 0.0).sum(-1)

    def td_slope(
        self,
        values: Tensor,
        target_values: Tensor,
        log_density: Tensor,
        log_alpha: Tensor,
        batch: Batch,
        reward_factor: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        seeds, rows = batch.task.shape
        values = values.view(seeds, -1, rows)
        value = target_values.view(seeds, -1, rows).amin(1)
        value = value - log_alpha.exp().gather(-1, batch.task) * log_density
        if batch.goes_on is not None:
            value = value * batch.goes_on
        reward = self._constants.reward_scale * batch.reward
        if reward_factor is not None:
            reward = reward * reward_factor.gather(-1, batch.task)
        error = values - (reward + self._constants.gamma * value)[:, None]
        terms = error[0].numel()
        loss = error.square().sum((-2, -1)) / terms
        return (error * (2.0 / terms)).flatten(0, 1), loss, values.mean((-2, -1))

    def actor_slope(
        self, values: Tensor, log_density: Tensor, log_alpha: Tensor, task: Tensor
    ) -> tuple[Tensor, Tensor]:
        seeds, rows = task.shape
        values = values.view(seeds, -1, rows)
        least = values.amin(1, keepdim=True)
        low = (values == least).to(values.dtype)
        slope = low / low.sum(1, keepdim=True) / -rows
        loss = (log_alpha.exp().gather(-1, task) * log_density - least[:, 0]).sum(-1) / rows
        return slope.flatten(0, 1), loss

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
        own = torch.where(_own_head(task, weight), slope[..., None], 0.0)
        torch.bmm(hidden.mT, own, out=weight_gradient)
        torch.sum(own, -2, keepdim=True, out=bias_gradient)
        return self.mask_sum_(torch.bmm(own, weight.mT), hidden, hidden_bias_gradient)

    def last_layer_frozen(self, slope: Tensor, hidden: Tensor, weight: Tensor, task: Tensor) -> Tensor:
        own = torch.where(_own_head(task, weight), slope[..., None], 0.0)
        return self.mask_(torch.bmm(own, weight.mT), hidden)

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
        seeds, rows = task.shape
        actions, noise = noise.shape[-1], noise[:, 0]
        mean, given = self._heads(outputs[:, :rows], bias, task, actions)
        deviation = self._bounded(given).exp() * noise
        action = torch.tanh(mean + deviation)
        by_density = (log_alpha.exp().gather(-1, task) / rows)[..., None]
        by_action = action_gradient.view(seeds, -1, rows, actions).sum(1)
        # the log-density is -log_std - sum of log(1 - action^2), beside constants
        by_raw = by_density * 2.0 * action + by_action * (1.0 - action * action)
        by_log_std = self._bounding_slope(given) * (by_raw * deviation - by_density)
        own = torch.cat([by_raw, by_log_std], -1)
        heads = bias.shape[-1] // (2 * actions)
        chosen = (task[..., None] == torch.arange(heads, device=task.device)) | (heads == 1)
        gradient = torch.where(chosen[..., None], own[..., None, :], 0.0).flatten(-2)
        torch.sum(gradient, -2, keepdim=True, out=bias_gradient)
        return gradient

    def optimizer(
        self,
        optimizer: GuardedAdam,
        gradients: Sequence[Tensor],
        norm: Callable[[Sequence[Tensor]], Tensor],
    ) -> Step:
        return _PlainStep(optimizer, gradients, norm)

    def average(self, average: GuardedAverage) -> Callable[[Tensor], None]:
        if isinstance(average, AverageOfEach):
            return average.step
        return lambda blocked: average.step(blocked.view(()))

    def count_(self, skipped: Tensor, blocked: Tensor) -> None:
        now = blocked.to(torch.int64)
        skipped.add_(now[..., None])
        skipped[..., 1].mul_(now)

    def _heads(self, outputs: Tensor, bias: Tensor, task: Tensor, actions: int) -> tuple[Tensor, Tensor]:
        """Returns mean and unbounded log deviation, (S, rows, A), of each row's own head."""
        outputs = (outputs + bias).view(*outputs.shape[:-1], -1, 2 * actions)
        heads = outputs.shape[-2]
        if heads == 1:
            own = outputs[..., 0, :]
        else:
            chosen = task[..., None] == torch.arange(heads, device=task.device)
            own = torch.where(chosen[..., None], outputs, 0.0).sum(-2)
        mean, log_std = own.chunk(2, -1)
        return mean, log_std

    def _bounded(self, log_std: Tensor) -> Tensor:
        low, high = self._constants.log_std_bounds
        if self._constants.tanh_bounds:
            return low + 0.5 * (high - low) * (1.0 + log_std.tanh())
        return log_std.clamp(low, high)

    def _bounding_slope(self, log_std: Tensor) -> Tensor:
        low, high = self._constants.log_std_bounds
        if self._constants.tanh_bounds:
            return 0.5 * (high - low) * (1.0 - log_std.tanh().square())
        return ((log_std >= low) & (log_std <= high)).to(log_std.dtype)


class _PlainStep:
    def __init__(
        self,
        optimizer: GuardedAdam,
        gradients: Sequence[Tensor],
        norm: Callable[[Sequence[Tensor]], Tensor],
    ) -> None:
        self._optimizer = optimizer
        self._gradients = gradients
        self._norm = norm
        self._shape = (-1,) if isinstance(optimizer, AdamOfEach) else ()

    def __call__(self, losses: Sequence[Tensor], blocked: Tensor | None = None) -> tuple[Tensor, Tensor]:
        norm = self._norm(self._gradients)
        found = not_finite(norm.view(-1), *losses)
        blocked = found if blocked is None else torch.maximum(blocked, found)
        self._optimizer.step(self._gradients, norm, blocked.view(self._shape))
        return norm.view(-1), blocked

    def follow(self, blocked: Tensor) -> None:
        flag = blocked.view(self._shape)
        self._optimizer.step(self._gradients, flag, flag)  # not clipped: asks for no norm


def _own_head(task: Tensor, weight: Tensor) -> Tensor:
    """Returns which heads are the rows' own: bool (M, R, H), true where there is only one."""
    members, _, heads = weight.shape
    own = (task[..., None] == torch.arange(heads, device=task.device)) | (heads == 1)
    return own.repeat_interleave(members // len(task), 0)
