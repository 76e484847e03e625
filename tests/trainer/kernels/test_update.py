"""A whole update made of kernels is that of autograd: the tests of explicit gradients, with kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from tests.trainer import test_sac_explicit, test_sac_group
from tests.trainer.kernels.emulator import Emulator
from trainer.algorithms.kernels.cuda import operations

pytestmark = [pytest.mark.xdist_group("kernels"), pytest.mark.slow]
float64 = pytest.fixture(test_sac_explicit.float64.__wrapped__)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("changes", test_sac_explicit.CONFIGS.values(), ids=test_sac_explicit.CONFIGS)
def test_an_update_of_kernels_is_that_of_autograd(
    emulated: Callable[[torch.dtype], Emulator], monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.setattr(test_sac_explicit, "plain", partial(operations, emulated(torch.float64)))
    test_sac_explicit.test_explicit_gradients_are_those_of_autograd(changes, ends=True)


@pytest.mark.parametrize("changes", [{"max_grad_norm": 0.05}, {"heads": "multi-head"}], ids=str)
def test_each_seed_of_kernels_learns_what_it_learns_alone(
    emulated: Callable[[torch.dtype], Emulator], monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.setattr(test_sac_group, "plain", partial(operations, emulated(torch.float32)))
    test_sac_group.test_each_seed_learns_what_it_learns_alone_whatever_another_is_given(
        monkeypatch, changes, True, "explicit", False
    )
