"""For all tests: the shared fixtures, and the marks that follow from using them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.cluster.fixtures"]

settings.register_profile(
    "busy machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


CLUSTERS = 2
"""How many test clusters are up side by side, each for every other file that needs one: they mostly wait."""


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses the cluster is marked so, and what uses the image may have to wait for it to be built.

    Tests run in several processes (`--dist loadgroup`), each with session fixtures of its own: those that
    share what is slow to make go to the same one. A cluster is such a thing, and so is whatever the tests of
    a file make once for all of them.
    """
    cluster_files: dict[str, int] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        fixtures = getattr(item, "fixturenames", ())
        if "cluster" in fixtures:
            item.add_marker(pytest.mark.cluster)
        if "trainer_sif" in fixtures:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(900))
        if item.get_closest_marker("cluster"):
            number = cluster_files.setdefault(file, len(cluster_files))
            item.add_marker(pytest.mark.xdist_group(f"cluster {number % CLUSTERS}"))
        elif _shares_with_its_file(item):
            item.add_marker(pytest.mark.xdist_group(file))


def _shares_with_its_file(item: pytest.Item) -> bool:
    known = getattr(item, "_fixtureinfo", None)
    used = known.name2fixturedefs.values() if known else ()
    return any(definitions[-1].scope in ("module", "class") for definitions in used)
