"""For all tests: the shared fixtures, and the marks that follow from using them."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.cluster.fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses the cluster is marked so, and what uses the image may have to wait for it to be built."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "cluster" in fixtures:
            item.add_marker(pytest.mark.cluster)
        if "trainer_sif" in fixtures:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(900))
