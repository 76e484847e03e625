"""Compares operations with the reference on the device, before a run trusts them: a little of each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.algorithms.kernels.nvrtc import KernelError
from trainer.algorithms.kernels.operations import Operations
from trainer.algorithms.optimizers import AdamOfEach, AverageOfEach, GuardedAdam, GuardedAverage
from trainer.nn.policy import ObservationEncoder
from trainer.replay import Batch

_MEMBERS = 2
"""Critics of a seed."""
_OBSERVATIONS = 5


class CheckSizes(NamedTuple):
    """Of what operations are compared on.

    Attributes:
        seeds: seeds.
        rows: of a seed's batch.
        width: of a hidden layer.
        heads: 1, or as many as tasks.
        actions: numbers in an action.
        tasks: tasks.
    """

    seeds: int
    rows: int
    width: int
    heads: int
    actions: int
    tasks: int


SIZES = CheckSizes(1, 150, 36, 1, 4, 3), CheckSizes(2, 37, 13, 3, 3, 3)
"""One seed whose layers are moved in packs of numbers, and two whose layers cannot be."""


def check(operations: Operations, reference: Operations, device: torch.device) -> None:
    """Compares operations in float32 with the reference in float64. No generator that a run draws from moves.

    Raises:
        KernelError: one of them computes something else.
    """
    fits: dict[str, Tensor] = {}
    for sizes in SIZES:
        for name, case in CASES.items():
            ours = case(operations, Material(sizes, device, torch.float32))
            theirs = case(reference, Material(sizes, device, torch.float64))
            equal = [
                torch.isclose(own.double(), other.double(), rtol=1e-4, atol=1e-5, equal_nan=True).all()
                for own, other in zip(ours, theirs, strict=True)
            ]
            fits[f"{name}, {sizes}"] = torch.stack(equal).all()
    told = torch.stack(list(fits.values())).tolist()
    wrong = [name for name, fit in zip(fits, told, strict=True) if not fit]
    if wrong:
        raise KernelError(f"they compute something else than PyTorch does: {'; '.join(wrong)}")


class Material:
    """Numbers to compute with, the same in any precision.

    Args:
        sizes: of what is computed.
        device: where.
        dtype: float32, or float64 with the same values.
        seed: of the numbers.
    """

    def __init__(self, sizes: CheckSizes, device: torch.device, dtype: torch.dtype, seed: int = 0) -> None:
        self.sizes = sizes
        self.members = _MEMBERS * sizes.seeds
        self._generator = torch.Generator().manual_seed(seed)
        self._device = device
        self._dtype = dtype

    def normal(self, *shape: int) -> Tensor:
        """Returns numbers of any sign."""
        return torch.randn(shape, generator=self._generator).to(self._device, self._dtype)

    def hidden(self) -> Tensor:
        """Returns what a hidden layer of critics gave, (members, rows, width)."""
        return self.normal(self.members, self.sizes.rows, self.sizes.width).relu_()

    def task(self) -> Tensor:
        """Returns tasks, (seeds, rows)."""
        shape = self.sizes.seeds, self.sizes.rows
        return torch.randint(self.sizes.tasks, shape, generator=self._generator).to(self._device)

    def empty(self, *shape: int) -> Tensor:
        """Returns room for results."""
        return torch.empty(shape, device=self._device, dtype=self._dtype)

    def flags(self, *values: float) -> Tensor:
        """Returns a flag for each seed."""
        own = [values[seed % len(values)] for seed in range(self.sizes.seeds)]
        return torch.tensor(own, device=self._device)

    def batch(self) -> Batch:
        """Returns transitions (seeds, rows, ...) that are parts of one tensor."""
        sizes = self.sizes
        widths = [_OBSERVATIONS, sizes.actions, 1, _OBSERVATIONS, 1]
        parts = torch.split(self.normal(sizes.seeds, sizes.rows, sum(widths)), widths, -1)
        observation, action, reward, following, ends = parts
        return Batch(
            observation, action, reward[..., 0], following, self.task(), ends[..., 0].gt(0).to(reward)
        )

    def outputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns an actor's outputs for both halves of the rows, their bias, and noise."""
        seeds, rows, _, heads, actions, _ = self.sizes
        width = heads * 2 * actions
        outputs, bias = 3.0 * self.normal(seeds, 2 * rows, width), self.normal(seeds, 1, width)
        return outputs, bias, self.normal(seeds, 2, rows, actions)


