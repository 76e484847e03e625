"""What may be removed of a run, and whether what it would go on from was, by what its directory says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterkit.results.cleaning import removable, removed_checkpoint
from clusterkit.results.listing import RemoteFile

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


def test_manifests_go_before_what_they_list_and_only_what_is_here_goes(tmp_path: Path) -> None:
    names = [f"checkpoints/{NEW}/model.pt", f"checkpoints/{NEW}/manifest.json", "video.mp4", "other.mp4"]
    files = [RemoteFile(f"run/{name}", size, 0) for size, name in enumerate(names, start=1)]
    for file in files[:3]:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * file.size)
    (tmp_path / files[1].path).write_text("{}")  # as long as the one there
    going = removable("run", files, tmp_path, everything=True)
    assert [file.inside for file in going.files] == ["video.mp4", names[1], names[0]]
    assert going.absent_bytes == 4
    assert removable("run", files, tmp_path, everything=False).newest == NEW
