"""Optimisers and Polyak averaging that a flag on the device can hold back, with state that never moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, TypeVar

import torch
from torch import Tensor

from trainer.algorithms.pieces import cut, piece
from trainer.nn.stacking import place

Part = TypeVar("Part")
_BETA1, _BETA2 = 0.9, 0.999
"""Adam's decay of the two moments, as in the paper and in PyTorch."""


def not_finite(*scalars: Tensor) -> Tensor:
    """Returns 1.0 if one of the scalars is infinite or not a number and 0.0 otherwise, on their device."""
    total = reduce(torch.add, scalars)
    return (total - total).ne(0.0).float()  # isfinite is four operations


class GuardedAdam:
    """Fused Adam that clips gradients; a flag on the device can block a step.

    It makes the calls that `torch.optim.Adam` does, to the bit, without the compiler that PyTorch's
    optimisers import: 70 MB, and seconds at the start.

    Args:
        parameters: what to optimise.
        learning_rate: Adam's; a scalar on the device may change between steps.
        eps: Adam's.
        max_norm: bound on the norm of all gradients together; 0 for none.
        weight_decay: AdamW's: each step takes this times the learning rate off every parameter.
        beta1: decay of the first moment.

    Attributes:
        parameters: as given.
        learning_rate: as given.
        max_norm: as given.
        constants: the other ones, as PyTorch's fused Adam takes them.
        state: of each parameter: `step`, `exp_avg` and `exp_avg_sq`, which stay where they are.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rate: float | Tensor,
        eps: float,
        max_norm: float = 0.0,
        weight_decay: float = 0.0,
        beta1: float = _BETA1,
    ) -> None:
        self.parameters = parameters
        self.max_norm = max_norm
        self.learning_rate = learning_rate
        self._compute = torch._fused_adamw_ if weight_decay else torch._fused_adam_
        self.constants: dict[str, Any] = {
            "beta1": beta1,
            "beta2": _BETA2,
            "weight_decay": weight_decay,
            "eps": eps,
            "amsgrad": False,
            "maximize": False,
        }
        self.state = [
            {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            for parameter in parameters
        ]
        self._counters = [state["step"] for state in self.state]
        self._means = [state["exp_avg"] for state in self.state]
        self._squares = [state["exp_avg_sq"] for state in self.state]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], norm: Tensor, blocked: Tensor) -> None:
        """Takes a step, or leaves parameters and state as they are.

        Args:
            gradients: one per parameter; may be overwritten.
            norm: of all gradients together.
            blocked: 1.0 to leave everything, 0.0 to step.
        """
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient  # stays until the next one comes, as forecasts of memory count it
        torch._foreach_add_(self._counters, 1.0)
        self._move(gradients, self._scale(norm), blocked)
        torch._foreach_sub_(self._counters, [blocked] * len(self._counters))

    def _scale(self, norm: Tensor) -> Tensor | None:
        # a float32 also for parameters in float64
        return (norm / self.max_norm).clamp_min(1.0).float() if self.max_norm > 0 else None

    def _move(self, gradients: Sequence[Tensor], scale: Tensor | None, blocked: Tensor) -> None:
        """The arithmetic of a step whose counters have moved on already.

        Scale and flag are for loss scaling, and fused Adam reads them on the device: it divides by the one,
        and does nothing if the other is 1. All pieces of a parameter read its one counter.
        """
        size = piece(self.parameters)
        counted = zip(self.parameters, self._counters, strict=True)
        self._compute(
            cut(self.parameters, size),
            cut(gradients, size),
            cut(self._means, size),
            cut(self._squares, size),
            [],
            [counter for parameter, counter in counted for _ in cut([parameter], size)],
            lr=self.learning_rate,
            grad_scale=scale,
            found_inf=blocked,
            **self.constants,
        )

    def tensors(self) -> list[Tensor]:
        """Returns the state's tensors."""
        return [tensor for state in self.state for tensor in state.values()]

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, laid out as that of `torch.optim.Adam`."""
        return {"state": {index: dict(state) for index, state in enumerate(self.state)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned, in place."""
        for index, own in enumerate(self.state):
            for name, tensor in own.items():
                tensor.copy_(state["state"][index][name])


class AdamOfEach(GuardedAdam):
    """The Adams of several learners, of one configuration, whose step is taken at once, to the bit.

    Fused Adam has one flag, one scale and one learning rate for all that it is given, so that each learner
    needs a call of its own. All around these calls is done once.

    Args:
        optimizers: the Adams, whose parameters and states they stay.

    Attributes:
        members: the Adams.
    """

    def __init__(self, optimizers: Sequence[GuardedAdam]) -> None:
        self.members = optimizers
        self.max_norm = optimizers[0].max_norm
        self._counters = [counter for optimizer in optimizers for counter in optimizer._counters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], norm: Tensor, blocked: Tensor) -> None:
        """Takes the step of each, or leaves its parameters and state as they are.

        Args:
            gradients: one per parameter, the learners' one after the other along the first axis, or on an
                axis before it; may be overwritten.
            norm: of all gradients of a learner together, (learners,).
            blocked: 1.0 to leave everything of a learner, 0.0 to step, (learners,).
        """
        scale = self._scale(norm)
        scales = [None] * len(self.members) if scale is None else scale.unbind()
        flags = blocked.unbind()
        shapes = [(len(self.members), *parameter.shape) for parameter in self.members[0].parameters]
        stacks = zip(gradients, shapes, strict=True)
        own = zip(*(gradient.view(shape).unbind() for gradient, shape in stacks), strict=True)
        torch._foreach_add_(self._counters, 1.0)
        for optimizer, parts, divisor, flag in zip(self.members, own, scales, flags, strict=True):
            optimizer._move(parts, divisor, flag)
        held = zip(self.members, flags, strict=True)
        torch._foreach_sub_(self._counters, [flag for optimizer, flag in held for _ in optimizer._counters])

    def tensors(self) -> list[Tensor]:
        """Returns the tensors of all states."""
        return [tensor for optimizer in self.members for tensor in optimizer.tensors()]


