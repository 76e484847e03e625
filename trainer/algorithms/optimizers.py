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

    def tensors(self) -> list[Tensor]:
        """Returns the state's tensors."""
        return [tensor for state in self._adam.state.values() for tensor in state.values()]

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, as `torch.optim.Adam` does."""
        state: dict[str, Any] = self._adam.state_dict()
        for group in state["param_groups"]:
            if isinstance(group["lr"], Tensor):  # which may lie beside those of other learners
                group["lr"] = group["lr"].clone()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned, in place: Adam's own way makes new tensors."""
        for index, parameter in enumerate(self._parameters):
            for name, tensor in self._adam.state[parameter].items():
                tensor.copy_(state["state"][index][name])


class AdamOfEach(GuardedAdam):
    """The Adams of several learners, of one configuration, whose step is taken at once, to the bit.

    Fused Adam has one flag, one scale and one learning rate for all that it is given, so that each learner
    needs a call of its own. All around these calls is done once: it is what PyTorch's own step consists of.

    Args:
        each: the Adams, whose parameters and states they stay.
    """

    def __init__(self, each: Sequence[GuardedAdam]) -> None:
        self._each = each
        self._max_norm = each[0]._max_norm
        groups = [optimizer._adam.param_groups[0] for optimizer in each]
        self._rates = [group["lr"] for group in groups]
        (beta1, beta2), eps, decay = (groups[0][name] for name in ("betas", "eps", "weight_decay"))
        self._how = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": decay}
        self._compute = torch._fused_adamw_ if decay else torch._fused_adam_
        states = [[one._adam.state[parameter] for parameter in one._parameters] for one in each]
        # of each learner: first moments, second moments, counters
        names = ("exp_avg", "exp_avg_sq", "step")
        self._states = [tuple([state[name] for state in own] for name in names) for own in states]
        self._counters = [counter for *_, counters in self._states for counter in counters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], norm: Tensor, blocked: Tensor) -> None:
        """Takes the step of each, or leaves its parameters and state as they are.

        Args:
            gradients: one per parameter, with an axis of learners before all others; may be overwritten.
            norm: of all gradients of a learner together, (learners,).
            blocked: 1.0 to leave everything of a learner, 0.0 to step, (learners,).
        """
        scales: Sequence[Tensor | None] = [None] * len(self._each)
        if self._max_norm > 0:
            scales = (norm / self._max_norm).clamp_min(1.0).unbind()
        flags = blocked.unbind()
        own = zip(*(gradient.unbind() for gradient in gradients), strict=True)
        torch._foreach_add_(self._counters, 1.0)
        for one, parts, (first, second, counters), rate, scale, flag in zip(
            self._each, own, self._states, self._rates, scales, flags, strict=True
        ):
            self._compute(
                list(one._parameters),
                list(parts),
                first,
                second,
                [],
                counters,
                lr=rate,
                amsgrad=False,
                maximize=False,
                grad_scale=scale,
                found_inf=flag,
                **self._how,
            )
        held = zip(self._each, flags, strict=True)
        torch._foreach_sub_(self._counters, [flag for one, flag in held for _ in one._parameters])

    def tensors(self) -> list[Tensor]:
        """Returns the tensors of all states."""
        return [tensor for optimizer in self._each for tensor in optimizer.tensors()]


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
