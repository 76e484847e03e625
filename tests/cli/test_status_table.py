"""The tables of runs and of what a run uses on terminals of every width."""

from __future__ import annotations

import codecs
import io
from dataclasses import replace

import pytest
from rich.console import Console

from clusterkit.backends.jobs import JobState
from clusterkit.cli.streams import _DEGRADE, _degrade
from clusterkit.cli.top import view as top_view
from clusterkit.cli.ui.lines import plain_table, share_bar
from clusterkit.cli.ui.status import (
    Folded,
    _folded_cells,
    fold_groups,
    format_seeds,
    remarks,
    status_table,
    summary,
)
from clusterkit.interactive.inside import Inside
from clusterkit.probes.usage import Process, Usage
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.state import RunState
from clusterkit.runs.status import StatusRow

RUN = LedgerRun("", "datalab", "n", "p", "r", 1, "7", "2026-01-01T00:00:00Z", "/r", 2_000_000, "RUNNING")
OUTLOOK = "will hit the time limit at 83%, will be requeued"
STATES = [
    RunState(
        JobState.RUNNING,
        progress=0.3,
        steps_per_second=1234,
        eta_seconds=20_000,
        success=0.5,
        gpu=0.9,
        outlook=OUTLOOK,
    ),
    RunState(JobState.OUT_OF_MEMORY, why="it used more main memory than it requested", progress=0.2),
    RunState(JobState.PENDING, why="next in line", expected_start=9000.0, updated=0.0),
    RunState(JobState.PENDING, why="next in line"),
    RunState(JobState.PENDING, why="next in line"),
]


def rows(name: str) -> list[StatusRow]:
    return [StatusRow(replace(RUN, run_id=f"{name}-{number}"), state) for number, state in enumerate(STATES)]


def drawn(lines: list[StatusRow], width: int) -> tuple[str, bool]:
    table, beside = status_table(lines, width=width)
    screen = io.StringIO()
    Console(file=screen, width=width).print(table)
    return screen.getvalue(), beside


