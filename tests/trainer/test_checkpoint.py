import hashlib
import json
import os
import pickle
import re

import pytest
import torch

from tests.trainer.ring import Ring
from trainer import checkpoint
from trainer.checkpoint import CheckpointStore
from trainer.checkpoint.manifest import Manifest, sealed
from trainer.errors import CheckpointError


def save(run_dir, step, *, keep=3, replay=None):
    """Saves as an attempt would that knows nothing of earlier ones."""
    return store(run_dir, keep=keep).save(step, parts_of(step), replay)


def store(run_dir, *, keep=3):
    return CheckpointStore(run_dir, run_id="run-7", recipe="local-demo", keep=keep)


def parts_of(step):
    return {"model": {"weights": torch.full((4,), float(step))}, "state": {"step": step}}


def steps(run_dir):
    return sorted(int(path.name.removeprefix("step-")) for path in (run_dir / "checkpoints").glob("step-*"))


def test_what_is_saved_is_loaded(tmp_path):
    saved = save(tmp_path, 1200)
    assert saved.path.name == "step-000000001200"
    parts = checkpoint.load(saved.path)
    assert parts.keys() == {"model", "state"}
    assert parts["model"]["weights"].tolist() == [1200] * 4
    assert parts["state"] == {"step": 1200}


def test_the_manifest_says_what_is_there(tmp_path):
    saved = save(tmp_path, 5)
    manifest = json.loads((saved.path / "manifest.json").read_text())
    assert manifest["schema"] == 3
    assert (manifest["step"], manifest["run_id"], manifest["recipe"]) == (5, "run-7", "local-demo")
    sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    assert sizes == {name: (saved.path / name).stat().st_size for name in sizes}
    assert sum(sizes.values()) + (saved.path / "manifest.json").stat().st_size == saved.nbytes
    assert {path.stat().st_mode & 0o777 for path in (saved.path, saved.path.parent)} == {0o700}


def test_old_ones_go(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step, keep=2)
    assert steps(tmp_path) == [3, 4]
    save(tmp_path, 5, keep=1)
    assert steps(tmp_path) == [5]


def truncate(path):
    os.truncate(path / "model.pt", 100)


