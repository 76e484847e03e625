"""The fixtures every test folder may use: the running cluster, and the image it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.host import UnavailableError


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One cluster for the whole session; a test that breaks something mends it."""
    try:
        running = Cluster().__enter__()
    except UnavailableError as reason:
        _do_without(str(reason))
    yield running
    running.down()


def _do_without(reason: str) -> NoReturn:
    """Skip, with the reason in pytest's summary; under CI, where the cluster must run, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, and {reason}", pytrace=False)
    pytest.skip(reason)
