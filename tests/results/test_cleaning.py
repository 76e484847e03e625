"""Whether what a run would go on from was removed, by what its directory says."""

from __future__ import annotations

import json

import pytest

from clusterkit.results.cleaning import removed_checkpoint

OLD, NEW = "step-000000001000", "step-000000002000"


def answer(*cleanings: str, left: tuple[str, ...] = ()) -> str:
    entries = [{"files": {f"checkpoints/{name}/manifest.json": {}, "a.mp4": {}}} for name in cleanings]
    manifests = "".join(f"\x1echeckpoints/{name}/manifest.json" for name in left)
    return json.dumps({"schema": 1, "cleanings": entries}) + "\n" + manifests


@pytest.mark.parametrize("newest", [NEW, None])
def test_what_stayed_is_gone_on_from(newest: str | None) -> None:
    assert removed_checkpoint("", newest) is None
    assert removed_checkpoint(answer(OLD, left=(NEW,)), newest) is None
    assert removed_checkpoint(answer(OLD, NEW, left=(NEW,)), newest) is None  # copied back


@pytest.mark.parametrize("newest", [NEW, None])
def test_nothing_is_left(newest: str | None) -> None:
    assert removed_checkpoint(answer(OLD, NEW), newest) == NEW


def test_only_something_older_is_left() -> None:
    assert removed_checkpoint(answer(NEW, left=(OLD,)), NEW) == NEW


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"cleanings": 3}', '{"cleanings": [{"files": 1}]}', "[" * 99999]
)
def test_a_record_that_cannot_be_read_forbids_nothing(text: str) -> None:
    assert removed_checkpoint(text, NEW) is None
