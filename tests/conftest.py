"""For all tests: the shared fixtures, and the marks that follow from using them."""

from __future__ import annotations

import os
import signal
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

import pytest
from hypothesis import HealthCheck, settings

from tests.promises import promises
from tests.sampling import SEED

# Here and in every process a test starts, as a profile's `threads` has it. PyTorch's threads wait for each
# other by counting: with tests in several processes on few processors that took 35 times the work itself.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Where these are ignored, as under nohup and behind a shell's `&`, every process that a test starts would
# ignore them, too. A handler is not handed on: they have their usual meaning there.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

pytest_plugins = ["tests.cluster.fixtures", "tests.collecting", "tests.needs", "tests.telling"]

settings.register_profile(
    "busy machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


CLUSTERS = 4
"""How many test clusters are up side by side, each for some of the files that need one: they mostly wait."""
CLUSTER_TIMEOUT = 900
"""What a test that uses a cluster has at least: it may wait for an image, or for a machine that is busy."""

CLUSTER_SECONDS = {
    "tests/cluster/test_until_done.py": 200,
    "tests/cluster/test_why.py": 110,
    "tests/cluster/test_doctor.py": 90,
    "tests/cluster/test_plan_starts.py": 80,
    "tests/cluster/test_status.py": 60,
    "tests/cluster/test_groups.py": 70,
    "tests/cluster/test_exactly_once.py": 60,
    "tests/cluster/test_random_faults.py": 50,
    "tests/cluster/test_end_to_end.py": 50,
    "tests/cluster/test_init.py": 40,
    "tests/cluster/test_inside.py": 40,
    "tests/cluster/test_one_login.py": 40,
    "tests/cluster/test_pyxis.py": 30,
}
"""About how long these files take on a cluster, to deal all of them evenly; others take `SOME_SECONDS`."""
SOME_SECONDS = 20


DAYS = 7
"""Tests that prove no promise have their turn on one of so many days, if they are slow or use a cluster."""


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Permissions of projects are kept in a folder of the tests; see `tests.allowing`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What uses the cluster is marked so, and what uses the image may have to wait for it to be built.

    Tests run in several processes (`--dist loadgroup`), each with session fixtures of its own: those that
    share what is slow to make go to the same one. A cluster is such a thing, and so is whatever the tests of
    a file make once for all of them.

    What takes longest begins first, that nothing of it is left when all else has ended: the clusters, then
    the slow tests. (xdist keeps to that with `--no-loadscope-reorder`.)
    """
    here = {test for promise in promises() for test in promise.here}
    there = {test for promise in promises() for test in promise.there}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        names = {item.nodeid, item.nodeid.partition("[")[0], _file(item)}
        if names & here:
            item.add_marker(pytest.mark.promise)
        if "cluster" in fixtures:
            item.add_marker(pytest.mark.cluster)
        if "trainer_sif" in fixtures:
            item.add_marker(pytest.mark.slow)
        costly = item.get_closest_marker("slow") or item.get_closest_marker("cluster")
        if costly and not names & (here | there) and not _has_its_turn(item):
            item.add_marker(pytest.mark.another_day)
        own = item.get_closest_marker("timeout")
        if item.get_closest_marker("cluster") and (own is None or own.args[0] < CLUSTER_TIMEOUT):
            item.add_marker(pytest.mark.timeout(CLUSTER_TIMEOUT), append=False)
    cluster_of = _dealt(item for item in items if item.get_closest_marker("cluster"))
    slow_groups = set()
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.xdist_group(f"cluster {cluster_of[_file(item)]}"))
        elif _shares_with_its_file(item):
            item.add_marker(pytest.mark.xdist_group(_file(item)))
        if item.get_closest_marker("slow"):
            slow_groups.add(_group(item))
    if hasattr(config, "workerinput"):  # one of several processes

        def rank(item: pytest.Item) -> int:
            if item.get_closest_marker("cluster"):
                return 0
            return 1 if _group(item) in slow_groups else 2 if item.get_closest_marker("xdist_group") else 3

        items.sort(key=rank)


def _has_its_turn(item: pytest.Item) -> bool:
    """Returns whether today is the day of a test function: each has one of `DAYS`."""
    return (zlib.crc32(item.nodeid.partition("[")[0].encode()) + SEED) % DAYS == 0


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _group(item: pytest.Item) -> str:
    """What goes to a process as one: tests of a group, or one of none."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else item.nodeid


def _dealt(items: Iterable[pytest.Item]) -> dict[str, int]:
    """Which cluster has which file: the longest come first, each to the cluster that has least to do."""
    seconds: Counter[str] = Counter()
    for file, tests in groupby(items, _file):
        turns = [not item.get_closest_marker("another_day") for item in tests]
        seconds[file] += CLUSTER_SECONDS.get(file, SOME_SECONDS) * sum(turns) / len(turns)
    cluster_of, busy = {}, [0.0] * CLUSTERS
    for file in sorted(seconds, key=lambda file: (-seconds[file], file)):
        cluster_of[file] = busy.index(min(busy))
        busy[cluster_of[file]] += seconds[file]
    return cluster_of


def _shares_with_its_file(item: pytest.Item) -> bool:
    known = getattr(item, "_fixtureinfo", None)
    used = known.name2fixturedefs.values() if known else ()
    return any(definitions[-1].scope in ("module", "class") for definitions in used)
