import json
import os
import pickle

import pytest
import torch

from trainer import checkpoint
from trainer.errors import CheckpointError


def save(run_dir, step, *, keep=3, replay=b"replay"):
    parts = {
        "model": {"weights": torch.full((4,), float(step))},
        "state": {"step": step},
        checkpoint.REPLAY: {"rows": torch.tensor(list(replay))},
    }
    return checkpoint.save(run_dir, step, parts, run_id="run-7", recipe="local-demo", keep=keep)


def steps(run_dir):
    return sorted(int(path.name.removeprefix("step-")) for path in (run_dir / "checkpoints").glob("step-*"))


def test_what_is_saved_is_loaded(tmp_path):
    saved = save(tmp_path, 1200)
    assert saved.path.name == "step-000000001200"
    parts = checkpoint.load(saved.path)
    assert parts.keys() == {"model", "state", "replay"}
    assert parts["model"]["weights"].tolist() == [1200] * 4
    assert parts["state"] == {"step": 1200}


def test_the_manifest_says_what_is_there(tmp_path):
    saved = save(tmp_path, 5)
    manifest = json.loads((saved.path / "manifest.json").read_text())
    assert manifest["schema"] == 1
    assert (manifest["step"], manifest["run_id"], manifest["recipe"]) == (5, "run-7", "local-demo")
    sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    assert sizes == {name: (saved.path / name).stat().st_size for name in sizes}
    assert sum(sizes.values()) == saved.nbytes
    assert saved.path.stat().st_mode & 0o777 == 0o700


def test_only_the_newest_keeps_its_replay_and_the_older_stay_good(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    home = checkpoint.directory(tmp_path)
    assert [(home / f"step-{step:012d}" / "replay.pt").exists() for step in (1, 2, 3)] == [False, False, True]
    for step in (1, 2, 3):
        checkpoint.verify(home / f"step-{step:012d}")
    assert "replay" not in checkpoint.load(home / "step-000000000001")


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
    (path / "replay.pt").unlink()


def lose_the_manifest(path):
    (path / "manifest.json").unlink()


def spoil_the_manifest(path):
    (path / "manifest.json").write_text('{"schema": 1, "fi')


def come_from_the_future(path):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"schema": 9}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "model.pt has 100 bytes instead of"),
        (flip_a_byte, "state.pt is damaged"),
        (lose_a_file, "replay.pt is missing"),
        (lose_the_manifest, "no manifest"),
        (spoil_the_manifest, "manifest cannot be read"),
        (come_from_the_future, "format 9"),
    ],
)
def test_a_torn_checkpoint_is_refused_with_its_reason_and_the_one_before_used(tmp_path, damage, reason):
    save(tmp_path, 1)
    damaged = save(tmp_path, 2).path
    damage(damaged)
    with pytest.raises(CheckpointError, match=reason):
        checkpoint.load(damaged)
    refused = []
    assert checkpoint.newest(tmp_path, refused.append).name == "step-000000000001"
    assert len(refused) == 1
    assert reason in refused[0]


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
    assert again.nbytes == first.nbytes


def test_a_full_disk_leaves_the_last_checkpoint_and_no_rubbish(tmp_path):
    save(tmp_path, 1)

    class Unwritable:
        def __reduce__(self):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, 2, {"model": Unwritable()}, run_id="r", recipe="x")
    assert [path.name for path in checkpoint.directory(tmp_path).iterdir()] == ["step-000000000001"]
    checkpoint.verify(checkpoint.newest(tmp_path, pytest.fail))


def test_what_a_killed_attempt_left_behind_is_cleared(tmp_path):
    leftover = checkpoint.directory(tmp_path) / ".step-000000000009"
    leftover.mkdir(parents=True)
    (leftover / "model.pt").write_bytes(b"half")
    assert checkpoint.newest(tmp_path, pytest.fail) is None
    save(tmp_path, 10)
    assert not leftover.exists()


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
