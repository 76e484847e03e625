"""The real client, offline: its logs are decoded record by record."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.wandb.records import scan
from trainer.telemetry import Telemetry
from trainer.telemetry import wandb_run as module
from trainer.telemetry.wandb_run import WandbLostError, WandbRun, open_wandb

pytestmark = pytest.mark.slow  # each test starts the real client

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")

KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def nobodys_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key, no settings and no answer from outside: what the developer has must not matter."""
    for name in [*os.environ]:
        if name.startswith(("WANDB_", "CLUSTERKIT_")) or name == "NETRC":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield
    module._open.clear()
    module._abandon()


def opened(run_dir: Path, mode: str = "auto", **options: Any) -> WandbRun:
    run, said = open_wandb(mode, run_dir, name="demo", config={"gamma": 0.99}, **options)
    assert run is not None
    assert said == []
    return run


def records(run_dir: Path) -> list[Any]:
    """All records of all fragments, in the order they were begun."""
    from wandb.proto import wandb_internal_pb2

    decoded = []
    for path in sorted(run_dir.glob("wandb/*run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        raw: list[bytes] = []
        with path.open("rb") as stream:
            scan(stream, raw.append)
        for each in raw:
            decoded.append(wandb_internal_pb2.Record())
            decoded[-1].ParseFromString(each)
    return decoded


def rows(run_dir: Path) -> list[dict[str, Any]]:
    """The history, without the client's own clock."""
    found = []
    for record in records(run_dir):
        if record.WhichOneof("record_type") == "history":
            row = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            found.append({key: value for key, value in row.items() if key not in ("_timestamp", "_runtime")})
    return found


def exit_codes(run_dir: Path) -> list[int]:
    return [r.exit.exit_code for r in records(run_dir) if r.WhichOneof("record_type") == "exit"]


def run_record(run_dir: Path) -> Any:
    return next(r.run for r in records(run_dir) if r.WhichOneof("record_type") == "run")


def test_every_step_arrives_once(tmp_path: Path) -> None:
    run = opened(tmp_path, tags=["local-demo"])
    for step in range(0, 5000, 10):
        run.log(step, {"train/loss": step / 2})
    run.finish(0)
    assert rows(tmp_path) == [
        {"_step": step, "env_steps": step, "train/loss": step / 2} for step in range(0, 5000, 10)
    ]
    assert exit_codes(tmp_path) == [0]
    record = run_record(tmp_path)
    assert (record.run_id, record.display_name, list(record.tags)) == (run.id, "demo", ["local-demo"])
    assert {item.key: item.value_json for item in record.config.update}["gamma"] == "0.99"


def test_a_step_back_loses_nothing(tmp_path: Path) -> None:
    run = opened(tmp_path)
    for step in (0, 10, 5, 20):
        run.log(step, {f"at/{step}": 1})
    run.finish(0)
    assert [(row["_step"], row["env_steps"]) for row in rows(tmp_path)] == [
        (0, 0),
        (10, 10),
        (11, 5),
        (20, 20),
    ]
    assert all(row[f"at/{row['env_steps']}"] == 1 for row in rows(tmp_path))


def test_attempts_are_fragments_of_one_run(tmp_path: Path) -> None:
    first = opened(tmp_path)
    for step in (0, 10, 20):
        first.log(step, {"loss": step})
    first.finish(85)
    second = opened(tmp_path)
    # It goes on from the checkpoint at step 10.
    for step in (10, 20, 30):
        second.log(step, {"loss": step})
    second.finish(0)
    assert second.id == first.id
    assert [row["env_steps"] for row in rows(tmp_path)] == [0, 10, 20, 10, 20, 30]
    assert exit_codes(tmp_path) == [85, 0]


def test_the_environment_names_the_project_and_the_caller_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "thesis")
    monkeypatch.setenv("WANDB_ENTITY", "lab")
    opened(tmp_path, run_id="chosen1").finish(0)
    record = run_record(tmp_path)
    assert (record.run_id, record.project, record.entity) == ("chosen1", "thesis", "lab")


def test_nothing_but_metrics_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("SOME_PASSWORD", "swordfish")
    run = opened(tmp_path)
    run.log(0, {"loss": 1.0})
    run.finish(0)
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("wandb/**/*") if path.is_file())
    assert b"_step" in kept
    log = b"".join(path.read_bytes() for path in tmp_path.glob("wandb/*/*.wandb"))
    for secret in (KEY.encode(), b"swordfish"):
        assert secret not in kept
    for ours in (sys.executable.encode(), str(Path.cwd()).encode()):
        assert ours not in log
    assert not list(tmp_path.glob("wandb/**/*.patch")) + list(tmp_path.glob("wandb/**/requirements.txt"))


def test_it_is_offline_unless_asked_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path / "auto").finish(0)
    assert list((tmp_path / "auto" / "wandb").glob("offline-run-*"))
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert open_wandb("auto", tmp_path, name="demo", config={}) == (None, [])
    assert open_wandb("disabled", tmp_path, name="demo", config={}) == (None, [])
    assert not (tmp_path / "wandb").exists()
    monkeypatch.setenv("WANDB_MODE", "shared")
    run, said = open_wandb("auto", tmp_path, name="demo", config={})
    assert run is not None
    assert said == ["WANDB_MODE=shared is not known here; W&B runs offline"]
    run.finish(0)


