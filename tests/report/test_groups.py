"""Grouping runs by name and recipe, and the numbers of their curves."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.errors import RunError
from clusterkit.report.groups import Point, group_runs, read_runs
from clusterkit.report.statistics import Interval, student, wilson
from tests.results.run_dirs import evaluation, make_run_dir, write_metrics


def run_with(results: Path, run_id: str, evaluations: dict[int, dict[str, float]], **facts: object) -> Path:
    folder = make_run_dir(results, run_id, **facts)  # type: ignore[arg-type]
    write_metrics(folder, [evaluation(step, success) for step, success in evaluations.items()])
    return folder


def test_runs_of_one_name_and_recipe_are_seeds_of_one_group(tmp_path: Path) -> None:
    folders = [
        make_run_dir(tmp_path, "a-1", name="a", seed=1),
        make_run_dir(tmp_path, "b-1", name="b", seed=1),
        make_run_dir(tmp_path, "a-2", name="a", seed=2),
        make_run_dir(tmp_path, "a-3", name="a", modified={"gamma": [0.99, 0.9]}),
        make_run_dir(tmp_path, "a-4", name="a", modified={"tau": [0.005, 0.01]}),
        make_run_dir(tmp_path, "a-5", name="a", recipe=None),
    ]
    groups = group_runs(read_runs(folders))
    assert {group.label: [run.directory.run_id for run in group.runs] for group in groups} == {
        "a (local-demo)": ["a-1", "a-2"],
        "b": ["b-1"],
        "a (local-demo, modified)": ["a-3"],
        "a (local-demo, modified) #2": ["a-4"],
        "a (no recipe)": ["a-5"],
    }


def test_the_points_of_a_sweep_are_groups_and_their_seeds_are_not(tmp_path: Path) -> None:
    folders = [
        make_run_dir(tmp_path, f"s-{index}", recipe=None, sweep={"lr": rate, "seed": seed})
        for index, (rate, seed) in enumerate([("1e-4", "1"), ("1e-4", "2"), ("3e-4", "1")])
    ]
    groups = group_runs(read_runs(folders))
    assert {group.label: len(group.runs) for group in groups} == {
        "local-demo lr=1e-4": 2,
        "local-demo lr=3e-4": 1,
    }


def test_one_run_has_binomial_intervals(tmp_path: Path) -> None:
    folder = run_with(tmp_path, "a", {100: {"x": 0.2, "y": 0.6}})
    (group,) = group_runs(read_runs([folder]))
    assert group.tasks == ("x", "y")
    assert group.curve("success/x") == [Point(100, 0.2, wilson(0.2, 10))]
    assert group.curve("success/mean") == [Point(100, 0.4, wilson(0.4, 20))]
    assert group.curve("return/mean") == [Point(100, 400.0, None)]


def test_the_intervals_of_one_run_are_those_it_logged(tmp_path: Path) -> None:
    def folder(name: str) -> Path:
        made = make_run_dir(tmp_path, name)
        row = evaluation(100, {"x": 0.2, "y": 0.6})
        write_metrics(made, [row | {"success_low/mean": 0.3, "success_high/mean": 0.5}])
        return made

    first, second = folder("a"), folder("b")
    (group,) = group_runs(read_runs([first]))
    assert group.curve("success/mean") == [Point(100, 0.4, Interval(0.3, 0.5))]
    assert group.curve("success/x") == [Point(100, 0.2, wilson(0.2, 10))]
    (group,) = group_runs(read_runs([first, second]))
    assert group.curve("success/mean") == [Point(100, 0.4, wilson(0.4, 40))]


def test_several_runs_have_intervals_over_runs(tmp_path: Path) -> None:
    rates = (0.2, 0.4, 0.9)
    folders = [run_with(tmp_path, f"a{rate}", {100: {"x": rate}}) for rate in rates]
    (group,) = group_runs(read_runs(folders))
    (point,) = group.curve("success/x")
    expected = student(rates)
    assert point.value == pytest.approx(0.5)
    assert point.interval == (max(0.0, expected.low), min(1.0, expected.high))
    assert group.curve("return/x")[0].interval == pytest.approx(student([200.0, 400.0, 900.0]))
    assert group.final_scores() == [[0.2], [0.4], [0.9]]


def test_runs_that_agree_are_not_certain(tmp_path: Path) -> None:
    folders = [run_with(tmp_path, f"a{n}", {100: {"x": 1.0}}) for n in range(3)]
    (group,) = group_runs(read_runs(folders))
    assert group.curve("success/x") == [Point(100, 1.0, wilson(1.0, 30))]


def test_the_final_step_is_one_that_all_runs_have_reached(tmp_path: Path) -> None:
    ahead = run_with(tmp_path, "a1", {100: {"x": 0.1}, 200: {"x": 0.2}, 300: {"x": 0.3}})
    behind = run_with(tmp_path, "a2", {100: {"x": 0.1}, 200: {"x": 0.4}})
    (group,) = group_runs(read_runs([ahead, behind]))
    assert group.final_step == 200
    final = group.final("success/mean")
    assert final.value == pytest.approx(0.3)


def test_runs_without_a_common_step(tmp_path: Path) -> None:
    folders = [run_with(tmp_path, f"a{step}", {step: {"x": 0.5}}) for step in (100, 250)]
    (group,) = group_runs(read_runs(folders))
    assert group.final_step == 250


def test_speed_is_the_median(tmp_path: Path) -> None:
    folder = make_run_dir(tmp_path, "a")
    rows = [{"kind": "train", "step": n, "steps_per_second": v} for n, v in enumerate((10, 900, 950, None))]
    write_metrics(folder, [*rows, evaluation(100, {"x": 1.0})])
    (run,) = read_runs([folder])
    assert (run.steps_per_second, run.last_step) == (900, 100)


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        read_runs([tmp_path])
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(RunError, match="not a run directory"):
        read_runs([tmp_path])


def test_returns_are_those_of_training_episodes_where_there_are_any(tmp_path: Path) -> None:
    """An evaluation that stops at success has a smaller return the better the policy is."""
    folder = make_run_dir(tmp_path, "a")
    train = [
        {
            "kind": "train",
            "step": step,
            "time": 1.0,
            "attempt": 0,
            "return/mean": float(step),
            "return/x": 1.0,
        }
        for step in range(1, 501)
    ]
    write_metrics(folder, [*train, evaluation(500, {"x": 1.0})])
    (group,) = group_runs(read_runs([folder]))
    curve = group.curve("return/mean")
    assert len(curve) == 50
    assert curve[0] == Point(10, 5.5, None)
    assert group.final("return/mean") == Point(500, 495.5, None)
    assert group.curve("success/mean")[-1].value == 1.0
