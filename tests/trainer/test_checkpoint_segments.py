"""The rows of a replay, shared by the checkpoints that need them."""

import json
import os
import shutil

import numpy as np
import pytest

from tests.trainer.ring import Ring
from tests.trainer.test_checkpoint import flip_a_byte, parts_of, spoil_the_manifest, steps, store
from trainer import checkpoint
from trainer.errors import CheckpointError


def home_of(run_dir, step):
    return checkpoint.directory(run_dir) / f"step-{step:012d}"


def segments(run_dir):
    return sorted((checkpoint.directory(run_dir) / "replay").iterdir())


def listed(run_dir, step):
    replay = json.loads((home_of(run_dir, step) / "manifest.json").read_text())["replay"]
    return [entry["file"] for entry in replay["segments"]]


def restored(run_dir, step, **layout):
    ring = Ring(**layout)
    store(run_dir).restore_replay(home_of(run_dir, step), ring)
    return ring


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# the lanes hold 40 rows: what is added runs from a tenth of a lane to several times round it
@pytest.mark.parametrize("added", [[4] * 6, [30, 0, 1, 39, 40, 41], [3, 200, 5, 5], [13] * 12])
def test_every_kept_checkpoint_can_be_resumed_exactly(tmp_path, added):
    saving, ring, held = store(tmp_path, keep=4), Ring(), {}
    for number, count in enumerate(added, start=1):
        ring.fill(count)
        saving.save(number, parts_of(number), ring)
        held[number] = ring.content
    assert steps(tmp_path) == list(held)[-4:]
    for step in steps(tmp_path):
        checkpoint.verify(home_of(tmp_path, step), replay=True)
        assert restored(tmp_path, step).content == held[step]
    # nothing is there that no checkpoint lists
    assert {path.name for path in segments(tmp_path)} == {
        name for step in steps(tmp_path) for name in listed(tmp_path, step)
    }
    # and none lists what the ring has long forgotten
    assert len(listed(tmp_path, steps(tmp_path)[-1])) <= 1 + 40 // max(min(added[1:]), 1) + 1