def test_without_the_client_it_is_off_and_says_so(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["wandb"] = None  # what an import finds where the package is not installed
from pathlib import Path
from trainer.telemetry.wandb_run import open_wandb
print(open_wandb("auto", Path(sys.argv[1]), name="demo", config={}))
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("(None, ['W&B is off: ")


def helpers() -> set[int]:
    """The client's helper processes among our children."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            if "wandb-core" in Path(f"/proc/{child}/cmdline").read_text():
                found.add(int(child))
    return found


@pytest.mark.needs("procfs")
def test_a_dead_client_ends_no_run(tmp_path: Path) -> None:
    stream = io.StringIO()
    before = helpers()
    telemetry = Telemetry.open(tmp_path, {"recipe": "local-demo"}, 1000, 0, "offline", stream=stream)
    with telemetry:
        telemetry.train(0, {"loss": 1.0})
        # What a scheduler does that signals every process of a job step.
        (helper,) = helpers() - before
        os.kill(helper, signal.SIGTERM)
        os.waitpid(helper, 0)
        for step in range(10, 100, 10):
            telemetry.train(step, {"loss": 1.0})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(0, 100, 10))
    assert len([line for line in lines if line["kind"] == "event"]) == 1
    assert "W&B takes no more" in stream.getvalue()


def test_through_telemetry(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(
        json.dumps({"profile": {"name": "a40-2m", "gpu": "a40"}, "env": {"SECRET": "x"}})
    )
    header = {"recipe": "local-demo", "modified": {"gamma": [0.99, 0.9]}, "label": "own", "seed": 3}
    telemetry = Telemetry.open(
        tmp_path, header, 100, 0, config={"tau": 0.01, "tasks": ("reach",)}, stream=io.StringIO()
    )

    def train() -> None:
        with telemetry:
            telemetry.train(10, {"loss/critic": 0.5})
            telemetry.evaluation(10, {"success/mean": 0.5})
            telemetry.checkpoint(20, "checkpoints/step-000000000020", 100, 0.5)
            raise RuntimeError("training failed")

    with pytest.raises(RuntimeError):
        train()
    record = run_record(tmp_path)
    config = {item.key: json.loads(item.value_json) for item in record.config.update}
    wanted = {
        "recipe": "local-demo",
        "modified": {"gamma": [0.99, 0.9]},
        "seed": 3,
        "tau": 0.01,
        "tasks": ["reach"],
    }
    assert config.items() >= (wanted | {"profile": {"name": "a40-2m", "gpu": "a40"}}).items()
    assert "env" not in config
    assert list(record.tags) == ["local-demo", "own", "modified"]
    assert record.display_name == tmp_path.name
    first, *others = rows(tmp_path)
    assert first.pop("train/memory/rss_bytes") > 10_000_000
    first.pop("train/cpu/share", None)  # not told in the first quarter of a second
    assert [first, *others] == [
        {"_step": 10, "env_steps": 10, "train/loss/critic": 0.5, "eval/success/mean": 0.5},
        {"_step": 20, "env_steps": 20, "checkpoint/bytes": 100, "checkpoint/seconds": 0.5},
    ]
    assert exit_codes(tmp_path) == [1]


def test_several_runs_of_a_process_are_apart_and_end_by_themselves(tmp_path: Path) -> None:
    folders = [tmp_path / f"seed-{seed}" for seed in (1, 2, 3)]
    runs = [opened(folder) for folder in folders[:2]]
    for step in (0, 10):
        for number, run in enumerate(runs):
            run.log(step, {"seed": number + 1})
    runs[0].finish(0)
    runs.append(opened(folders[2]))  # also after one has ended
    for step in (20, 30):
        for number, run in enumerate(runs[1:], 1):
            run.log(step, {"seed": number + 1})
    runs[2].finish(1)
    runs[1].finish(85)
    assert [[(row["_step"], row["seed"]) for row in rows(folder)] for folder in folders] == [
        [(0, 1), (10, 1)],
        [(0, 2), (10, 2), (20, 2), (30, 2)],
        [(20, 3), (30, 3)],
    ]
    assert [exit_codes(folder) for folder in folders] == [[0], [85], [1]]
    assert len({run.id for run in runs}) == 3


@pytest.mark.needs("procfs")
def test_a_dead_client_is_told_by_each_run_it_served(tmp_path: Path) -> None:
    before = helpers()
    runs = [opened(tmp_path / name) for name in ("a", "b")]
    (helper,) = helpers() - before
    os.kill(helper, signal.SIGKILL)
    os.waitpid(helper, 0)
    for run in runs:
        with pytest.raises(WandbLostError, match="could not close"):
            run.finish(0)
    run = opened(tmp_path / "c")
    run.log(0, {"seed": 3})
    run.finish(0)
    assert len(rows(tmp_path / "c")) == 1
