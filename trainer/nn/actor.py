"""The interface of a policy to evaluation and play, whatever the algorithm."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn


class Actor(nn.Module):
    """A policy that acts on host arrays."""

    @abstractmethod
    def act(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.integer[Any]], *, greedy: bool
    ) -> npt.NDArray[np.float32]:
        """Acts from and to arrays on the host.

        Args:
            observation: (batch, observation_dim).
            task: (batch,), the task of each row.
            greedy: deterministic.

        Returns:
            (batch, action_dim).
        """
