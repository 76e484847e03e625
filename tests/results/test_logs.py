"""Logs of programs in their own formats: one series, whatever wrote them and however they arrive."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.results.growing import GrowingRun, read_logs
from clusterkit.results.logs import run_logs
from clusterkit.results.logs.find import choose
from clusterkit.results.logs.format import MOST_COLUMNS
from clusterkit.results.logs.kept import KeptRows
from clusterkit.results.logs.run_logs import RunLogs, fault_words, read_run
from clusterkit.results.logs.tfevents import masked_crc
from clusterkit.results.logs.wandb import HEADER, write
from clusterkit.results.metrics import MetricRow, own_names
from clusterkit.results.series import series
from clusterkit.transport.local import LocalTransport

START = 1_700_000_000.0


def logs_of(files: dict[str, bytes | str], **options: Any) -> RunLogs:
    logs = RunLogs(**options)
    for path, data in files.items():
        logs.feed(path, data.encode() if isinstance(data, str) else data)
    return logs


def curves(logs: RunLogs) -> dict[str, list[tuple[int, float]]]:
    rows = logs.rows
    return {name: series(rows, name).finite for name in own_names(rows)}


def event(step: int, tag: str, value: float, time: float = START) -> bytes:
    """A record of an event file, as TensorFlow 1 and PyTorch write a scalar."""
    named = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(named)]) + named
    data = (
        b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + b"\x2a" + varint(len(summary)) + summary
    )
    return record(data)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def wandb_log(rows: Iterable[dict[str, Any]], folder: Path) -> bytes:
    """A log with a history of these rows, as the wandb client frames it."""

    def field(number: int, data: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(data)) + data

    records = []
    for row in rows:
        items = [
            field(2, name.encode()) + field(16, json.dumps(value).encode()) for name, value in row.items()
        ]
        records.append(field(2, b"".join(field(1, item) for item in items)))
    path = folder / "run.wandb"
    with path.open("wb") as file:
        write(file, records)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "logs/progress.csv",
            "rollout/ep_rew_mean,time/iterations,time/total_timesteps\n1.5,1,2048\n2.5,2,4096\n",
            {"rollout/ep_rew_mean": [(2048, 1.5), (4096, 2.5)], "time/iterations": [(2048, 1), (4096, 2)]},
        ),
        (
            "lightning_logs/version_0/metrics.csv",
            "epoch,step,train_loss,val_loss\n0,9,0.5,\n0,9,,0.75\n1,19,0.25,\n",
            {"train_loss": [(9, 0.5), (19, 0.25)], "val_loss": [(9, 0.75)], "epoch": [(9, 0), (19, 1)]},
        ),
        ("log.csv", "epoch,loss\r\n0,nan\r\n1,0.5\r\n", {"loss": [(1, 0.5)]}),
        ("data.tsv", "Steps\tfoo bar\n10\t1e-3\n", {"foo bar": [(10, 1e-3)]}),
        ("out.csv", "\ufeffIteration;x\n1;0,5\n2;1,5\n", {"x": [(1, 0.5), (2, 1.5)]}),
        ("results.csv", "1,0.5\n2,0.25\n", {"c0": [(0, 1), (1, 2)], "c1": [(0, 0.5), (1, 0.25)]}),
        ("a.csv", 'step,"a, b"\n1,"3"\n2\n3,4,5\nstep,x\n4,6\n5,1_0', {"a, b": [(1, 3)], "x": [(4, 6)]}),
        ("a.tsv", 'step\t"a, b, c"\tx, y\n1\t2\t3\n', {"a, b, c": [(1, 2)], "x, y": [(1, 3)]}),
        ("log.csv", "1,5;2,5\n3,5;4,5\n", {"c0": [(0, 1.5), (1, 3.5)], "c1": [(0, 2.5), (1, 4.5)]}),
        (
            "a.csv",
            "step,loss\n1,2\nstep,acc\n3,4\nstep,loss,acc\n5,6,7\n",
            {"loss": [(1, 2), (5, 6)], "acc": [(3, 4), (5, 7)]},
        ),
        ("log.csv", "x\n1\nx\n2\n", {"x": [(0, 1), (1, 2)]}),
        ("a.csv", "step,x\n-1,1\n0,2\n", {"x": [(-1, 1), (0, 2)]}),
        ("a.csv", "step,x,x,x\n1,2,3,4\n", {"x": [(1, 2)], "x.2": [(1, 3)], "x.3": [(1, 4)]}),
        ("a.csv", "step,x\n1,2,\n,3\n2,4,5\n", {"x": [(1, 2)]}),
        ("a.csv", "# step, x\n1,2\n3,4\n", {"x": [(1, 2), (3, 4)]}),
        (
            "train.jsonl",
            '{"loss": 1, "n": {"a": 2}}\nx\n{"loss": 3, "ok": true}',
            {"loss": [(0, 1), (1, 3)], "n/a": [(0, 2)]},
        ),
        ("iris.csv", "sepal,petal\n1,2\n", {}),
        ("checkpoints/log.csv", "step,x\n1,2\n", None),
        ("work/wandb/run-1-a/files/log.csv", "step,x\n1,2\n", None),
    ],
)
def test_a_file_of_text_is_read_as_it_is(
    name: str, text: str, wanted: dict[str, Any] | None, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(text.encode())
    logs = read_run(tmp_path, own=True)
    assert (curves(logs), logs.faults) == (wanted or {}, {})
    assert (logs.paths == []) == (wanted is None)
    assert read_run(tmp_path, own=False).rows == ()


def test_the_asked_for_column_holds_the_steps() -> None:
    assert curves(logs_of({"a.csv": "step,n,x\n1,100,5\n"}, step="n")) == {
        "step": [(100, 1)],
        "x": [(100, 5)],
    }


def test_monitors_of_several_environments_are_one_curve_over_all_their_steps() -> None:
    head = f'#{{"t_start": {START}, "env_id": "CartPole-v1"}}\nr,l,t\n'
    logs = logs_of({"m/0.monitor.csv": f"{head}5,10,1.0\n6,10,3.0\n", "m/1.monitor.csv": f"{head}7,20,2.0\n"})
    assert curves(logs) == {
        "r": [(10, 5), (30, 7), (40, 6)],
        "l": [(10, 10), (30, 20), (40, 10)],
        "t": [(10, 1), (30, 2), (40, 3)],
    }
    assert [row.time - START for row in logs.rows] == [1, 2, 3]


@pytest.mark.slow
def test_an_event_file_has_what_tensorboard_itself_reads(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    zeros = pytest.importorskip("torch").zeros
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "runs/x")) as writer:
        writer.add_text("hyperparameters", "|a|b|")
        for step in range(50):
            writer.add_scalar("charts/return", math.sin(step), step * 10)
            writer.add_scalar("loss", 1 / (step + 1), step * 10, new_style=True)
            writer.add_scalar("double", step / 3, -step, new_style=True, double_precision=True)
        writer.add_histogram("weights", zeros(100_000), 1)
        writer.add_image("image", zeros(3, 200, 200), 1)
    theirs = EventAccumulator(str(tmp_path / "runs/x"), size_guidance={"tensors": 0, "scalars": 0})
    theirs.Reload()
    ours = read_run(tmp_path, own=True)
    assert own_names(ours.rows) == ["charts/return", "loss", "double"]
    plain = [(item.step, item.value, item.wall_time) for item in theirs.Scalars("charts/return")]
    assert [
        (row.step, row.values["charts/return"], row.time)
        for row in ours.rows
        if "charts/return" in row.values
    ] == plain
    for name in ("loss", "double"):
        tensors = theirs.Tensors(name)
        values = [
            item.tensor_proto.float_val or item.tensor_proto.double_val or item.tensor_proto.tensor_content
            for item in tensors
        ]
        assert len(values) == 50 == len([row for row in ours.rows if name in row.values])
    assert series(ours.rows, "loss").finite[-1] == (490, pytest.approx(1 / 50))
    assert series(ours.rows, "double").finite[0] == (-49, pytest.approx(49 / 3))
    assert ours.faults == {}


def test_a_history_of_wandb_has_its_numbers(tmp_path: Path) -> None:
    rows = [
        {
            "_step": 0,
            "_timestamp": START,
            "_runtime": 1,
            "loss": 0.5,
            "text": "x",
            "image": {"_type": "image-file", "size": 3},
        },
        {"_step": 1, "_timestamp": START + 1, "loss": float("nan"), "eval": {"acc": 0.25}},
    ]
    logs = logs_of({"work/wandb/offline-run-1-a/run-a.wandb": wandb_log(rows, tmp_path)})
    assert curves(logs) == {"loss": [(0, 0.5)], "eval/acc": [(1, 0.25)]}
    assert [row.time for row in logs.rows] == [START, START + 1]


def test_one_number_in_several_formats_is_there_once(tmp_path: Path) -> None:
    both = {"_step": 5, "global_step": 10, "loss": 3.0, "own": 4.0}
    files = {
        "metrics.jsonl": '{"kind": "train", "step": 10, "reward": 1.0}\n',
        "work/progress.csv": "step,reward,loss,acc\n10,1.0,3.0,0.5\n",
        "work/events.out.tfevents.1.x.1.0": event(10, "loss", 3.0) + event(10, "reward", 1.0),
        "work/wandb/run-1-a/run-a.wandb": wandb_log([both], tmp_path),
    }
    logs = logs_of(files)
    assert curves(logs) == {
        "reward": [(10, 1.0)],
        "loss": [(10, 3.0)],
        "own": [(10, 4.0)],
        "acc": [(10, 0.5)],
    }
    assert (
        sum("reward" in row.values for row in logs.rows)
        == sum("loss" in row.values for row in logs.rows)
        == 1
    )


def test_a_number_that_is_there_once_hides_no_curve() -> None:
    text = "step,loss\n1,2\n2,3\n"
    assert curves(logs_of({"end.jsonl": '{"loss": 3}\n', "a.csv": text})) == {"loss": [(1, 2), (2, 3)]}


def test_names_have_the_folder_only_where_they_collide() -> None:
    files = {
        "work/keras/train/events.out.tfevents.1": event(1, "loss", 1.0) + event(1, "lr", 0.5),
        "work/keras/validation/events.out.tfevents.1": event(1, "loss", 2.0),
        "work/a/eval.csv": "step,x\n1,2\n",
        "work/b/eval.csv": "step,x\n1,3\n",
    }
    assert curves(logs_of(files)) == {
        "train/loss": [(1, 1.0)],
        "lr": [(1, 0.5)],
        "validation/loss": [(1, 2.0)],
        "a/x": [(1, 2.0)],
        "b/x": [(1, 3.0)],
    }


def start(number: int, time: float) -> dict[str, str]:
    return {f"attempts/{number}/start.json": json.dumps({"started": time})}


def test_a_later_attempt_overtakes_in_every_format() -> None:
    times = start(0, START) | start(1, START + 100)
    first = event(10, "loss", 1.0, START + 1) + event(30, "loss", 2.0, START + 2)
    again = event(20, "loss", 3.0, START + 101)
    folders = {"work/runs/a/events.out.tfevents.1": first, "work/runs/b/events.out.tfevents.2": again}
    assert curves(logs_of(times | folders)) == {"loss": [(10, 1.0), (20, 3.0)]}
    same = {"work/events.out.tfevents.1": first, "work/events.out.tfevents.2": again}
    assert curves(logs_of(times | same)) == {"loss": [(10, 1.0), (20, 3.0)]}
    text = "step,loss\n10,1\n30,2\n20,3\n"
    assert curves(logs_of(times | {"a.csv": text})) == {"loss": [(10, 1.0), (20, 3.0)]}


def test_steps_that_begin_anew_in_one_attempt_go_on_counting() -> None:
    text = "step,loss\n0,1\n1,2\n2,3\n0,4\n1,5\n2,6\n"
    assert curves(logs_of(start(0, START) | {"a.csv": text})) == {
        "loss": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    }


def test_numbers_counted_in_another_unit_do_not_begin_anew() -> None:
    lines = [f'{{"step": {n * 100}, "loss": 1}}\n{{"episode": {n}, "return": 2}}\n' for n in range(1, 4)]
    assert curves(logs_of(start(0, START) | {"a.jsonl": "".join(lines)})) == {
        "loss": [(100, 1), (200, 1), (300, 1)],
        "return": [(1, 2), (2, 2), (3, 2)],
    }


def test_the_starts_of_attempts_are_read_however_many_logs_there_are() -> None:
    logs, starts = [[name.format(n) for n in range(205)] for name in ("a/{}.csv", "attempts/{}/start.json")]
    assert choose([*starts, *logs]) == ([*sorted(logs)[:200], *starts[5:]], 5)


FILES: dict[str, Callable[[Path], bytes]] = {
    "metrics.jsonl": lambda _: b"".join(b'{"kind": "train", "step": %d, "a": 1}\n' % n for n in range(30)),
    "x/progress.csv": lambda _: b"step,a\n" + b"".join(b"%d,0.5\n" % n for n in range(30)),
    "x/events.out.tfevents.7": lambda _: (
        b"".join(event(n, "a", n / 2) for n in range(30)) + record(b"x" * 70_000) + event(31, "a", 1.0)
    ),
    "x/run-a.wandb": lambda folder: wandb_log(
        [{"_step": n, "a": n, "t": "y" * 2000} for n in range(40)], folder
    ),
}


@pytest.mark.parametrize("path", FILES)
@given(cuts=st.lists(st.integers(0, 90_000), max_size=8))
def test_bytes_may_arrive_in_any_pieces(
    path: str, tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    data = FILES[path](tmp_path_factory.getbasetemp())
    whole, pieces = logs_of({path: data}), RunLogs()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for begin, end in pairwise(ends):
        pieces.feed(path, data[begin:end])
    assert len(whole.rows) >= 30
    assert pieces.rows == whole.rows
    assert pieces.faults == whole.faults == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["metrics.jsonl", "a/log.csv", "a.tfevents.1", "run-a.wandb", "a/0.monitor.csv"]
)
@given(
    data=st.binary(max_size=400),
    text=st.text(st.sampled_from("step,;\t\n\r\"#{}:[]-1eE.naif'r l"), max_size=300),
)
def test_any_bytes_are_read_or_refused(path: str, data: bytes, text: str) -> None:
    good = event(1, "a", 1.0) if "tfevents" in path else HEADER if "wandb" in path else b""
    for content in (data, text.encode(), good + data, good + text.encode()):
        logs = logs_of({path: content})
        assert all(isinstance(row, MetricRow) and -(10**18) <= row.step <= 10**18 for row in logs.rows)
        curves(logs)


def test_an_event_may_leave_out_what_is_zero() -> None:
    named = b"\x0a\x01a\x15" + struct.pack("<f", 2.5)
    summary = b"\x0a" + bytes([len(named)]) + named
    logs = logs_of({"a.tfevents.1": record(b"\x2a" + bytes([len(summary)]) + summary)})
    assert logs.rows == (MetricRow("log", 0, 0.0, 0, {"a": 2.5}),)


def test_a_damaged_event_file_is_read_to_the_damage_and_named() -> None:
    data = event(1, "a", 1.0) + event(2, "a", 2.0)
    wrong = bytearray(data + event(3, "a", 3.0))
    wrong[len(data) + 20] ^= 1
    lying = struct.pack("<Q", 1 << 60)
    for bad in (bytes(wrong), data + lying + b"0000" + data, data + bytes(5000)):
        logs = logs_of({"a.tfevents.1": bad})
        assert curves(logs) == {"a": [(1, 1.0), (2, 2.0)]}
        assert [line.partition(": ")[0] for line in fault_words(logs.faults)] == [
            "a.tfevents.1 is not read to its end"
        ]
    huge = logs_of({"a.tfevents.1": data + lying + struct.pack("<I", masked_crc(lying)) + data * 100})
    assert curves(huge) == {
        "a": [(1, 1.0), (2, 2.0)]
    }  # it waits for a record that never ends, and keeps none of it


def test_hostile_files_are_bounded_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_logs, "MOST_NAMES", 50)
    wide = ",".join(["step", *map(str, range(MOST_COLUMNS))])
    logs = logs_of({"wide.csv": wide + "\n", "e\x1b[31m.csv": "step,a\n" + "1" * (1 << 20) + "\n1,2"})
    assert fault_words(logs.faults) == [
        "wide.csv is not read to its end: it has 1,001 columns, more than 1,000"
    ]
    odd = "step,good,\x1b[31mred,\u202eside," + "n" * 300 + "\n1,2,3,4,5\n"
    assert curves(logs_of({"odd.csv": odd})) == {"good": [(1, 2)]}
    many = logs_of({"a.jsonl": "".join(f'{{"step": {n}, "m{n}": 1}}\n' for n in range(100))})
    assert len(own_names(many.rows)) == 50
    assert fault_words(many.faults) == [
        "a.jsonl is not read to its end: the logs have more than 50 names of numbers"
    ]
    deep = logs_of({"a.jsonl": "[" * 100_000 + "\n" + '{"a":' * 50_000 + "\n" + '{"step": 1, "a": 2}\n'})
    assert curves(deep) == {"a": [(1, 2)]}
    named = {f"\x1b]0;{n}": "why" for n in range(8)}
    assert all(line.isprintable() for line in fault_words(named))
    assert fault_words(named)[-1] == "and 3 more log files"


def test_a_row_of_many_short_numbers_counts_for_what_it_takes_in_memory() -> None:
    kept = KeptRows(budget=50_000)
    for step in range(100):
        kept.add("a.csv", MetricRow("log", step, 0.0, 0, {str(n): 0.0 for n in range(100)}), size=200)
    assert 10 < len(kept.rows("a.csv")) < 40


def test_no_more_bytes_are_read_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_logs, "MOST_BYTES", 100)
    logs = logs_of({"a.csv": "step,x\n" + "".join(f"{n},1\n" for n in range(100)), "b.csv": "step,y\n1,2\n"})
    assert logs.closed("a.csv")
    assert 10 < len(logs.rows) < 30
    assert list(logs.faults) == ["a.csv", "b.csv"]


@pytest.mark.parametrize(("why", "rows"), [("completed", 2), ("timeout", 1)])
def test_the_last_line_may_lack_its_end_if_the_program_came_to_its_own(
    why: str, rows: int, tmp_path: Path
) -> None:
    for number, said in ((9, "requeue"), (10, why)):
        (tmp_path / f"attempts/{number}").mkdir(parents=True)
        for name in ("start", "exit"):
            (tmp_path / f"attempts/{number}/{name}.json").write_text(json.dumps({"started": 1, "why": said}))
    (tmp_path / "a.csv").write_text("step,a\n1,2\n2,3")
    assert len(read_run(tmp_path, own=True).rows) == rows


def test_links_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "run/work").mkdir(parents=True)
    (tmp_path / "secret.csv").write_text("step,secret\n1,2\n")
    (tmp_path / "run/work/link.csv").symlink_to(tmp_path / "secret.csv")
    (tmp_path / "run/loop").symlink_to(tmp_path / "run")
    os.mkfifo(tmp_path / "run/work/pipe.csv")
    (tmp_path / "run/work/log.csv").mkdir()
    with (tmp_path / "run/work/sparse.csv").open("wb") as sparse:
        sparse.truncate(1 << 40)
    logs = read_run(tmp_path / "run", own=True)
    assert logs.rows == ()
    assert fault_words(logs.faults) == ["work/sparse.csv is not read to its end: it has no line ends"]


def test_files_of_a_running_run_are_found_followed_and_read_anew_when_rewritten(tmp_path: Path) -> None:
    folder = tmp_path / "run-1"
    (folder / "work").mkdir(parents=True)
    run = GrowingRun(str(folder), RunLogs(), own=True)

    def look(*, find: bool) -> dict[str, list[tuple[int, float]]]:
        read_logs(LocalTransport(), [run], find=find)
        return curves(run.logs)

    assert look(find=True) == {}
    log = folder / "work/progress.csv"
    log.write_text("step,a\n1,2\n2,")
    assert look(find=False) == {}
    assert look(find=True) == {"a": [(1, 2)]}
    with log.open("a") as more:
        more.write("3\n")
    events = folder / "work/x y/events.out.tfevents.1"
    events.parent.mkdir()
    events.write_bytes(event(1, "b", 1.0))
    assert look(find=True) == {"a": [(1, 2), (2, 3)], "b": [(1, 1.0)]}
    log.write_text("step,a,c\n1,2,7\n2,3,8\n3,4,9\n")  # as Stable-Baselines3 does for a new column
    assert look(find=False) == {"a": [(1, 2), (2, 3), (3, 4)], "b": [(1, 1.0)], "c": [(1, 7), (2, 8), (3, 9)]}
    log.write_text("step,a\n")
    assert look(find=False) == {"b": [(1, 1.0)]}
    log.write_text("step,a\n5,5\n")
    assert look(find=False) == {"a": [(5, 5)], "b": [(1, 1.0)]}


def test_the_final_value_is_the_mean_of_the_last_tenth() -> None:
    rows = [
        MetricRow("log", step, 0.0, 0, {"a": float(step), "success/x": float(step)}) for step in range(101)
    ]
    assert series(rows, "a").final == (100, 95.0)
    assert series(rows, "success/x").final == (100, 100.0)
    assert series([*rows, MetricRow("log", 101, 0.0, 0, {"a": math.nan})], "a").final is None
    assert series(rows[:1], "a").final == (0, 0.0)
