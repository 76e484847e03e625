"""The stand-in sees what is sent twice, overwritten or left out: proofs count on that."""

from __future__ import annotations

import json

import pytest

from tests.doubles.wandb_run import HISTORY, Run


@pytest.mark.parametrize(
    "rows",
    [[(0, 0), (1, 1), (2, 0)], [(0, 0), (0, 1)], [(0, 0), (2, 1)]],
    ids=["twice", "overwritten", "missing between"],
)
def test_a_row_that_did_not_arrive_once_is_seen(rows: list[tuple[int, int]]) -> None:
    run = Run("me", "demo", "run1")
    for offset, step in rows:
        run.stream({"files": {HISTORY: {"offset": offset, "content": [json.dumps({"_step": step})]}}})
    assert not run.once
