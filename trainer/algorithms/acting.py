"""The policy as the environments see it: numpy in, numpy out, and how old its weights may be.

With a lag of 0 the policy acts that has learnt from all updates so far. With a lag of 1 it acts with the
weights from before the last vector step's updates, whatever the timing, while these updates are still being
computed. Beside a GPU a small policy acts on the host, with a copy of the weights that comes as one piece and
in a form that suits a few rows; a large one acts on the GPU.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.algorithms.capture import HIGH_PRIORITY, CudaRecorder, why_not, without_trace
from trainer.machine.device import raise_memory_fault
from trainer.nn.lean import Numbers
from trainer.nn.policy import ExploringActor
from trainer.nn.stacking import place
from trainer.recipe.share import acts_on_host

Tasks = npt.NDArray[np.integer[Any]]


class Acting:
    """Draws actions for the environments.

    The noise comes from the host's default generator on any device: a GPU's keeps its position in one place
    for all graphs, and two streams would take it from each other.

    Args:
        policy: the policy that learns. Its tensors may be moved, all at once, between two calls: learners do
            that when they meet others.
        num_envs: rows of every call.
        observation_dim: numbers in an observation.
        lag: 0 or 1.
        on_host: whether the policy of a learner on a GPU acts on the host; by default by its size.

    Attributes:
        lag: as given.
    """

    def __init__(
        self,
        policy: ExploringActor,
        num_envs: int,
        observation_dim: int,
        *,
        lag: int,
        on_host: bool | None = None,
    ) -> None:
        if lag not in (0, 1):
            raise ValueError(f"the policy lags 0 or 1 vector steps, not {lag}")
        if on_host is None:
            on_host = acts_on_host(
                sum(parameter.numel() for parameter in policy.actor.parameters()), num_envs
            )
        device = policy.encoder.mean.device
        copied = device.type == "cuda" and on_host
        self.lag = lag
        self._policy = policy
        self._num_envs = num_envs
        self._apart = copied or lag > 0
        self._refreshes = copied and not lag  # the weights may have changed since the last call
        actor = copy.deepcopy(policy).requires_grad_(False) if self._apart else policy
        self._placement: _OnCpu
        if copied:
            self._placement = _OnHost(actor.cpu(), num_envs, device)
        elif device.type == "cuda":
            self._placement = _OnGpu(actor, num_envs, observation_dim, own_stream=lag > 0)
        else:
            self._placement = _OnCpu(actor, apart=self._apart)
        self._live = list(policy.state_dict().values())
        self._mean = policy.encoder.mean.detach()  # where it lies now

    @property
    def note(self) -> str:
        """Why acting is not captured on a GPU, once that has failed; empty otherwise."""
        return self._placement.note

    def act(self, observation: npt.NDArray[np.float32], task: Tasks) -> Numbers:
        """Draws an action for each environment.

        Args:
            observation: (num_envs, observation_dim).
            task: (num_envs,).

        Returns:
            Shape (num_envs, action_dim), as the policy's `sample` gives them; in new memory.
        """
        self._find_tensors()
        if self._refreshes:
            self._placement.keep(self._live)
            self._placement.promote()
        return self._placement.act(observation, task, self._policy.draw_noise(self._num_envs))

    def learnt(self) -> None:
        """Says that the updates of a vector step have been made, or at least given to the device."""
        if not self.lag:
            return
        self._find_tensors()
        self._placement.promote()
        self._placement.keep(self._live)

    def release(self) -> None:
        """Drops what was captured on a GPU, without waiting for it."""
        self._placement.release()

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Returns the weights that act and those that will next, in the order of the policy's own state.

        Without a lag there are none.
        """
        if not self.lag:
            return {"held": [], "newest": []}
        placement = self._placement
        placement.settle()
        return {
            "held": [tensor.clone() for tensor in placement.held],
            "newest": [tensor.clone() for tensor in placement.newest],
        }

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        """Takes over what `state_dict` returned, in place; of another lag, the policy as it is now."""
        if not self.lag:
            return
        self._find_tensors()
        stored = bool(state["held"])
        held, newest = (state["held"], state["newest"]) if stored else (self._live, self._live)
        self._placement.load(held, newest)

    def _find_tensors(self) -> None:
        """Looks whether the policy's tensors have been moved, and finds them where they are."""
        if self._mean.data_ptr() == self._policy.encoder.mean.data_ptr():
            return
        self._mean = self._policy.encoder.mean.detach()
        self._live = list(self._policy.state_dict().values())
        if not self._apart:
            self._placement.release()


