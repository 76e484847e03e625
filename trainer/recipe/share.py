"""What one rank has of a run, by which memory is computed, and where its policy acts. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainer.recipe.batches import Batches, batches
from trainer.recipe.spaces import Spaces

FLOAT, LONG, DOUBLE = 4, 8, 8
"""Bytes of a number."""


@dataclass(frozen=True)
class ParameterCount:
    """How many numbers policy, critics, target critics (not trained) and entropy coefficients hold."""

    actor: int
    critics: int = 0
    targets: int = 0
    alphas: int = 0

    @property
    def trained(self) -> int:
        """Parameters with a gradient and optimiser state."""
        return self.actor + self.critics + self.alphas


def dense(inputs: int, hidden: Sequence[int], outputs: int, heads: int = 1) -> int:
    """Returns the weights and biases of fully connected layers, of the last layer once for each head."""
    sizes = [inputs, *hidden]
    body = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))
    return body + heads * (sizes[-1] + 1) * outputs


def head_count(values: Mapping[str, Any], tasks: int) -> int:
    """Returns the output heads of a network: one a task where the recipe wants that."""
    return tasks if values.get("heads") == "multi-head" else 1


@dataclass(frozen=True)
class Share:
    """The sizes that determine a rank's memory.

    Attributes:
        recipe: its name.
        values: of the recipe.
        tasks: of the recipe.
        spaces: the sizes of its environments.
        inputs: numbers that the policy is shown.
        count: the numbers in the networks.
        ranks: processes that learn together, each on a GPU of its own.
        environments: of this rank.
        batch: transitions of this rank in a batch.
        precision: `fp32`, `tf32` or `bf16`.
        on_gpu: whether it learns on a GPU.
        lag: vector steps the acting policy is behind.
    """

    recipe: str
    values: Mapping[str, Any]
    tasks: int
    spaces: Spaces
    inputs: int
    count: ParameterCount
    ranks: int
    environments: int
    batch: int
    precision: str
    on_gpu: bool
    lag: int

    @property
    def cuts(self) -> Batches:
        """The cuts of the rollouts of all ranks together, where there are rollouts."""
        return batches(self.recipe, self.values, self.environments * self.ranks)

    @property
    def heads(self) -> int:
        """Output heads of a network."""
        return head_count(self.values, self.tasks)

    @property
    def width(self) -> int:
        """Bytes of a number in a product of matrices."""
        return 2 if self.precision == "bf16" else 4


@dataclass(frozen=True)
class Part:
    """One part of the memory.

    Attributes:
        name: for a table.
        bytes: how much.
        exact: counted to the byte; else estimated.
        note: what it is made of.
    """

    name: str
    bytes: int
    exact: bool = True
    note: str = ""


_HOST_PRODUCTS = 4_000_000
"""Multiplications a call up to which the host acts.

Until there they are less than a fifth of what a call takes a processor, most of which is some thirty small
operations. To ask a GPU and wait for its answer takes longer.
"""


def acts_on_host(weights: int, envs: int) -> bool:
    """Returns whether a policy beside a GPU acts on the host, which small ones do faster.

    Args:
        weights: parameters of the network that acts.
        envs: observations in a call.
    """
    return weights * envs <= _HOST_PRODUCTS


_WIDE = 512
"""Width of an actor from which a way back over rows without a gradient costs more than some launches."""


def evaluates_apart(actor_hidden: Sequence[int]) -> bool:
    """Returns whether SAC evaluates its actor in the next observations apart, without a gradient.

    In one evaluation with the others, half of the actor's way back is computed of zeros: a ninth of all
    arithmetic of `mclean2025-mt10`, but 0.6% of `guide-mt10`'s, where six launches on a GPU weigh more.
    """
    return max(actor_hidden) >= _WIDE