class GuardedRMSprop:
    """RMSprop as in PyTorch, with epsilon outside the root; it clips gradients, and a flag can block a step.

    Args:
        parameters: what to optimise.
        learning_rate: a scalar on the device; may change between steps.
        alpha: decay of the mean square.
        eps: added to its root.
        max_norm: bound on the norm of all gradients together; 0 for none.
    """

    def __init__(
        self, parameters: Sequence[Tensor], learning_rate: Tensor, alpha: float, eps: float, max_norm: float
    ) -> None:
        self._parameters = parameters
        self._learning_rate = learning_rate
        self._alpha = alpha
        self._eps = eps
        self._max_norm = max_norm
        self._squares = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], norm: Tensor, blocked: Tensor) -> None:
        """Takes a step, or leaves parameters and state as they are; arguments as those of Adam's."""
        free, rate = (blocked == 0.0).unsqueeze(-1), self._learning_rate.unsqueeze(-1)
        if self._max_norm > 0:
            scale = (norm / self._max_norm).clamp_min(1.0).reciprocal().unsqueeze(-1)
            gradients = [gradient * scale for gradient in gradients]
        for parameter, gradient, square in zip(self._parameters, gradients, self._squares, strict=True):
            # not multiplied by the flag: what is not finite would stay so
            kept = torch.where(free, gradient, 0.0)
            decayed = (square * self._alpha).addcmul_(kept, kept, value=1.0 - self._alpha)
            square.copy_(torch.where(free, decayed, square))
            parameter.sub_(rate * kept / square.sqrt().add_(self._eps))

    def tensors(self) -> list[Tensor]:
        """Returns the state's tensors."""
        return self._squares

    def state_dict(self) -> dict[str, Any]:
        """Returns the state."""
        return {"squares": [square.clone() for square in self._squares]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned, in place."""
        for square, value in zip(self._squares, state["squares"], strict=True):
            square.copy_(value)


class GuardedAverage:
    """Polyak averaging, target += tau (source - target), as the gradient descent it is.

    The gradient of |target - source|^2 / 2 is target - source: weight decay 1 and a gradient of -source.
    Fused SGD computes it in one pass, and it can be held back as Adam can; a plain interpolation cannot.

    Args:
        targets: what to move.
        sources: where to, one per target.
        tau: share of the way.

    Attributes:
        targets: as given.
        sources: as given.
        tau: as given.
    """

    def __init__(self, targets: Iterable[Tensor], sources: Iterable[Tensor], tau: float) -> None:
        self.targets, self.sources = list(targets), list(sources)
        self.tau = tau
        self.aim()

    def aim(self) -> None:
        """Finds the sources where they are now; to be called after they have been moved."""
        self._aims = [source.detach() for source in self.sources]  # the same storage: the newest values

    @torch.no_grad()
    def step(self, blocked: Tensor) -> None:
        """Moves the targets, or leaves them if `blocked` is 1.0."""
        size = piece(self.targets)
        torch._fused_sgd_(
            cut(self.targets, size),
            cut(self._aims, size),
            [],
            weight_decay=1.0,
            momentum=0.0,
            lr=self.tau,
            dampening=0.0,
            nesterov=False,
            maximize=True,
            is_first_step=False,
            found_inf=blocked,
        )


class AverageOfEach(GuardedAverage):
    """The averages of several learners, whose step is taken at once.

    Args:
        averages: of the learners.

    Attributes:
        members: the averages.
    """

    def __init__(self, averages: Sequence[GuardedAverage]) -> None:
        self.members = averages

    def step(self, blocked: Tensor) -> None:
        """Moves the targets of each, or leaves them where `blocked` (learners,) is 1.0."""
        for average, own in zip(self.members, blocked.unbind(), strict=True):
            average.step(own)


def accumulate(
    loss_of: Callable[[Part], Tensor], parts: Sequence[Part], terms: int, parameters: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Returns the mean of the losses ([seeds]) of a batch's parts over all terms, and its gradients.

    The graph of one is gone before the next is made. At most two sets of gradients are held at once: the
    sums, and those of the last loss.

    Args:
        loss_of: maps a part to the sum of its losses.
        parts: of the batch.
        terms: losses of the whole batch.
        parameters: by which the gradients are.
    """
    total: Tensor | None = None
    sums: list[Tensor] = []
    for part in parts:
        loss = loss_of(part) / terms
        # one number needs no weight, and PyTorch imports SymPy, 30 MB, to look at one that it is given
        weight = torch.ones_like(loss) if loss.dim() else None
        gradients = list(torch.autograd.grad(loss, parameters, weight))
        if total is None:
            total, sums = loss.detach(), gradients
        else:
            total = total + loss.detach()
            torch._foreach_add_(sums, gradients)
        del gradients
    assert total is not None
    return total, sums


def norms(gradient: Tensor) -> Tensor:
    """Returns the Euclidean norm of a gradient (size,), a scalar, or of each in (learners, size)."""
    if gradient.dim() == 2 and not gradient.is_cuda:  # a long one is added up in parts, unlike many at once
        return torch.stack([torch.linalg.vector_norm(own) for own in gradient.unbind()])
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1)
    return norm


def flatten(parameters: Sequence[Tensor]) -> Tensor:
    """Moves parameters into one new tensor, whose parts they are from then on, and returns it.

    An optimiser then needs as many operations as for a single parameter.
    """
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    place(parameters, flat)
    return flat
