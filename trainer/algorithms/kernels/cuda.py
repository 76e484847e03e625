"""The operations of an update with explicit gradients as kernels, each in one launch.

Sums are added up in an order that depends on shapes alone, so that every run, and every GPU, adds them so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer.algorithms.kernels.launch import Argument, Extent, Launcher
from trainer.algorithms.kernels.operations import Constants, Inputs, Operations, Step
from trainer.algorithms.kernels.steps import KernelStep, average
from trainer.algorithms.optimizers import GuardedAdam, GuardedAverage
from trainer.nn.policy import ObservationEncoder
from trainer.replay import Batch

_PACK = 4
"""Numbers that are moved together where all addresses allow it."""
_AT_ONCE = 4
"""Rows of a thread in the kernels of layers."""
_ENOUGH = 128
"""Blocks that keep a large GPU busy."""


def operations(launch: Launcher, constants: Constants) -> Operations:
    """Returns the operations, whose kernels something runs."""
    return _Kernels(launch, constants)


class _Kernels:
    def __init__(self, launch: Launcher, constants: Constants) -> None:
        self._launch = launch
        self._constants = constants

    def inputs(self, batch: Batch, encoder: ObservationEncoder) -> Inputs:
        seeds, rows, actions = batch.action.shape
        features, like = encoder.features, batch.observation
        made = Inputs(
            like.new_empty(seeds, 2 * rows, features),
            *(like.new_empty(seeds, rows, features + actions) for _ in range(3)),
        )
        given = [
            part
            for own in (batch.observation, batch.next_observation, batch.action)
            for part in _columns(own)
        ]
        stride = encoder.mean.shape[-1] if encoder.mean.dim() > 1 else 0
        statistics: list[Argument] = [encoder.mean, encoder.std, stride]
        sizes = [rows, like.shape[-1], features, actions]
        grid = _blocks(2 * rows * (features + actions), 256), seeds, 1
        self._run("inputs", grid, (256, 1, 1), [*given, batch.task, *statistics, *made, *sizes])
        return made

    def bias_relu_(self, values: Tensor, bias: Tensor) -> Tensor:
        packs = _packs(values.shape[-1], values, bias)
        self._run("bias_relu", *_elementwise(values, packs), [values, bias, *values.shape[1:], packs])
        return values

    def mask_(self, gradient: Tensor, hidden: Tensor) -> Tensor:
        packs, given = _masking(gradient, hidden)
        self._run("mask", *_elementwise(gradient, packs), [*given, *gradient.shape[1:], packs])
        return gradient

    def mask_sum_(self, gradient: Tensor, hidden: Tensor, bias: Tensor) -> Tensor:
        packs, given = _masking(gradient, hidden, bias)
        grid, block, shared = _by_columns(gradient, packs)
        self._run("mask_sum", grid, block, [*given, bias, *gradient.shape[1:], packs], shared)
        return gradient

    def act(
        self, outputs: Tensor, bias: Tensor, noise: Tensor, task: Tensor, proposed: Tensor, following: Tensor
    ) -> Tensor:
        seeds, _, rows, actions = noise.shape
        log_density = noise.new_empty(seeds, 2, rows)
        given = [outputs, bias, noise, task, proposed, following, log_density]
        sizes = [rows, actions, bias.shape[-1] // (2 * actions), proposed.shape[-1]]
        grid = _blocks(2 * rows, 64), seeds, 1
        self._run("act", grid, (64, 1, 1), [*given, *sizes, *self._bounds()])
        return log_density

    def temperature(
        self, log_alpha: Tensor, log_density: Tensor, task: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        (seeds, rows), tasks = task.shape, log_alpha.shape[-1]
        loss, entropy = log_alpha.new_empty(2, seeds).unbind()
        given = [log_alpha, *_rows(log_density), task, gradient, loss, entropy]
        how = [self._constants.target_entropy, int(self._constants.shared)]
        self._of_seeds("temperature", seeds, max(rows, 32 * tasks), [*given, rows, tasks, *how])
        return loss, entropy

    def values(self, hidden: Tensor, weight: Tensor, bias: Tensor, task: Tensor) -> Tensor:
        members, rows, width = hidden.shape
        values = hidden.new_empty(members, rows)
        packs = _packs(width, hidden, weight)
        sizes = [rows, width, weight.shape[-1], members // len(task), packs]
        grid = _blocks(rows, 8), members, 1
        self._run("values", grid, (32, 8, 1), [hidden, weight, bias, task, values, *sizes])
        return values

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
        slope = torch.empty_like(values)
        loss, mean = values.new_empty(2, seeds).unbind()
        goes_on = [None, 0, 0] if batch.goes_on is None else _columns(batch.goes_on)
        given = [
            values,
            target_values,
            *_rows(log_density),
            log_alpha,
            batch.task,
            *_columns(batch.reward),
            *goes_on,
        ]
        sizes = [rows, len(values) // seeds, log_alpha.shape[-1]]
        how = [self._constants.gamma, self._constants.reward_scale]
        self._of_seeds("td_slope", seeds, rows, [*given, reward_factor, slope, loss, mean, *sizes, *how])
        return slope, loss, mean

    def actor_slope(
        self, values: Tensor, log_density: Tensor, log_alpha: Tensor, task: Tensor
    ) -> tuple[Tensor, Tensor]:
        seeds, rows = task.shape
        slope, loss = torch.empty_like(values), values.new_empty(seeds)
        given = [values, *_rows(log_density), log_alpha, task, slope, loss]
        self._of_seeds("actor_slope", seeds, rows, [*given, rows, len(values) // seeds, log_alpha.shape[-1]])
        return slope, loss

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
        flow, heads = torch.empty_like(hidden), weight.shape[-1]
        packs, sizes = self._last(hidden, weight, task, hidden_bias_gradient)
        (columns, _, members), block, shared = _by_columns(hidden, packs)
        gradients = [weight_gradient, bias_gradient, hidden_bias_gradient]
        given = [slope, hidden, weight, task, flow, *gradients, *sizes]
        self._run("last_layer", (columns, heads + 1, members), block, given, shared)
        return flow

    def last_layer_frozen(self, slope: Tensor, hidden: Tensor, weight: Tensor, task: Tensor) -> Tensor:
        flow = torch.empty_like(hidden)
        packs, sizes = self._last(hidden, weight, task)
        given = [slope, hidden, weight, task, flow, *sizes]
        self._run("last_layer_frozen", *_elementwise(hidden, packs), given)
        return flow

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
        (seeds, rows), actions, width = task.shape, noise.shape[-1], bias.shape[-1]
        gradient = outputs.new_empty(seeds, rows, width)
        given = [action_gradient, outputs, bias, noise, task, log_alpha, gradient, bias_gradient]
        sizes = [rows, actions, len(action_gradient) // seeds, log_alpha.shape[-1]]
        grid = actions, width // (2 * actions), seeds
        threads = _threads(rows)
        arguments = [*given, *sizes, *self._bounds()]
        self._run("act_back", grid, (threads, 1, 1), arguments, threads // 32 * outputs.itemsize)
        return gradient

    def optimizer(
        self,
        optimizer: GuardedAdam,
        gradients: Sequence[Tensor],
        norm: Callable[[Sequence[Tensor]], Tensor],
    ) -> Step:
        del norm  # a kernel has its own
        return KernelStep(self._launch, optimizer, gradients)

    def average(self, average_: GuardedAverage) -> Callable[[Tensor], None]:
        return average(self._launch, average_)

    def count_(self, skipped: Tensor, blocked: Tensor) -> None:
        seeds = len(blocked)
        self._run("count_skipped", (_blocks(seeds, 64), 1, 1), (64, 1, 1), [skipped, blocked, seeds])

    def _bounds(self) -> list[Argument]:
        return [*self._constants.log_std_bounds, int(self._constants.tanh_bounds)]

    def _last(
        self, hidden: Tensor, weight: Tensor, task: Tensor, *others: Tensor
    ) -> tuple[int, list[Argument]]:
        members, rows, width = hidden.shape
        packs = _packs(width, hidden, weight, *others)
        return packs, [rows, width, weight.shape[-1], members // len(task), packs]

    def _of_seeds(self, name: str, seeds: int, work: int, arguments: Sequence[Argument]) -> None:
        """Runs a kernel of one block a seed, which adds up over its threads."""
        (itemsize,) = {t.itemsize for t in arguments if isinstance(t, Tensor) and t.is_floating_point()}
        threads = _threads(work)
        self._run(name, (seeds, 1, 1), (threads, 1, 1), arguments, threads // 32 * itemsize)

    def _run(
        self, name: str, grid: Extent, block: Extent, arguments: Sequence[Argument], shared: int = 0
    ) -> None:
        assert all(own.is_contiguous() for own in arguments if isinstance(own, Tensor)), name
        self._launch(name, grid, block, arguments, shared)


def _blocks(number: int, size: int) -> int:
    return -(-number // size)


def _threads(work: int) -> int:
    """Returns the threads of a block that does as many things: whole warps, sixteen at most."""
    return min(32 * _blocks(work, 32), 512)


def _columns(tensor: Tensor) -> list[Argument]:
    """Returns where (seeds, rows[, columns]) begin, and how far seeds and rows lie apart."""
    assert tensor.dim() == 2 or tensor.stride(2) == 1
    return [tensor.as_strided((), ()), tensor.stride(0), tensor.stride(1)]


def _rows(tensor: Tensor) -> list[Argument]:
    """Returns where (seeds, rows) begin, whose rows lie side by side, and how far seeds lie apart."""
    assert tensor.stride(1) == 1
    return [tensor.as_strided((), ()), tensor.stride(0)]


def _packs(width: int, *tensors: Tensor) -> int:
    """Returns 1 if rows of this width in these tensors can be moved in packs, else 0."""
    return int(width % _PACK == 0 and not any(t.data_ptr() % (_PACK * t.itemsize) for t in tensors))


def _masking(gradient: Tensor, hidden: Tensor, *others: Tensor) -> tuple[int, list[Argument]]:
    """Returns whether there are packs, and the gradient with a hidden layer whose members may lie apart."""
    width = gradient.shape[-1]
    assert hidden.stride()[1:] == (width, 1)
    return _packs(width, gradient, hidden, *others), [gradient, hidden.as_strided((), ()), hidden.stride(0)]


def _elementwise(values: Tensor, packs: int) -> tuple[Extent, Extent]:
    """Returns grid and block for values (members, rows, width)."""
    members, rows, width = values.shape
    columns = width // _PACK if packs else width
    across = min(256, _power(columns))
    down = 256 // across
    return (_blocks(columns, across), _blocks(rows, down * _AT_ONCE), members), (across, down, 1)


def _by_columns(values: Tensor, packs: int) -> tuple[Extent, Extent, int]:
    """Returns grid, block and bytes of memory where a block has some columns of (members, rows, width).

    Few columns make many blocks, and eight are one transaction of memory.
    """
    members, rows, width = values.shape
    size = _PACK if packs else 1
    columns = width // size
    across = 32 // size
    while across * size > 8 and members * _blocks(columns, across) < _ENOUGH:
        across //= 2
    down = min(512 // across, _power(rows))
    return (_blocks(columns, across), 1, members), (across, down, 1), across * down * size * values.itemsize


def _power(number: int) -> int:
    """Returns the least power of two that is not less than the number."""
    return 1 << (number - 1).bit_length()
