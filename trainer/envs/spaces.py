"""Gymnasium's spaces as rows of float32 numbers, and back.

An observation becomes a flat row of numbers, with discrete parts one-hot. An action is a row of the shared
block: the numbers of a box, or the choices 0..n-1 of a discrete space.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from trainer.errors import UsageError

Scaling = Literal["scaled", "clipped"]
"""How a box's action is written in a row: in [-1, 1], scaled to the bounds; or raw, clipped to them."""
_WIDEST = 1e10
"""Bounds farther apart stand for none: the largest float, 1e30 or 2**63."""


@dataclass(frozen=True)
class ActionSpace:
    """An action space, independent of Gymnasium.

    Attributes:
        kind: `box` for numbers, `discrete` for choices.
        low: of a box, the lower bound of each number; may be infinite.
        high: of a box, the upper bound of each number; may be infinite.
        nvec: of a discrete space, the number of options of each choice.
        start: of a discrete space, what the environment calls the first of each; rows count from 0.
    """

    kind: Literal["box", "discrete"]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    nvec: tuple[int, ...] = ()
    start: tuple[int, ...] = ()

    @property
    def dim(self) -> int:
        """Numbers in an action."""
        return len(self.low if self.kind == "box" else self.nvec)

    @property
    def bounded(self) -> bool:
        """Whether each number of a box has two bounds that an action can be scaled to."""
        return all(high - low <= _WIDEST for low, high in zip(self.low, self.high, strict=True))


def unit_box(dim: int) -> ActionSpace:
    """Returns a box of numbers in [-1, 1]."""
    return ActionSpace("box", (-1.0,) * dim, (1.0,) * dim)


def action_space(space: spaces.Space[Any], name: str) -> ActionSpace:
    """Describes an action space.

    Args:
        space: Gymnasium's.
        name: of the environment, for the message.

    Raises:
        UsageError: the space is of a kind that no algorithm here can act in, or has no actions.
    """
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (bound.astype(np.float64).reshape(-1).tolist() for bound in (space.low, space.high))
        for least, most in zip(low, high, strict=True):
            if not least <= most:  # NaN is neither
                raise UsageError(f"{name}: an action is from {least:g} to {most:g}, where no number is")
        return ActionSpace("box", low=tuple(low), high=tuple(high))
    if isinstance(space, spaces.Discrete):
        return ActionSpace("discrete", nvec=(int(space.n),), start=(int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = (array.reshape(-1).tolist() for array in (space.nvec, space.start))
        return ActionSpace("discrete", nvec=tuple(nvec), start=tuple(start))
    if isinstance(space, spaces.MultiBinary):
        count = math.prod(space.shape)
        return ActionSpace("discrete", nvec=(2,) * count, start=(0,) * count)
    raise UsageError(
        f"{name}: an action is a {space}, which this trainer does not support",
        hint="it supports Box (of floats), Discrete, MultiDiscrete and MultiBinary; wrap the environment",
    )


def translator(
    space: spaces.Space[Any], described: ActionSpace, scaling: Scaling, name: str
) -> Callable[[npt.NDArray[np.float32]], Any]:
    """Returns the function from a row of the block to an action of the environment.

    Raises:
        UsageError: a box without bounds is to be scaled.
    """
    shape, dtype = space.shape, space.dtype
    assert shape is not None
    if described.kind == "discrete":
        start = np.array(described.start)
        if isinstance(space, spaces.Discrete):
            first, kind = described.start[0], space.dtype.type
            return lambda row: kind(int(row[0]) + first)
        return lambda row: (row.astype(np.int64) + start).astype(dtype).reshape(shape)
    assert isinstance(space, spaces.Box)
    exact = np.promote_types(space.dtype, np.float32)  # in float16 the width may be infinite
    low, high = space.low.reshape(-1).astype(exact), space.high.reshape(-1).astype(exact)

    def within(row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # numpy's clip takes three times as long for a few numbers
        bounded: npt.NDArray[Any] = np.minimum(np.maximum(row, low), high).astype(dtype, copy=False)
        return bounded.reshape(shape)

    if scaling == "clipped":
        return within
    if not described.bounded:
        least, most = max(zip(described.low, described.high, strict=True), key=lambda pair: pair[1] - pair[0])
        raise UsageError(
            f"{name}: its actions have no bounds ({least:g} to {most:g}), but the algorithm needs bounds to "
            "scale them",
            hint="wrap it in gymnasium.wrappers.ClipAction or RescaleAction with finite bounds, or use PPO",
        )
    half = (high - low) / 2
    return lambda row: within(low + (row + 1) * half)


def observation_reader(space: spaces.Space[Any], name: str) -> tuple[int, Callable[[Any], npt.NDArray[Any]]]:
    """Returns the size of an observation and the function that flattens one.

    A box is flattened, a discrete space becomes one-hot, a dictionary or a tuple one after the other.

    Raises:
        UsageError: the space has no fixed number of numbers.
    """
    if isinstance(space, spaces.Box):
        return math.prod(space.shape), _checked(np.asarray, math.prod(space.shape))
    kinds = spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Dict, spaces.Tuple
    if not isinstance(space, kinds) or not space.is_np_flattenable:
        raise UsageError(
            f"{name}: an observation is a {space}, which has no fixed size",
            hint="this trainer supports Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of "
            "these",
        )

    width = spaces.flatdim(space)
    return width, _checked(lambda observation: np.asarray(spaces.flatten(space, observation)), width)


def _checked(read: Callable[[Any], npt.NDArray[Any]], width: int) -> Callable[[Any], npt.NDArray[Any]]:
    """Returns what reads an observation flat, and refuses what NumPy would make numbers of or spread."""

    def flat(observation: Any) -> npt.NDArray[Any]:
        numbers = read(observation).reshape(-1)
        if numbers.dtype.kind not in "biuf":
            raise TypeError(f"an observation is {observation!r}")
        if numbers.size != width:
            raise ValueError(f"an observation has {numbers.size} numbers, its space {width}")
        return numbers

    return flat


def drawn(
    space: ActionSpace, rng: np.random.Generator, num_envs: int | None = None
) -> npt.NDArray[np.float32]:
    """Draws rows uniformly: choices, or numbers in [-1, 1]; shape (num_envs, dim), or (dim,) for one."""
    shape = (space.dim,) if num_envs is None else (num_envs, space.dim)
    if space.kind == "discrete":
        return rng.integers(space.nvec, size=shape).astype(np.float32)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)