class _OnCpu:
    """Acts where it learns, on the processor, where everything happens at once.

    Args:
        actor: the policy to act with.
        apart: whether it has weights of its own, not those that learn.

    Attributes:
        note: why acting is slower than it could be; empty where there is nothing to say.
        held: the actor's tensors, if it has its own.
        newest: those that it is to have next.
    """

    note = ""

    def __init__(self, actor: ExploringActor, *, apart: bool) -> None:
        self._actor = actor
        self.held = list(actor.state_dict().values()) if apart else []
        self.newest = [tensor.clone() for tensor in self.held]

    def act(self, observation: Numbers, task: Tasks, noise: Tensor) -> Numbers:
        """Acts on what lies on the host; returns an array of its own."""
        action = self._actor.sample(torch.from_numpy(observation), torch.from_numpy(task).long(), noise)
        array: Numbers = action.numpy()
        return array

    def promote(self) -> None:
        """Gives the actor the newest weights, once they are there, and before it acts again."""
        torch._foreach_copy_(self.held, self.newest)

    def keep(self, live: list[Tensor]) -> None:
        """Has the newest weights become those that learn, after the updates and after the promotion."""
        torch._foreach_copy_(self.newest, live)

    def load(self, held: list[Tensor], newest: list[Tensor]) -> None:
        """Takes over weights, the actor's and the newest."""
        self.settle()
        for own, values in ((self.held, held), (self.newest, newest)):
            for tensor, value in zip(own, values, strict=True):
                tensor.copy_(value)
        self.settle()

    def settle(self) -> None:
        """Waits until all copies have been made."""

    def release(self) -> None:
        """Drops what was recorded, without waiting for it."""


class _OnHost(_OnCpu):
    """Acts on the host with weights copied from the GPU, faster for a small policy than the GPU.

    The weights come side by side, for each copy from a GPU takes as long as a small kernel. They are put side
    by side there for each copy, not for good: learners move their tensors when they meet others.

    Args:
        actor: the policy to act with, on the host.
        rows: of every call.
        device: where it learns.
    """

    def __init__(self, actor: ExploringActor, rows: int, device: torch.device) -> None:
        tensors = [*actor.state_dict(keep_vars=True).values()]
        self._held = torch.cat([tensor.detach().flatten() for tensor in tensors])
        place(tensors, self._held)
        super().__init__(actor, apart=True)
        self._newest = self._held.pin_memory()
        place(self.newest, self._newest)
        self._lean = actor.lean(rows)
        self._device = device
        self._kept = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def act(self, observation: Numbers, task: Tasks, noise: Tensor) -> Numbers:
        if self._lean is None:
            return super().act(observation, task, noise)
        return self._lean(observation, task, noise.numpy())

    def promote(self) -> None:
        self._kept.synchronize()
        self._held.copy_(self._newest)
        self._refresh()

    def keep(self, live: list[Tensor]) -> None:
        self._newest.copy_(torch.cat([tensor.flatten() for tensor in live]), non_blocking=True)
        self._kept.record(torch.cuda.current_stream(self._device))

    def load(self, held: list[Tensor], newest: list[Tensor]) -> None:
        super().load(held, newest)
        self._refresh()

    def settle(self) -> None:
        torch.cuda.synchronize(self._device)

    def _refresh(self) -> None:
        if self._lean is not None:
            self._lean.refresh()


class _OnGpu(_OnCpu):
    """Acts on a GPU: one copy in, one graph, one copy out.

    Args:
        actor: the policy to act with.
        num_envs: rows of every call.
        observation_dim: numbers in an observation.
        own_stream: act beside what the current stream does, and before it, not after it.
    """

    def __init__(
        self, actor: ExploringActor, num_envs: int, observation_dim: int, *, own_stream: bool
    ) -> None:
        super().__init__(actor, apart=own_stream)
        device = actor.encoder.mean.device
        self._device = device
        self._widths = [observation_dim, actor.noise_dim, 1]
        self._staged = torch.zeros(num_envs, sum(self._widths), pin_memory=True)
        self._inputs = self._staged.to(device)
        self._output = torch.zeros(num_envs, actor.action_dim, device=device)
        self._fetched = torch.zeros(num_envs, actor.action_dim, pin_memory=True)
        self._priority = HIGH_PRIORITY if own_stream else 0
        self._recorder = CudaRecorder(device, priority=self._priority)
        self._stream = self._recorder.stream if own_stream else None
        self._promoted = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._kept = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._recorded = False
        torch.cuda.synchronize(device)

    def act(self, observation: Numbers, task: Tasks, noise: Tensor) -> Numbers:
        number = torch.from_numpy(task)[:, None].float()
        torch.cat([torch.from_numpy(observation), noise, number], 1, out=self._staged)
        stream = self._stream or torch.cuda.current_stream(self._device)
        with torch.cuda.stream(stream):
            self._inputs.copy_(self._staged, non_blocking=True)
            self._run()
            self._fetched.copy_(self._output, non_blocking=True)
        stream.synchronize()
        array: Numbers = self._fetched.clone().numpy()
        return array

    def promote(self) -> None:
        assert self._stream is not None
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._kept)
            super().promote()
            self._promoted.record(self._stream)

    def keep(self, live: list[Tensor]) -> None:
        current = torch.cuda.current_stream(self._device)
        current.wait_event(self._promoted)
        super().keep(live)
        self._kept.record(current)

    def settle(self) -> None:
        torch.cuda.synchronize(self._device)

    def release(self) -> None:
        self._recorder.release()
        self._recorded = False

    def _run(self) -> None:
        if not self._recorded and not self.note:
            without_trace(self._recorder, [], self._step)
            try:
                self._recorder.record(self._step)
                self._recorded = True
            except RuntimeError as error:
                raise_memory_fault(error)
                self.note = f"acting is not captured, which makes it slower: {why_not(error)}"
        if self._recorded:
            self._recorder.replay()
        else:
            self._step()

    def _step(self) -> None:
        observation, noise, task = torch.split(self._inputs, self._widths, 1)
        self._output.copy_(self._actor.sample(observation, task[:, 0].long(), noise))
