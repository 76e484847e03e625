"""Container runtimes are found by name, those of other packages too."""

import importlib.metadata
from collections.abc import Iterator

import pytest

from clusterkit.runtimes import BUILT_IN, ENTRY_POINTS, all_runtimes, runtime_of


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    point = importlib.metadata.EntryPoint("broken", "no_such_module", ENTRY_POINTS)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    all_runtimes.cache_clear()
    yield point.name
    all_runtimes.cache_clear()


def test_a_runtime_that_cannot_be_loaded_fails_only_where_it_is_used(broken: str) -> None:
    assert [runtime.name for runtime in all_runtimes()] == list(BUILT_IN)
    with pytest.raises(ModuleNotFoundError):
        runtime_of(broken)
    with pytest.raises(ValueError, match="'none' or 'broken', not 'other'"):
        runtime_of("other")