def flip_a_byte(path):
    data = bytearray((path / "state.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "state.pt").write_bytes(data)


def lose_a_file(path):
    (path / "state.pt").unlink()


def lose_the_manifest(path):
    (path / "manifest.json").unlink()


def spoil_the_manifest(path):
    (path / "manifest.json").write_text('{"schema": 1, "fi')


def edit(path, **changes):
    """Forges the manifest: its own digest fits."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    (path / "manifest.json").write_bytes(sealed(json.dumps(manifest | changes).encode()))


def come_from_the_future(path):
    edit(path, schema=9)


def come_from_the_past(path):
    edit(path, schema=1)


def be_a_folder(path):
    (path / "state.pt").unlink()
    (path / "state.pt").mkdir()


def nest_deeply(path):
    (path / "manifest.json").write_text("[" * 100_000)


def of_two_segments(run_dir):
    """A checkpoint with two segments, after one with the first of them."""
    saving, ring = store(run_dir), Ring(capacity=50)
    for step in (1, 2):
        ring.fill(9)
        saved = saving.save(step, {"model": {}, "state": {}}, ring)
    return saved.path / "manifest.json"


def change_a_digit(path):
    text = (path / "manifest.json").read_text()
    place = text.rindex('"mark": [') + len('"mark": [')
    (path / "manifest.json").write_text(
        text[:place] + ("8" if text[place] != "8" else "9") + text[place + 1 :]
    )


def shift(path):
    replay = json.loads((path / "manifest.json").read_text())["replay"]
    for side in ("begin", "end"):
        replay["segments"][1][side] = [row - 5 for row in replay["segments"][1][side]]
    edit(path, replay=replay)


def move_the_mark(path):
    replay = json.loads((path / "manifest.json").read_text())["replay"]
    edit(path, replay=replay | {"mark": [row - 5 for row in replay["mark"]]})


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("it ran",))


def hold_code(path):
    torch.save({"learner": Evil()}, path / "model.pt")
    data = (path / "model.pt").read_bytes()
    files = json.loads((path / "manifest.json").read_text())["files"]
    edit(path, files=files | {"model.pt": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}})


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "model.pt has 100 bytes instead of"),
        (flip_a_byte, "state.pt is damaged"),
        (lose_a_file, "state.pt is missing"),
        (lose_the_manifest, "no manifest"),
        (spoil_the_manifest, "manifest cannot be read"),
        (come_from_the_future, "was written in format 9; this trainer reads format 3"),
        (come_from_the_past, "was written by an older trainer in format 1; this trainer reads format 3"),
        (be_a_folder, "state.pt is no file"),
        (nest_deeply, "manifest cannot be read"),
        (change_a_digit, r"it is damaged \(its own sha256 differs\)"),
        (shift, "begins within the one before"),
        (move_the_mark, "its mark is not where its last segment ends"),
        (hold_code, "model.pt is no file of tensors: it is damaged, or holds more than data"),
    ],
)
def test_a_torn_checkpoint_is_refused_with_its_reason_and_the_one_before_used(tmp_path, damage, reason):
    damaged = of_two_segments(tmp_path).parent
    damage(damaged)
    with pytest.raises(CheckpointError, match=reason):
        checkpoint.load(damaged)
    refused = []
    assert store(tmp_path).newest(refused.append).name == "step-000000000001"
    assert len(refused) == 1
    assert re.search(reason, refused[0])


def test_there_may_be_none(tmp_path):
    assert checkpoint.newest(tmp_path, pytest.fail) is None


def test_a_torn_one_is_replaced_by_a_good_one_of_the_same_step(tmp_path):
    truncate(save(tmp_path, 2).path)
    checkpoint.verify(save(tmp_path, 2).path)


def test_a_good_one_of_the_same_step_stays(tmp_path):
    first = save(tmp_path, 2)
    inode = (first.path / "model.pt").stat().st_ino
    again = save(tmp_path, 2)
    assert (again.path / "model.pt").stat().st_ino == inode
    assert again.nbytes == 0


def test_the_good_ones_are_counted_and_not_the_damaged(tmp_path):
    save(tmp_path, 1)
    truncate(save(tmp_path, 2).path)
    flip_a_byte(save(tmp_path, 3).path)
    resuming = store(tmp_path, keep=2)
    assert resuming.newest(lambda reason: None).name == "step-000000000001"
    resuming.save(4, parts_of(4), None)
    assert steps(tmp_path) == [1, 2, 3, 4]
    resuming.save(5, parts_of(5), None)
    assert steps(tmp_path) == [4, 5]


def test_the_branch_that_goes_on_is_the_one_to_resume(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path, step)
    branch = store(tmp_path)
    older = checkpoint.directory(tmp_path) / "step-000000000010"
    branch.load(older)
    branch.save(10, parts_of(10), None)
    assert checkpoint.newest(tmp_path, pytest.fail) == older
    branch.save(15, parts_of(15), None)
    assert checkpoint.newest(tmp_path, pytest.fail).name == "step-000000000015"
    assert steps(tmp_path) == [10, 15, 30]  # 20 was saved first


def test_a_branch_replaces_what_the_one_before_it_saved_at_its_step(tmp_path, monkeypatch):
    for step in (10, 20):
        save(tmp_path, step)
    branch = store(tmp_path)
    home = checkpoint.directory(tmp_path)
    branch.load(home / "step-000000000010")

    def refuse(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("trainer.checkpoint.store.publish_directory", refuse)
        with pytest.raises(OSError, match="Input/output"):
            branch.save(20, {"model": {"weights": torch.zeros(4)}}, None)
    assert checkpoint.load(home / "step-000000000020")["model"]["weights"].tolist() == [20] * 4
    branch.save(20, {"model": {"weights": torch.zeros(4)}}, None)
    assert checkpoint.load(home / "step-000000000020")["model"]["weights"].tolist() == [0] * 4
    assert steps(tmp_path) == [10, 20]


def test_what_a_killed_attempt_left_behind_is_cleared(tmp_path):
    leftover = checkpoint.directory(tmp_path) / ".step-000000000009"
    leftover.mkdir(parents=True)
    (leftover / "model.pt").write_bytes(b"half")
    rows = checkpoint.directory(tmp_path) / "replay"
    rows.mkdir()
    (rows / ".000000000009-0a0b0c0d.tmp").write_bytes(b"half")
    (rows / "000000000009-0123456789abcdef.rows").write_bytes(b"of no checkpoint")
    assert checkpoint.newest(tmp_path, pytest.fail) is None
    save(tmp_path, 10)
    assert [path.name for path in checkpoint.directory(tmp_path).iterdir() if path != rows] == [
        "step-000000000010"
    ]
    assert list(rows.iterdir()) == []


@pytest.mark.parametrize("name", ["../../secret.pt", "/etc/passwd", "..", ".hidden", "a/b", "", "a\nb"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path, name):
    saved = save(tmp_path, 1, replay=Ring())
    manifest = json.loads((saved.path / "manifest.json").read_text())
    model = manifest["files"]["model.pt"]
    (segment,) = manifest["replay"]["segments"]
    replay = manifest["replay"] | {"segments": [segment | {"file": name}]}
    for changes in ({"files": {name: model}}, {"replay": replay}):
        edit(saved.path, **(manifest | changes))
        with pytest.raises(CheckpointError, match="is no name of a file in its folder"):
            checkpoint.load(saved.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"step": True},
        {"serial": "1"},
        {"time": None},
        {"files": []},
        {"files": {"model.pt": {"bytes": 1}}},
        {"files": {"model.pt": {"bytes": 1, "sha256": "x"}}},
        {"replay": {}},
        {"replay": {"mark": [1], "segments": [{}]}},
        {"replay": {"mark": 3, "segments": []}},
    ],
)
def test_a_manifest_that_says_nonsense_is_refused(tmp_path, changes):
    saved = save(tmp_path, 1)
    edit(saved.path, **changes)
    with pytest.raises(CheckpointError, match="its manifest cannot be read"):
        checkpoint.load(saved.path)


@pytest.mark.parametrize("changes", [{"begin": [0], "end": [5]}, {"end": [5]}, {"begin": [9, 9]}])
def test_segments_that_are_not_of_the_replay_are_refused(tmp_path, changes):
    ring = Ring()
    ring.fill(5)
    saved = save(tmp_path, 1, replay=ring)
    replay = json.loads((saved.path / "manifest.json").read_text())["replay"]
    (segment,) = replay["segments"]
    edit(saved.path, replay=replay | {"segments": [segment | changes]})
    with pytest.raises(CheckpointError, match="its manifest cannot be read"):
        checkpoint.load(saved.path)


def test_what_cannot_be_saved_is_no_checkpoint(tmp_path):
    class Broken:
        def __reduce__(self):
            raise RuntimeError("it cannot be pickled")

    with pytest.raises(RuntimeError, match="it cannot be pickled"):
        store(tmp_path).save(1, {"model": Broken()}, None)
    assert steps(tmp_path) == []


def test_a_checkpoint_from_a_stranger_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "pwned"),)

    file = tmp_path / "model.pt"
    for write in (lambda: torch.save({"a": Evil()}, file), lambda: file.write_bytes(pickle.dumps(Evil(), 2))):
        write()
        with pytest.raises(CheckpointError, match="is no file of tensors"):
            checkpoint.load_file(file)
        assert not (tmp_path / "pwned").exists()


def test_no_digit_of_a_manifest_can_change_unseen(tmp_path):
    """Once 52 of 58 in a replay's mark could, and the second resumption came to other numbers."""
    content = of_two_segments(tmp_path).read_bytes()
    places = [place for place, byte in enumerate(content) if chr(byte) in "0123456789abcdef"]
    assert len(places) > 300
    for place in places:
        other = b"7" if content[place : place + 1] != b"7" else b"1"
        with pytest.raises(ValueError):  # noqa: PT011 - whichever it is, it is refused
            Manifest.from_bytes(content[:place] + other + content[place + 1 :])
