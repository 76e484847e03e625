from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.waiting import until
from trainer.telemetry import Telemetry
from trainer.telemetry.heartbeat import Heartbeat, RecentRate
from trainer.telemetry.metrics import Metrics
from trainer.telemetry.progress import Lines, ProgressBar, SharedProgress, open_progress

HEADER = {"recipe": "local-demo", "modified": {}, "tasks": ["reach-v3"], "seed": 0, "total_steps": 100}
HEARTBEAT_KEYS = {
    *("schema", "time", "attempt", "step", "total_steps", "steps_per_second", "updates", "phase", "success"),
    *("return", "checkpoint", "rss_bytes", "cpu_share", "gpu"),
}


def opened(run_dir: Path, attempt: int = 0, **options: Any) -> Telemetry:
    return Telemetry.open(run_dir, HEADER, 100, attempt, "disabled", stream=io.StringIO(), **options)


def lines_of(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def heartbeat_of(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_dir / "heartbeat.json").read_text())
    return content


def test_a_run_as_the_contract_has_it(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as telemetry:
        telemetry.heartbeat(step=10, updates=1, phase="train")
        with telemetry.clock("learn"):
            time.sleep(0.001)
        telemetry.train(10, {"loss/critic": 0.5, "alpha/reach-v3": float("nan"), "return/mean": 2.5})
        telemetry.evaluation(20, {"success/mean": 0.75, "success/reach-v3": 0.75, "episodes": 4})
        telemetry.checkpoint(20, Path("checkpoints/step-000000000020"), 1000, 0.25)
        telemetry.event(30, "a warning")
        telemetry.heartbeat(step=100, phase="done")
    lines = lines_of(tmp_path / "run")
    assert [(line["kind"], line["step"], line["attempt"]) for line in lines] == [
        ("run", 0, 0),
        ("train", 10, 0),
        ("eval", 20, 0),
        ("checkpoint", 20, 0),
        ("event", 30, 0),
    ]
    assert all(abs(line["time"] - time.time()) < 60 for line in lines)
    assert lines[0].items() >= HEADER.items()
    assert lines[1]["alpha/reach-v3"] is None
    assert lines[1]["time/learn"] + lines[1]["time/other"] == pytest.approx(1)
    assert lines[1]["memory/rss_bytes"] > 10_000_000
    assert not [key for key in lines[1] if key.startswith("gpu/")]
    assert lines[2]["success/mean"] == 0.75
    assert (
        lines[3].items() >= {"path": "checkpoints/step-000000000020", "bytes": 1000, "seconds": 0.25}.items()
    )
    assert lines[4]["message"] == "a warning"
    heartbeat = heartbeat_of(tmp_path / "run")
    assert heartbeat.keys() == HEARTBEAT_KEYS
    facts = {"schema": 1, "step": 100, "total_steps": 100, "updates": 1, "phase": "done", "success": 0.75}
    facts |= {"return": 2.5, "checkpoint": "checkpoints/step-000000000020", "attempt": 0, "gpu": None}
    assert heartbeat.items() >= facts.items()
    assert heartbeat["rss_bytes"] > 10_000_000
    assert ((tmp_path / "run").stat().st_mode & 0o777) == 0o700


def test_a_second_attempt_adds_to_the_first(tmp_path: Path) -> None:
    with opened(tmp_path) as telemetry:
        telemetry.train(50, {})
    with opened(tmp_path, attempt=1, step=40) as telemetry:
        assert heartbeat_of(tmp_path).keys() == HEARTBEAT_KEYS
        telemetry.train(50, {})
    assert [(line["kind"], line["step"], line["attempt"]) for line in lines_of(tmp_path)] == [
        ("run", 0, 0),
        ("train", 50, 0),
        ("run", 40, 1),
        ("train", 50, 1),
    ]
    assert heartbeat_of(tmp_path).items() >= {"attempt": 1, "step": 40}.items()


def test_metrics_refuse_what_would_confuse_a_reader(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", 0)
    with pytest.raises(ValueError, match="kind 'evaluation'"):
        metrics.write("evaluation", 0, {})
    with pytest.raises(ValueError, match=r"\['step'\] are the line's own"):
        metrics.write("train", 0, {"step": 3})
    metrics.close()
    metrics.close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_lines_of_two_processes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    code = """
import sys
from pathlib import Path
from trainer.telemetry.metrics import Metrics
metrics = Metrics(Path(sys.argv[1]), 0)
print("open", flush=True)
input()
for number in range(300):
    metrics.write("event", number, {"who": sys.argv[2], "filler": "x" * 5000})
metrics.close()
"""
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, path, who], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        for who in "ab"
    ]
    for writer in writers:
        # Both are open before either writes: a line in the making looks torn to who opens the file just then.
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        assert writer.communicate()[1] == ""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for who in "ab":
        assert [row["step"] for row in rows if row["who"] == who] == list(range(300))


