"""Where the cluster cannot run, its tests are skipped with the reason; under CI that is a failure."""

from __future__ import annotations

import pytest

from tests.cluster.fixtures import do_without


@pytest.mark.parametrize(
    ("ci", "outcome"), [("false", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_without_a_cluster_the_reason_is_given(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="needs root"):
        do_without("needs root")
