"""The arrays that the learner and its environment workers share, laid over one block of memory."""

from __future__ import annotations

import ctypes
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
import numpy.typing as npt

_ALIGNMENT = 64
"""Bytes; every array starts on a cache line of its own."""

Shape = tuple[int, int, int]
"""Number of environments, size of an observation, size of an action."""


class Block:
    """The shared arrays.

    Attributes:
        command: int8 (num_envs,), see `trainer.envs.schedule.Command`.
        task: int32 (num_envs,), the task a reset starts.
        goal: int32 (num_envs,), its goal.
        action: float32 (num_envs, action_dim).
        observation: float32 (num_envs, observation_dim), the observation to act on next.
        next_observation: float32 (num_envs, observation_dim), the result of the last action.
        reward: float32 (num_envs,).
        success: bool (num_envs,).
        terminated: bool (num_envs,), whether the last step ended the episode for good.
        truncated: bool (num_envs,), whether the environment's time limit ended it.
    """

    command: npt.NDArray[np.int8]
    task: npt.NDArray[np.int32]
    goal: npt.NDArray[np.int32]
    action: npt.NDArray[np.float32]
    observation: npt.NDArray[np.float32]
    next_observation: npt.NDArray[np.float32]
    reward: npt.NDArray[np.float32]
    success: npt.NDArray[np.bool_]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    def __init__(self, memory: Any, shape: Shape) -> None:
        offset = 0
        for name, dtype, size in _layout(shape):
            array = np.frombuffer(memory, dtype, count=int(np.prod(size)), offset=offset).reshape(size)
            setattr(self, name, array)
            offset += _padded(array.nbytes)


def allocate(shape: Shape, context: SpawnContext | None) -> Any:
    """Returns zeroed memory for a `Block`: shared (with no name that could outlive us), or private."""
    size = sum(
        _padded(int(np.prod(dimensions)) * np.dtype(dtype).itemsize)
        for _, dtype, dimensions in _layout(shape)
    )
    return context.RawArray(ctypes.c_byte, size) if context else bytearray(size)


def _layout(shape: Shape) -> list[tuple[str, Any, tuple[int, ...]]]:
    envs, observation, action = shape
    return [
        ("command", np.int8, (envs,)),
        ("task", np.int32, (envs,)),
        ("goal", np.int32, (envs,)),
        ("action", np.float32, (envs, action)),
        ("observation", np.float32, (envs, observation)),
        ("next_observation", np.float32, (envs, observation)),
        ("reward", np.float32, (envs,)),
        ("success", np.bool_, (envs,)),
        ("terminated", np.bool_, (envs,)),
        ("truncated", np.bool_, (envs,)),
    ]


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
