"""Optimisers and Polyak averaging that a flag on the device can hold back, with state that never moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from trainer.nn.stacking import place


def not_finite(*scalars: Tensor) -> Tensor:
    """Returns 1.0 if one of the scalars is infinite or not a number and 0.0 otherwise, on their device."""
    total = reduce(torch.add, scalars)
    return (total - total).ne(0.0).float()  # isfinite is four operations


class GuardedAdam:
    """Fused Adam that clips, and steps only if it may.

    Args:
        parameters: what to optimise.
        learning_rate: Adam's; a scalar on the device may change between steps.
        eps: Adam's.
        max_norm: bound on the norm of all gradients together; 0 for none.
        weight_decay: AdamW's: each step takes this times the learning rate off every parameter.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rate: float | Tensor,
        eps: float,
        max_norm: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        self._parameters = parameters
        self._max_norm = max_norm
        on_gpu = parameters[0].is_cuda
        adam = torch.optim.AdamW if weight_decay else torch.optim.Adam
        self._adam = adam(
            parameters, learning_rate, eps=eps, weight_decay=weight_decay, fused=True, capturable=on_gpu
        )
        for parameter in parameters:  # made now, so that a captured update finds it where it will stay
            self._adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def step(self, gradients: Sequence[Tensor], norm: Tensor, blocked: Tensor) -> None:
        """Takes a step, or leaves parameters and state as they are.

        Args:
            gradients: one per parameter; may be overwritten.
            norm: of all gradients together, a scalar.
            blocked: 1.0 to leave everything, 0.0 to step.
        """
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        # both are for loss scaling, and fused Adam reads them on the device: it divides by the one, and does
        # nothing if the other is 1
        if self._max_norm > 0:
            self._adam.grad_scale = (norm / self._max_norm).clamp_min(1.0)  # type: ignore[attr-defined]
        self._adam.found_inf = blocked  # type: ignore[attr-defined]
        self._adam.step()

    @staticmethod
    @torch.no_grad()
    def step_each(
        optimizers: Sequence[GuardedAdam],
        gradients: Sequence[Sequence[Tensor]],
        norms: Sequence[Tensor],
        blocked: Sequence[Tensor],
    ) -> None:
        """Lets each of several take its step, to the bit, in fewer operations; arguments as those of `step`.

        These are what PyTorch's own step consists of. Only the one with the arithmetic is done for each by
        itself, for it has a single flag that holds it back.
        """
        states = [[one._adam.state[parameter] for parameter in one._parameters] for one in optimizers]
        counts = [state["step"] for own in states for state in own]
        torch._foreach_add_(counts, 1)
        for one, own, state, norm, held in zip(optimizers, gradients, states, norms, blocked, strict=True):
            how = one._adam.param_groups[0]
            compute = torch._fused_adamw_ if how["weight_decay"] else torch._fused_adam_
            compute(
                list(one._parameters),
                list(own),
                [each["exp_avg"] for each in state],
                [each["exp_avg_sq"] for each in state],
                [],
                [each["step"] for each in state],
                lr=how["lr"],
                beta1=how["betas"][0],
                beta2=how["betas"][1],
                weight_decay=how["weight_decay"],
                eps=how["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=(norm / one._max_norm).clamp_min(1.0) if one._max_norm > 0 else None,
                found_inf=held,
            )
        torch._foreach_sub_(counts, [held for own, held in zip(states, blocked, strict=True) for _ in own])

    def tensors(self) -> list[Tensor]:
        """Returns the state's tensors."""
        return [tensor for state in self._adam.state.values() for tensor in state.values()]

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, as `torch.optim.Adam` does."""
        return self._adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned, in place: Adam's own way makes new tensors."""
        for index, parameter in enumerate(self._parameters):
            for name, tensor in self._adam.state[parameter].items():
                tensor.copy_(state["state"][index][name])


class GuardedRMSprop:
    """RMSprop as PyTorch has it, epsilon beside the root, that clips, and steps only if it may.

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
    """

    def __init__(self, targets: Iterable[Tensor], sources: Iterable[Tensor], tau: float) -> None:
        self._targets, self._sources = list(targets), list(sources)
        self._sgd = torch.optim.SGD(self._targets, tau, weight_decay=1.0, maximize=True, fused=True)
        self.aim()

    def aim(self) -> None:
        """Finds the sources where they are now; to be called after they have been moved."""
        for target, source in zip(self._targets, self._sources, strict=True):
            target.grad = source.detach()  # the same storage: always the newest values

    def step(self, blocked: Tensor) -> None:
        """Moves the targets, or leaves them if `blocked` is 1.0."""
        self._sgd.found_inf = blocked  # type: ignore[attr-defined]
        self._sgd.step()


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Returns the Euclidean norm of all gradients together, a scalar."""
    return nn.utils.get_total_norm(gradients, foreach=True)


def norms(gradient: Tensor) -> Tensor:
    """Returns the Euclidean norm of a gradient (size,), a scalar, or of each in (learners, size)."""
    if gradient.dim() == 2 and not gradient.is_cuda:  # a long one is added up in parts, unlike many at once
        return torch.stack([torch.linalg.vector_norm(own) for own in gradient.unbind()])
    found: Tensor = torch.linalg.vector_norm(gradient, dim=-1)
    return found


def flatten(parameters: Sequence[Tensor]) -> Tensor:
    """Moves parameters into one new tensor, whose parts they are from then on, and returns it.

    An optimiser then needs as many operations as for a single parameter.
    """
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    place(parameters, flat)
    return flat
