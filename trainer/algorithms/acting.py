"""The policy as the environments see it: numpy in, numpy out, and how old its weights may be.

With a lag of 0 the policy acts that has learnt from all updates so far. With a lag of 1 it acts with the
weights from before the last vector step's updates, whatever the timing: on a GPU it does so on a stream of
its own, while these updates are still being computed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.algorithms.capture import CudaRecorder, why_not, without_trace
from trainer.nn.policy import Policy


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
    """

    def __init__(self, policy: Policy, num_envs: int, observation_dim: int, *, lag: int) -> None:
        if lag not in (0, 1):
            raise ValueError(f"the policy lags 0 or 1 vector steps, not {lag}")
        self._lag = lag
        self._policy = policy
        self._actor = copy.deepcopy(policy).requires_grad_(False) if lag else policy
        self._live = list(policy.state_dict().values())
        self._held = list(self._actor.state_dict().values()) if lag else []
        self._newest = [tensor.clone() for tensor in self._held]
        self._noise_shape = num_envs, policy.action_dim
        on_gpu = policy.encoder.mean.is_cuda
        self._gpu = _GpuActor(self._actor, num_envs, observation_dim, own_stream=lag > 0) if on_gpu else None

    @property
    def note(self) -> str:
        """Why acting is not captured on a GPU, once that has failed; empty otherwise."""
        return self._gpu.note if self._gpu else ""

    def act(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.integer[Any]]
    ) -> npt.NDArray[np.float32]:
        """Draws an action for each environment.

        Args:
            observation: (num_envs, observation_dim).
            task: (num_envs,).

        Returns:
            Shape (num_envs, action_dim), in (-1, 1).
        """
        self._look_up()
        noise = torch.randn(self._noise_shape)
        seen, tasks = torch.from_numpy(observation), torch.from_numpy(task)
        action = (
            self._gpu.act(seen, tasks, noise) if self._gpu else self._actor.sample(seen, tasks.long(), noise)
        )
        array: npt.NDArray[np.float32] = action.numpy()
        return array

    def learnt(self) -> None:
        """Says that the updates of a vector step have been made, or at least given to the device."""
        if not self._lag:
            return
        self._look_up()
        with self._gpu.promoting() if self._gpu else nullcontext():
            torch._foreach_copy_(self._held, self._newest)
        with self._gpu.keeping() if self._gpu else nullcontext():
            torch._foreach_copy_(self._newest, self._live)

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Returns the weights that act and those that will next; none without a lag."""
        self._settle()
        return {"held": [*self._held], "newest": [*self._newest]}

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        """Takes over what `state_dict` returned, in place; of another lag, the policy as it is now."""
        self._settle()
        self._look_up()
        if len(state["held"]) != len(self._held):
            state = {"held": self._live, "newest": self._live} if self._lag else self.state_dict()
        for tensors, values in ((self._held, state["held"]), (self._newest, state["newest"])):
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
        self._settle()

    def _look_up(self) -> None:
        """Finds the policy's tensors if they have been moved."""
        if self._live[0].data_ptr() == self._policy.encoder.mean.data_ptr():
            return
        self._live = list(self._policy.state_dict().values())
        if self._gpu and not self._lag:
            self._gpu.forget()

    def _settle(self) -> None:
        if self._gpu:
            torch.cuda.synchronize(self._live[0].device)


class _GpuActor:
    """Acts on a GPU: one copy in, one graph, one copy out.

    Args:
        actor: the policy to act with.
        num_envs: rows of every call.
        observation_dim: numbers in an observation.
        own_stream: act beside what the current stream does, not after it.
    """

    def __init__(self, actor: Policy, num_envs: int, observation_dim: int, *, own_stream: bool) -> None:
        device = actor.encoder.mean.device
        self._actor = actor
        self._device = device
        self._widths = [observation_dim, actor.action_dim, 1]
        self._staged = torch.zeros(num_envs, sum(self._widths), pin_memory=True)
        self._inputs = self._staged.to(device)
        self._output = torch.zeros(num_envs, actor.action_dim, device=device)
        self._fetched = torch.zeros(num_envs, actor.action_dim, pin_memory=True)
        self._stream = torch.cuda.Stream(device) if own_stream else None  # type: ignore[no-untyped-call]
        self._promoted = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._kept = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._recorder: CudaRecorder | None = CudaRecorder(device)
        self._recorded = False
        self.note = ""
        torch.cuda.synchronize(device)

    def act(self, observation: Tensor, task: Tensor, noise: Tensor) -> Tensor:
        """Acts on tensors of the host; returns a new one there."""
        torch.cat([observation, noise, task[:, None].float()], 1, out=self._staged)
        stream = self._stream or torch.cuda.current_stream(self._device)
        with torch.cuda.stream(stream):
            self._inputs.copy_(self._staged, non_blocking=True)
            self._run()
            self._fetched.copy_(self._output, non_blocking=True)
        stream.synchronize()
        return self._fetched.clone()

    def forget(self) -> None:
        """Drops what was recorded, for the actor's tensors have been moved."""
        if self._recorder:
            self._recorder, self._recorded = CudaRecorder(self._device), False

    @contextmanager
    def promoting(self) -> Iterator[None]:
        """What is done inside happens on the acting stream, after what was last kept."""
        assert self._stream is not None
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._kept)
            yield
            self._promoted.record(self._stream)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """What is done inside happens on the current stream, after the updates and after the promotion."""
        current = torch.cuda.current_stream(self._device)
        current.wait_event(self._promoted)
        yield
        self._kept.record(current)

    def _run(self) -> None:
        if self._recorder and not self._recorded:
            try:
                without_trace(self._recorder, [], self._step)
                self._recorder.record(self._step)
                self._recorded = True
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._recorder = None
                self.note = f"acting is not captured, which makes it slower: {why_not(error)}"
        if self._recorder:
            self._recorder.replay()
        else:
            self._step()

    def _step(self) -> None:
        observation, noise, task = torch.split(self._inputs, self._widths, 1)
        self._output.copy_(self._actor.sample(observation, task[:, 0].long(), noise))