def _inputs(operations: Operations, material: Material) -> Sequence[Tensor]:
    batch, seeds = material.batch(), material.sizes.seeds
    encoder = ObservationEncoder(_OBSERVATIONS, material.sizes.tasks, one_hot=True).to(batch.reward)
    shape = (_OBSERVATIONS,) if seeds == 1 else (seeds, 1, _OBSERVATIONS)
    encoder.mean, encoder.std = material.normal(*shape), material.normal(*shape).abs() + 0.5
    actor, taken, proposed, following = operations.inputs(batch, encoder)
    return actor, taken, proposed[..., : encoder.features], following[..., : encoder.features]


def _bias_relu(operations: Operations, material: Material) -> Sequence[Tensor]:
    members, rows, width = material.members, material.sizes.rows, material.sizes.width
    values = material.normal(members, rows, width)
    values[0, rows // 2, width // 2] = torch.nan
    return [operations.bias_relu_(values, material.normal(members, 1, width))]


def _mask(operations: Operations, material: Material) -> Sequence[Tensor]:
    hidden, bias = material.hidden(), material.empty(material.members, 1, material.sizes.width)
    apart = torch.cat([hidden, hidden], 1)[:, : material.sizes.rows]
    gradients = [material.normal(*hidden.shape) for _ in range(2)]
    return operations.mask_(gradients[0], hidden), operations.mask_sum_(gradients[1], apart, bias), bias


def _act(operations: Operations, material: Material) -> Sequence[Tensor]:
    seeds, rows, _, _, actions, _ = material.sizes
    rooms = [material.normal(seeds, rows, 3 + actions) for _ in range(2)]
    return [operations.act(*material.outputs(), material.task(), *rooms), *rooms]


def _act_back(operations: Operations, material: Material) -> Sequence[Tensor]:
    seeds, rows, _, heads, actions, tasks = material.sizes
    slopes, alpha = material.normal(material.members, rows, actions), material.normal(seeds, tasks)
    bias = material.empty(seeds, 1, heads * 2 * actions)
    return [operations.act_back(slopes, *material.outputs(), material.task(), alpha, bias), bias]


def _temperature(operations: Operations, material: Material) -> Sequence[Tensor]:
    seeds, rows, *_, tasks = material.sizes
    gradient, density = material.empty(seeds, tasks), material.normal(seeds, 2, rows)[:, 0]
    return [
        *operations.temperature(material.normal(seeds, tasks), density, material.task(), gradient),
        gradient,
    ]


def _values(operations: Operations, material: Material) -> Sequence[Tensor]:
    width, heads = material.sizes.width, material.sizes.heads
    weight, bias = (
        material.normal(material.members, width, heads),
        material.normal(material.members, 1, heads),
    )
    return [operations.values(material.hidden(), weight, bias, material.task())]


def _td_slope(operations: Operations, material: Material) -> Sequence[Tensor]:
    seeds, rows, *_, tasks = material.sizes
    values, following = (material.normal(material.members, rows) for _ in range(2))
    density, batch = material.normal(seeds, 2, rows)[:, 1], material.batch()
    alpha, factor = material.normal(seeds, tasks), material.normal(seeds, tasks)
    with_all = operations.td_slope(values, following, density, alpha, batch, factor)
    without = batch._replace(goes_on=None)
    return *with_all, *operations.td_slope(values, following, density, alpha, without, None)


def _actor_slope(operations: Operations, material: Material) -> Sequence[Tensor]:
    seeds, rows, *_, tasks = material.sizes
    values, density = material.normal(material.members, rows), material.normal(seeds, 2, rows)[:, 0]
    values[1, ::3] = values[0, ::3]
    return operations.actor_slope(values, density, material.normal(seeds, tasks), material.task())


def _last_layer(operations: Operations, material: Material) -> Sequence[Tensor]:
    members, (_, rows, width, heads, _, _) = material.members, material.sizes
    given = material.normal(members, rows), material.hidden(), material.normal(members, width, heads)
    task, made = material.task(), [(members, width, heads), (members, 1, heads), (members, 1, width)]
    gradients = [material.empty(*shape) for shape in made]
    flow = operations.last_layer(*given, task, *gradients)
    return [flow, *gradients, operations.last_layer_frozen(*given, task)]


def _optimizer(operations: Operations, material: Material) -> Sequence[Tensor]:
    seeds = material.sizes.seeds
    shapes = (2, 3000), (4, 8), (1,)  # of several chunks, of one, and of a single number
    flat = [material.normal(1 + sum(map(_size, shapes))) for _ in range(seeds)]
    members = [GuardedAdam(_parts(own, shapes), 0.01, 1e-5, 0.5, 0.1, 0.8) for own in flat]
    optimizer = AdamOfEach(members) if seeds > 1 else members[0]
    gradients = [material.empty(seeds * shape[0], *shape[1:]) for shape in shapes]

    def norm(gradients: Sequence[Tensor]) -> Tensor:
        flat = torch.cat([gradient.view(seeds, -1) for gradient in gradients], 1)
        own: Tensor = torch.linalg.vector_norm(flat, dim=1)
        return own if seeds > 1 else own[0]

    step = operations.optimizer(optimizer, gradients, norm)
    results: list[Tensor] = []
    fine, broken = material.normal(seeds), material.flags(1.0, torch.nan).to(flat[0])
    calls = ([fine], None), ([fine, fine], material.flags(0.0, 1.0)), ([fine, broken], None), ([fine], None)
    for losses, blocked in calls:
        _fill(gradients, material)
        results += step(losses, blocked)
    _fill(gradients, material)  # a step may overwrite them
    step.follow(material.flags(0.0, 1.0))
    return [*results, *flat, *optimizer.tensors()]


def _average(operations: Operations, material: Material) -> Sequence[Tensor]:
    shapes = (2, 3000), (4, 8), (1,)
    flat = [material.normal(2, 1 + sum(map(_size, shapes))) for _ in range(material.sizes.seeds)]
    members = [GuardedAverage(_parts(own[0], shapes), _parts(own[1], shapes), 0.1) for own in flat]
    move = operations.average(AverageOfEach(members) if len(members) > 1 else members[0])
    move(material.flags(0.0, 1.0))
    move(material.flags(0.0))
    return flat


def _count(operations: Operations, material: Material) -> Sequence[Tensor]:
    skipped = torch.zeros(material.sizes.seeds, 2, dtype=torch.int64, device=material.flags(0.0).device)
    for flags in ((1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (1.0, 0.0)):
        operations.count_(skipped, material.flags(*flags))
    return [skipped]


def _fill(gradients: Sequence[Tensor], material: Material) -> None:
    for gradient in gradients:
        gradient.copy_(material.normal(*gradient.shape))


def _size(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


def _parts(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Returns the tensors that lie behind the first number of a flat one: no pack begins where they do."""
    parts = torch.split(flat[1:], [_size(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


CASES: dict[str, Callable[[Operations, Material], Sequence[Tensor]]] = {
    case.__name__[1:]: case
    for case in (
        _inputs,
        _bias_relu,
        _mask,
        _act,
        _act_back,
        _temperature,
        _values,
        _td_slope,
        _actor_slope,
        _last_layer,
        _optimizer,
        _average,
        _count,
    )
}
"""Each operation's results on some numbers."""
