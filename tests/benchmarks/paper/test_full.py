from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.gpu_runs import progress
from tests.benchmarks.paper import full_page, page, record, rows
from tests.benchmarks.paper.pieces import pieces, run_piece
from tests.benchmarks.paper.rows import ROWS, Row
from tests.benchmarks.paper.travel import coded, decoded, pack, unpack
from trainer.errors import CheckpointError

SMALL = {"tasks": ["reach"], "warmup_steps": 800}


def end(sha256: str = "a" * 64, **more: Any) -> dict[str, Any]:
    """The last piece of a run."""
    return {"device": "NVIDIA H200", "end": "done", "minutes": 3.4, "sha256": sha256, **more}


def entry(name: str, seed: int, last: float, steps: int | None = None, **more: Any) -> record.Run:
    """A run that has been evaluated twice; its last task is at a level, the others have been learnt."""
    row = ROWS[name]
    tasks = [task.removesuffix("-v3") for task in row.tasks]
    success = {task: [0.0, last if task == tasks[-1] else 1.0] for task in tasks}
    told = {"step": [row.steps // 2, steps or row.steps], "minutes": [31.0, 62.4], "success": success}
    return {
        "row": name,
        "seed": seed,
        "total_steps": row.steps,
        "evaluations": told,
        "pieces": [end(end="limit"), end()],
        **more,
    }


def test_the_table_says_where_each_run_ended_with_the_paper_beside_it_and_what_was_not_run() -> None:
    text = full_page.render([entry("guide-2m", 1, 0.5), entry("cpu-strong", 2, 0.2, 700_000)])
    lines = text.splitlines()
    assert "| `guide-2m` | 1 | 2,000,000 | 0.950 | window-close 0.50 | 62 | 2 | NVIDIA H200 |" in lines
    assert "| the paper, width 1,024 | 10 seeds | 20,000,000 | 0.870 |  |  |  |  |" in lines
    small = "| `cpu-strong` | 2 | 700,000 of 1,000,000 | 0.800 | 1.00 | 1.00 | 1.00 | 0.20 | 62 | 2 |"
    assert any(line.startswith(small) for line in lines), lines
    assert lines[-1].startswith("Not run: `guide-2m` (seed 2), `guide-2m-killed`, `strong-2m`")
    assert "`cpu-strong` (seed 1, 3)" in lines[-1]


@pytest.mark.parametrize(
    ("sha256", "words"), [("a" * 64, "the same parameters, to the bit, as"), ("b" * 64, "not the parameters")]
)
def test_a_killed_run_is_compared_with_the_one_that_was_left_alone(sha256: str, words: str) -> None:
    plain, killed = entry("guide-2m", 1, 0.5), entry("guide-2m-killed", 1, 0.5, pieces=[end(sha256)])
    assert words in full_page.render([plain, killed])
    unfinished = {**killed, "pieces": [end(sha256, end="limit")]}
    assert "to the bit" not in full_page.render([plain, unfinished])


def test_the_pictures_have_a_line_for_each_seed_and_one_for_their_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_page, "PICTURES", tmp_path)
    full_page.draw("4 tasks", [entry("cpu-strong", seed, 0.5) for seed in (1, 2)])
    text = (tmp_path / "paper-full-4-tasks.svg").read_text()
    bold, thin = "stroke: #3f9a4a; stroke-width: 2", "stroke: #3f9a4a; stroke-opacity: 0.5; stroke-width: 0.6"
    assert text.count(bold) == 7, "of mean, mean by minutes, four tasks; and in the legend"
    assert text.count(thin) == 12


def test_the_documentation_says_what_the_runs_give() -> None:
    assert page.part(full_page.NAME) == full_page.render(record.runs())


def test_the_clock_stands_still_between_pieces_and_lost_steps_are_told_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROWS, "small", Row("small", "local-demo", 300, 4, (1,), 3, "cpu", SMALL))
    run = tmp_path / "small-1"
    run.mkdir()
    head = {"kind": "run", "modified": {"tasks": [["MT10"], ["reach"]]}, "tasks": ["reach-v3"], "num_envs": 4}
    head |= {"precision": "fp32", "device": "a processor", "processors": 2, "versions": {"torch": "2"}}
    lines = [{**head, "step": 0, "time": 1000.0}]
    lines += [evaluated(100, 1060.0, 0.2), evaluated(200, 1100.0, 0.9)]
    lines += [{**head, "step": 100, "time": 5000.0}, evaluated(200, 5060.0, 0.4), evaluated(300, 5120.0, 0.6)]
    torn = '{"kind": "eval", "step": 25'
    (run / "metrics.jsonl").write_text(
        "\n".join([*map(json.dumps, lines[:3]), torn, *map(json.dumps, lines[3:])])
    )
    # the first was killed together with who ran it: its end is its last line
    told = [
        {"began": 1000.0, "commit": "c"},
        {"began": 4940.0, "ended": 5180.0, "code": 0, "step": 300, "commit": "c"},
    ]
    (run / "pieces.json").write_text(json.dumps(told))
    found = record.read_run(run)
    assert found["evaluations"]["step"] == [100, 200, 300]
    assert found["evaluations"]["success"] == {"reach": [0.2, 0.4, 0.6]}
    assert found["evaluations"]["minutes"] == [
        1.0,
        pytest.approx(100 / 60 + 2, abs=0.01),
        pytest.approx(100 / 60 + 3, abs=0.01),
    ]
    assert [(piece["from"], piece["end"], piece["minutes"]) for piece in found["pieces"]] == [
        (0, "open", 1.67),
        (100, "done", 4.0),
    ]