def test_a_segment_is_written_once_and_never_changes(tmp_path):
    saving, ring = store(tmp_path), Ring()
    seen = {}
    for step in (1, 2, 3, 4, 5):
        ring.fill(5)
        saving.save(step, parts_of(step), ring)
        for path in segments(tmp_path):
            facts = (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
            assert seen.setdefault(path.name, facts) == facts
    assert len(seen) == 5
    assert all(name.startswith(f"{step:012d}-") for step, name in enumerate(sorted(seen), start=1))


def test_a_segment_holds_plain_little_endian_rows(tmp_path):
    ring = Ring()
    ring.fill(7)
    store(tmp_path).save(1, parts_of(1), ring)
    (file,) = segments(tmp_path)
    expected = ring.rows_since(None)
    assert np.array_equal(np.fromfile(file, "<f4").reshape(-1, 6), expected.data)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_resumed_run_writes_only_what_is_new(tmp_path):
    ring = Ring()
    ring.fill(20)
    store(tmp_path).save(1, parts_of(1), ring)
    resumed, copy = store(tmp_path), Ring()
    resumed.restore_replay(home_of(tmp_path, 1), copy)
    copy.fill(3)
    resumed.save(2, parts_of(2), copy)
    assert listed(tmp_path, 2)[0] == listed(tmp_path, 1)[0]
    # three rows, and again the one that was half written at the save, in two lanes
    assert segments(tmp_path)[1].stat().st_size <= 4 * 2 * 6 * 4
    assert restored(tmp_path, 2).content == copy.content


def test_a_store_that_knows_nothing_writes_all(tmp_path):
    ring = Ring()
    ring.fill(20)
    store(tmp_path).save(1, parts_of(1), ring)
    ring.fill(3)
    store(tmp_path).save(2, parts_of(2), ring)
    assert len(listed(tmp_path, 2)) == 1
    for step in (1, 2):
        checkpoint.verify(home_of(tmp_path, step), replay=True)


def test_the_branches_of_a_run_do_not_mix(tmp_path):
    first, ring = store(tmp_path, keep=9), Ring()
    held = {}
    for step in (10, 20, 30):
        ring.fill(8)
        first.save(step, parts_of(step), ring)
        held[step] = ring.content
    flip_a_byte(home_of(tmp_path, 30))
    damage(segments(tmp_path)[1])  # of 20 and 30
    refused = []
    branch, ring = store(tmp_path, keep=9), Ring()
    found = branch.newest(refused.append)
    assert found == home_of(tmp_path, 10)
    assert ["damaged" in reason for reason in refused] == [True, True]
    branch.restore_replay(found, ring)
    assert ring.content == held[10]
    for step in (15, 20, 25, 30):
        ring.fill(8, seed=1)
        branch.save(step, parts_of(step), ring)
        held[step] = ring.content
        assert branch.newest(pytest.fail) == home_of(tmp_path, step)
    assert steps(tmp_path) == [10, 15, 20, 25, 30]
    for step in steps(tmp_path):
        checkpoint.verify(home_of(tmp_path, step), replay=True)
        assert restored(tmp_path, step).content == held[step]


def lose(path):
    path.unlink()


def shorten(path):
    os.truncate(path, 10)


@pytest.mark.parametrize(("harm", "reason"), [(lose, "missing"), (shorten, "10 bytes"), (damage, "damaged")])
def test_without_its_rows_a_checkpoint_serves_all_but_a_resumption(tmp_path, harm, reason):
    saving, ring = store(tmp_path), Ring()
    for step in (1, 2):
        ring.fill(5)
        saving.save(step, parts_of(step), ring)
    harm(segments(tmp_path)[1])
    assert checkpoint.newest(tmp_path, pytest.fail) == home_of(tmp_path, 2)
    assert checkpoint.load(home_of(tmp_path, 2))["state"] == {"step": 2}
    refused = []
    assert store(tmp_path).newest(refused.append) == home_of(tmp_path, 1)
    assert len(refused) == 1
    assert f"step-{2:012d}: replay/" in refused[0]
    assert reason in refused[0]
    with pytest.raises(CheckpointError, match=r"\.rows"):
        restored(tmp_path, 2)


def test_no_segment_goes_while_a_manifest_cannot_be_read(tmp_path):
    saving, ring = store(tmp_path, keep=2), Ring(capacity=10)
    for step in (1, 2):
        ring.fill(9)
        saving.save(step, parts_of(step), ring)
    manifest = home_of(tmp_path, 2) / "manifest.json"
    content = manifest.read_bytes()
    spoil_the_manifest(home_of(tmp_path, 2))
    ring.fill(30)
    saving.save(3, parts_of(3), ring)
    assert steps(tmp_path) == [1, 2, 3]  # 2 counts for nothing, so 1 stays
    assert len(segments(tmp_path)) == 3
    manifest.write_bytes(content)
    checkpoint.verify(home_of(tmp_path, 2), replay=True)
    saving.save(4, parts_of(4), ring)
    assert steps(tmp_path) == [3, 4]
    assert {path.name for path in segments(tmp_path)} == {*listed(tmp_path, 3), *listed(tmp_path, 4)}


def test_rows_that_vanish_are_written_again(tmp_path):
    saving, ring = store(tmp_path), Ring()
    for step in (1, 2):
        ring.fill(5)
        saving.save(step, parts_of(step), ring)
    segments(tmp_path)[0].unlink()
    saving.save(3, parts_of(3), ring)
    assert restored(tmp_path, 3).content == ring.content


def test_the_checkpoint_of_another_run_can_be_continued(tmp_path):
    ring = Ring()
    ring.fill(9)
    store(tmp_path / "a").save(1, parts_of(1), ring)
    other, copy = store(tmp_path / "b"), Ring()
    other.load(home_of(tmp_path / "a", 1))
    other.restore_replay(home_of(tmp_path / "a", 1), copy)
    copy.fill(2)
    other.save(2, parts_of(2), copy)
    shutil.rmtree(tmp_path / "a")
    assert restored(tmp_path / "b", 2).content == copy.content


def test_the_rows_can_be_read_for_another_layout(tmp_path):
    saving, ring = store(tmp_path), Ring()
    for step in (1, 2):
        ring.fill(5)
        saving.save(step, parts_of(step), ring)
    adopting = store(tmp_path)
    state, rows = adopting.read_replay(home_of(tmp_path, 2))
    assert state["newest"].tolist() == ring.position()
    assert [part.begin for part in rows] == [[0, 0], [5, 4]]
    # the new layout has nothing on disk yet
    other = Ring(lanes=3)
    other.fill(4)
    adopting.save(3, parts_of(3), other)
    assert len(listed(tmp_path, 3)) == 1
    assert restored(tmp_path, 3, lanes=3).content == other.content


def test_a_checkpoint_without_a_replay_says_so(tmp_path):
    store(tmp_path).save(1, parts_of(1), None)
    with pytest.raises(CheckpointError, match="holds no replay"):
        restored(tmp_path, 1)