def test_the_torn_line_of_a_dead_attempt_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"ste')
    for step in (2, 3):
        metrics = Metrics(path, 0)
        metrics.write("event", step, {})
        metrics.close()
    assert path.read_text().endswith("\n")
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"step": 1}', '{"ste']
    assert [json.loads(line)["step"] for line in lines[2:]] == [2, 3]


def test_the_heartbeat_is_written_no_more_often_than_said(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat.json"
    heartbeat = Heartbeat(path, 0, 100, interval=3600)
    until(path.exists)
    first = path.stat().st_ino
    for step in range(1000):
        heartbeat.update(step=step)
    assert path.stat().st_ino == first
    assert json.loads(path.read_text())["step"] == 0
    heartbeat.close("done")
    assert json.loads(path.read_text()).items() >= {"step": 999, "phase": "done"}.items()


def test_the_heartbeat_follows_and_then_rests(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat.json"
    heartbeat = Heartbeat(path, 0, 100, interval=0.01)
    for step in (1, 2, 3):
        heartbeat.update(step=step)
        until(lambda step=step: path.exists() and json.loads(path.read_text())["step"] == step)
    # A program that hangs must look as old as it is: nothing is written without an update.
    resting = path.stat().st_ino
    time.sleep(0.1)
    assert path.stat().st_ino == resting
    heartbeat.close()


def test_the_rate_is_of_the_last_while_without_start_and_warm_up() -> None:
    rate = RecentRate(0)
    for second in range(120):
        rate.update(second, 0, "start")
    for second in range(120, 125):
        rate.update(second, (second - 119) * 900, "warmup")
    for second in range(125, 129):
        assert (rate.steps_per_second or 900) == 900, "of the warm-up, or none yet"
        rate.update(second, 4500 + (second - 124) * 100, "train")
    assert rate.steps_per_second == pytest.approx(100)
    for second in range(129, 200):
        rate.update(second, 4900 + (second - 128) * 200, "train")
    assert rate.steps_per_second == pytest.approx(200)
    rate.update(200, 1000, "train")
    assert rate.steps_per_second is None, "it went back to a checkpoint"


def test_the_heartbeat_has_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("trainer.telemetry.heartbeat.time.monotonic", lambda: now)
    heartbeat = Heartbeat(tmp_path / "heartbeat.json", 1, 10**6, step=5000, interval=3600)
    for second in range(60):
        now = 1000.0 + second
        heartbeat.update(step=5000 + second * 10, phase="train")
    assert heartbeat.steps_per_second == pytest.approx(10)
    heartbeat.close()


def test_an_unknown_fact_is_refused(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path / "heartbeat.json", 0, 100)
    with pytest.raises(KeyError):
        heartbeat.update(steps=3)
    heartbeat.close()


def test_a_heartbeat_that_cannot_be_written_is_an_event_and_no_end(tmp_path: Path) -> None:
    (tmp_path / "heartbeat.json" / "occupied").mkdir(parents=True)
    telemetry = opened(tmp_path)

    def reported() -> bool:
        telemetry.heartbeat(step=1)
        return any("heartbeat could not be written" in line.get("message", "") for line in lines_of(tmp_path))

    until(reported)
    with pytest.raises(OSError, match="directory"):
        telemetry.close()
    # All else was closed nevertheless.
    assert not [thread.name for thread in threading.enumerate() if thread.name == "heartbeat"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_everything_is_closed_when_training_fails(tmp_path: Path, error: type[BaseException]) -> None:
    telemetry = opened(tmp_path)

    def train() -> None:
        with telemetry:
            telemetry.heartbeat(step=7, phase="train")
            raise error

    with pytest.raises(error):
        train()
    assert heartbeat_of(tmp_path)["step"] == 7
    assert not [thread.name for thread in threading.enumerate() if thread.name == "heartbeat"]
    telemetry.close()


def test_an_unknown_wandb_mode_leaves_nothing_running(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'perhaps'"):
        Telemetry.open(tmp_path, HEADER, 100, 0, "perhaps", stream=io.StringIO())
    assert not [thread.name for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_lines_for_a_log_file() -> None:
    stream = io.StringIO()
    lines = Lines(1000, stream, seconds=3600)
    lines.update(0, "train", 50.0, None)
    assert lines.due == pytest.approx(time.monotonic() + 3600, abs=60)
    lines.update(300, "evaluate", 50.0, 0.5)
    lines.say("a checkpoint was written")
    lines.close()
    assert stream.getvalue().splitlines() == [
        "[train]   0.0% 0/1,000 steps | 50/s | 0:00:20 left",
        "[evaluate]  30.0% 300/1,000 steps | 50/s | 0:00:14 left | success 50%",
        "a checkpoint was written",
    ]


@pytest.mark.parametrize("known", [False, True], ids=["news at the end", "no news"])
def test_progress_is_shown_at_the_start_when_due_at_a_new_phase_and_at_the_end(
    tmp_path: Path, known: bool
) -> None:
    stream = io.StringIO()
    telemetry = Telemetry.open(tmp_path, HEADER, 1000, 0, "disabled", stream=stream)
    for step in range(0, 300, 100):
        telemetry.heartbeat(step=step, phase="train")
    telemetry.progress.due = 0.0
    telemetry.heartbeat(step=300)
    telemetry.heartbeat(step=400, phase="evaluate", success=0.5)
    if not known:
        telemetry.heartbeat(step=500, phase="evaluate")
    telemetry.close()
    last = [] if known else ["[evaluate]  50.0% 500/1,000 steps | success 50%"]
    assert stream.getvalue().splitlines() == [
        "[train]   0.0% 0/1,000 steps",
        "[train]  30.0% 300/1,000 steps",
        "[evaluate]  40.0% 400/1,000 steps | success 50%",
        *last,
    ]


def test_runs_that_share_a_stream_label_their_lines() -> None:
    stream = io.StringIO()
    shared = SharedProgress(stream)
    runs = [shared.of(f"seed {seed}:")(1000) for seed in (1, 2)]
    runs[1].update(100, "train", None, None)
    runs[0].say("resumed")
    assert stream.getvalue() == "seed 2: [train]  10.0% 100/1,000 steps\nseed 1: resumed\n"


@contextlib.contextmanager
def terminal() -> Iterator[tuple[TextIO, bytearray]]:
    """A terminal, and what it has shown once it is closed."""
    parent, child = pty.openpty()
    raw = bytearray()

    def read() -> None:
        # Linux ends the stream of a terminal that was closed with an error, others with nothing.
        with contextlib.suppress(OSError):
            while piece := os.read(parent, 4096):
                raw.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(child, "w") as stream:
        yield stream, raw
    reader.join()
    os.close(parent)


def test_bars_for_a_terminal_have_a_line_for_each_run() -> None:
    with terminal() as (stream, raw):
        shared = SharedProgress(stream)
        bars = [shared.of(f"seed {seed}:")(1000) for seed in (1, 2)]
        for number, bar in enumerate(bars, 1):
            assert isinstance(bar, ProgressBar)
            bar.update(number * 250, "train", 50.0, 0.5)
        bars[0].close()
        bars[1].say("[bold]a line that stays")
        bars[1].close()
    last = raw.decode().rsplit("a line that stays", 1)[1]
    assert "seed 1: train" in last
    assert "seed 2: train" in last
    assert "seed 2: [bold]a line that stays" in raw.decode()
    assert "500/1,000 steps | 50/s | 0:00:10 left | success 50%" in last


def test_a_file_is_no_terminal() -> None:
    assert isinstance(open_progress(1000, stream=io.StringIO()), Lines)


def test_evaluations_are_shown(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Telemetry.open(tmp_path, HEADER, 100, 0, "disabled", stream=stream) as telemetry:
        telemetry.evaluation(
            50, {"success/mean": 0.5, "success/reach-v3": 1.0, "success/push-v3": 0.0, "episodes": 2}
        )
    assert "evaluation at 50 steps: success 50.0% (reach 100%, push 0%)" in stream.getvalue()