def evaluated(step: int, when: float, success: float) -> dict[str, Any]:
    """A line of metrics."""
    return {"kind": "eval", "step": step, "time": when, "episodes": 10, "success/reach-v3": success}


def test_of_one_run_from_two_places_the_longer_stays(tmp_path: Path) -> None:
    short, long = entry("guide-2m", 1, 0.5, pieces=[end()]), entry("guide-2m", 1, 0.7)
    for name, run in (("short", short), ("long", long), ("other", entry("cpu-strong", 1, 0.1))):
        (tmp_path / name).write_text(record.written([run]))
    results = tmp_path / "results"
    for order in (("other", "short", "long"), ("short",)):
        record.collect([tmp_path / name for name in order], results)
        assert record.runs(results) == [long, entry("cpu-strong", 1, 0.1)]


def test_coded_rows_come_back_to_the_bit_and_are_small_where_rows_are_alike() -> None:
    import zlib

    rng = np.random.default_rng(1)
    shown = np.cumsum(0.01 * rng.standard_normal((3000, 6)), 0).astype(np.float32)
    alike = np.concatenate([shown, np.roll(shown, 1, 0), np.full((3000, 2), np.float32(0.1))], 1)
    for table in (alike, rng.standard_normal((50, 3), np.float32), alike[:1]):
        words = table.view("<u4")
        assert np.array_equal(decoded(coded(words)), words)
    packed = len(zlib.compress(coded(alike.view("<u4"))))
    assert packed < 0.8 * len(zlib.compress(alike.tobytes()))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_was_killed_stopped_and_carried_elsewhere_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Row("small", "local-demo", 12_000, 4, (1,), 2, "cpu", SMALL)
    monkeypatch.setitem(rows.ROWS, "small", row)
    plain, here, there = (tmp_path / place / "small-1" for place in ("plain", "here", "there"))
    assert run_piece(row.command(1, plain), plain, 300, "c") == 0

    argv = row.command(1, here)
    assert run_piece(argv, here, 300, "c", kill_at=2_500) == -signal.SIGKILL
    pack(here, tmp_path / "first.zip")
    unpack(tmp_path / "first.zip", there)
    over = threading.Event()
    threading.Thread(target=stop_at, args=(here / "metrics.jsonl", 7_000, over)).start()
    try:
        with pytest.raises(SystemExit, match="85"):
            run_piece(argv, here, 300, "c", kill_at=2_500)
    finally:
        over.set()
    pack(here, tmp_path / "second.zip", after=tmp_path / "first.zip")
    with pytest.raises(CheckpointError, match="missing"):
        unpack(tmp_path / "second.zip", tmp_path / "elsewhere")
    unpack(tmp_path / "second.zip", there)
    assert run_piece(row.command(1, there), there, 300, "c", kill_at=2_500) == 0

    listed = pieces(there)
    assert [piece["code"] for piece in listed] == [-signal.SIGKILL, 85, 0]
    assert listed[-1]["sha256"] == pieces(plain)[-1]["sha256"]
    assert f"sha256 {listed[-1]['sha256']}" in (there / "metrics.jsonl").read_text()
    found, expected = record.read_run(there), record.read_run(plain)
    assert found["evaluations"]["success"] == expected["evaluations"]["success"]
    assert found["evaluations"]["step"] == [6_000, 12_000]


def stop_at(metrics: Path, step: int, over: threading.Event) -> None:
    """Ends this very process, as a scheduler would, once a run has come so far and is not over."""
    while not over.wait(0.05):
        if progress(metrics)["steps"] >= step:
            os.kill(os.getpid(), signal.SIGTERM)
            return
