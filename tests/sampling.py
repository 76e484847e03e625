"""Long parametrizations: a sample runs that changes from day to day, and `make test-all` runs all."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable

import pytest

SEED = int(os.environ.setdefault("CLUSTERKIT_TEST_SEED", str(int(time.time()) // 86_400)))
"""Chooses the samples. Set in the environment, so that all processes of one test run choose alike."""


def sampled(values: Iterable[object], size: int, *, always: Iterable[object] = ()) -> list[object]:
    """The values for `pytest.mark.parametrize`, all but a sample of them marked `exhaustive`.

    Args:
        values: of the parameter, in the order of the tests.
        size: of the sample, `always` included.
        always: values that belong to every sample.
    """
    values, chosen = list(values), list(always)
    others = [value for value in values if value not in chosen]
    chosen += random.Random(SEED).sample(others, min(len(others), max(0, size - len(chosen))))
    return [
        value if value in chosen else pytest.param(value, marks=pytest.mark.exhaustive) for value in values
    ]
