"""The fixtures every test folder may use: the running cluster, and the image it runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.host import UnavailableError
from tests.cluster.image import trainer_image
from tests.cluster.small_image import small_image


@contextmanager
def own_cluster(**options: str) -> Iterator[Cluster]:
    """A cluster while the context lasts; skips, with the reason, where there can be none."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(Cluster(**options))
        except UnavailableError as reason:
            do_without(str(reason))
        yield running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One cluster for the whole session; a test that breaks something mends it."""
    with own_cluster() as running:
        yield running


@pytest.fixture(scope="session")
def small_sif(cluster: Cluster) -> Path:
    """An image on this machine in which a shell and Python start, and nothing trains."""
    return small_image(cluster)


@pytest.fixture(scope="session")
def trainer_sif(cluster: Cluster, request: pytest.FixtureRequest) -> Path:
    """The trainer image on this machine; says how long it took when it had to be built or waited for."""
    began = time.monotonic()
    image = trainer_image(cluster)
    if (seconds := time.monotonic() - began) > 1:
        megabytes = image.stat().st_size / 1e6
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"{image.name}, {megabytes:.0f} MB, was there after {seconds:.0f} s", file=sys.stderr)
    return image


def do_without(reason: str) -> NoReturn:
    """Skip, with the reason in pytest's summary; under CI, where the cluster must run, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, and {reason}", pytrace=False)
    pytest.skip(reason)