@pytest.mark.parametrize("width", [60, 80, 100, 130, 160, 220])
@pytest.mark.parametrize(
    "name", ["a40-2m-20260101-000001", "a-name-of-forty-letters-all-in-all-20260101-000001"]
)
def test_nothing_is_cut_off(name: str, width: int) -> None:
    text, beside = drawn(rows(name), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    heads = [line.split("  ")[0].strip() for line in text.splitlines()]
    assert f"{name}-4" in "".join(heads)
    assert "OUT_OF_MEMORY" in text
    assert "30% of 2M" in text
    assert beside is (OUTLOOK.split()[0] in text)


def test_there_is_more_on_a_wider_terminal() -> None:
    lines = rows("a40-2m-20260101-000001")
    narrow, medium, wide = (drawn(lines, width)[0].splitlines()[0].split() for width in (80, 110, 200))
    assert set(narrow) < set(medium) < set(wide)
    assert {"cluster", "gpu", "why", "starts"} <= set(wide)
    assert "━" in drawn(lines, 200)[0]


def test_a_run_s_id_stands_beside_its_short_name_where_there_is_room() -> None:
    lines = [StatusRow(replace(row.run, short="phd-7"), row.state) for row in rows("a-20260101-000001")]
    for width in (80, 220):
        head, first, *_ = drawn(lines, width)[0].splitlines()
        assert ("id" in head.split()) == (width == 220)
        assert first.split()[0] == "phd-7"


@pytest.mark.parametrize("width", [20, 30, 40])
def test_a_run_s_id_is_whole_on_the_narrowest_terminal(width: int) -> None:
    text, _ = drawn(rows("a40-2m-20260101-000001"), width)
    assert max(map(len, text.splitlines())) <= width
    assert "a40-2m-20260101-000001-4" in "".join(line.split("  ")[0].strip() for line in text.splitlines())


def seeded(*seeds: int, group: str = "g") -> list[StatusRow]:
    return [
        StatusRow(replace(RUN, run_id=f"{group}-{at}", group=group, seed=seed), STATES[3])
        for at, seed in enumerate(seeds)
    ]


def test_seeds_have_a_column_where_runs_of_a_group_differ_by_them() -> None:
    lines = drawn(seeded(7, 9), 120)[0].splitlines()
    assert [line.split()[1] for line in lines] == ["seed", "7", "9"]
    folded = drawn(fold_groups(seeded(1, 2, 3, 5, 8, 9)), 120)[0]  # type: ignore[arg-type]
    assert "g         1..3, 5, 8, 9  datalab" in folded


def test_seeds_have_no_column_where_they_say_nothing() -> None:
    assert "seed" not in drawn(seeded(4, 4), 120)[0]
    assert "seed" not in drawn([*seeded(1, group="g"), *seeded(2, group="h")], 120)[0]


def test_many_seeds_take_little_room() -> None:
    assert format_seeds(range(42, 52)) == "42..51"
    assert format_seeds([9, 7, 5, 3, 1]) == "1, 3, 5, ..."


def test_success_has_no_column_where_no_environment_knows_it() -> None:
    lines = rows("r")
    assert "success" in drawn(lines, 200)[0].splitlines()[0]
    lines = [StatusRow(row.run, replace(row.state, success=None)) for row in lines]
    assert "success" not in drawn(lines, 200)[0].splitlines()[0]


def test_steps_to_come_are_no_progress() -> None:
    lines = [StatusRow(row.run, replace(row.state, progress=None)) for row in rows("r")]
    assert "of 2M" in drawn(lines, 200)[0]


def test_runs_on_several_clusters_are_told_apart_everywhere() -> None:
    lines = rows("r")
    lines[0] = StatusRow(replace(lines[0].run, cluster="elsewhere"), lines[0].state)
    assert "elsewhere" in drawn(lines, 60)[0]


def test_a_reason_that_many_share_is_said_once() -> None:
    said = [text.plain for text in remarks(rows("r"))]
    assert said == [
        f"r-0: {OUTLOOK}",
        "r-1: it used more main memory than it requested",
        "r-2 and 2 more: next in line",
    ]


def test_groups_fold_at_the_place_of_their_first_run() -> None:
    lines = rows("r")
    members = [StatusRow(replace(row.run, group="sweep"), row.state) for row in rows("m")]
    single, folded, other = fold_groups([lines[0], *members, lines[1]])
    assert (single, other) == (lines[0], lines[1])
    assert isinstance(folded, Folded)
    assert folded.counts == {JobState.PENDING: 3, JobState.RUNNING: 1, JobState.OUT_OF_MEMORY: 1}
    assert folded.progress == pytest.approx(0.5 / 5)
    assert fold_groups(members[:4]) == members[:4]
    assert summary(members) == "5 runs: 3 pending, 1 running, 1 out of memory"


def group(*members: tuple[JobState, float | None, float | None, float | None]) -> Folded:
    """Runs of 1,000 steps: their state, progress, steps a second and seconds left."""
    row = rows("few")[0]
    return Folded(
        "g",
        tuple(
            StatusRow(
                replace(row.run, group="g", total_steps=1000),
                RunState(state, progress=progress, steps_per_second=rate, eta_seconds=left),
            )
            for state, progress, rate, left in members
        ),
    )


RUNS, WAITS = (JobState.RUNNING, 0.5, 1.0, 500.0), (JobState.PENDING, None, None, None)


@pytest.mark.parametrize(
    ("members", "left"),
    [
        ([RUNS, RUNS], "8m 20s"),
        ([RUNS, RUNS, *[WAITS] * 8], "1h 15m"),  # 9,000 steps at 2 a second
        ([RUNS, (JobState.COMPLETED, 1.0, None, None)], "8m 20s"),
        ([WAITS, WAITS], ""),
    ],
)
def test_of_a_group_the_runs_that_wait_count_too(
    members: list[tuple[JobState, float | None, float | None, float | None]], left: str
) -> None:
    assert _folded_cells(group(*members), bar=False)["left"] == left


def test_without_any_run_there_is_nothing_to_show() -> None:
    table, beside = status_table([], width=80)
    assert (table.row_count, beside) == (0, True)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_other_tables_of_runs_keep_the_id_whole_too(width: int) -> None:
    name = "a40-2m-20260101-000001-4"
    table = plain_table("run", "new", "files", "here", right=("new", "files", "here"))
    table.add_row(name, "up to date", "12", "27 KiB")
    screen = io.StringIO()
    Console(file=screen, width=width).print(table)
    assert name in "".join(line.split(" ")[0] for line in screen.getvalue().splitlines()[1:])
    assert "…" not in screen.getvalue()


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", "━━━━━╌╌╌╌╌"), ("ascii", "=====.....")])
def test_a_bar_tells_how_much_without_colours(encoding: str, expected: str) -> None:
    codecs.register_error(_DEGRADE, _degrade)
    assert share_bar(0.5, 10).plain.encode(encoding, _DEGRADE).decode(encoding) == expected


USAGE = Usage(
    time=1.0,
    node="n1",
    gpus=(),
    gpu_problem="none",
    cpus=2,
    cpu=0.4,
    memory_bytes=1,
    memory_limit_bytes=None,
    processes=(
        Process(4711, 1.25, 2**30, "/opt/venv/bin/python -m trainer train " + "--option value " * 20),
    ),
    heartbeat=None,
)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_long_command_line_takes_no_room_from_the_numbers(width: int) -> None:
    place = Inside(RUN, RunState(JobState.RUNNING), None, None)  # type: ignore[arg-type]
    console = Console(width=width)
    with console.capture() as capture:
        console.print(top_view(place, USAGE, processes=5))
    line = next(line for line in capture.get().splitlines() if "4711" in line)
    assert line.split()[:5] == ["4711", "1.25", "1.0", "GiB", "/opt/venv/bin/python"]
    assert line.rstrip().endswith("…")


def test_a_run_that_asked_for_no_gpu_has_no_problem_with_one() -> None:
    place = Inside(RUN, RunState(JobState.RUNNING), None, None)  # type: ignore[arg-type]
    console = Console(width=80)
    with console.capture() as capture:
        console.print(top_view(place, replace(USAGE, gpu_problem=None), processes=5))
    assert "none asked for" in capture.get()
