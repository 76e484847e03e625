from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch

from tests.needs import needing
from tests.trainer.kernels.emulator import Emulator


@pytest.fixture(scope="session")
@needing("g++")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[torch.dtype], Emulator]:
    """Runs the kernels on the processor, in a precision."""
    return cache(lambda dtype: Emulator(tmp_path_factory.mktemp("kernels"), dtype))
