from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.benchmarks.peers import __main__ as driver
from tests.benchmarks.peers import cell, page, results
from tests.benchmarks.peers.cases import ABSENT, CASES, PACKAGES, TITLES, cells
from tests.benchmarks.peers.equal import equal
from tests.benchmarks.peers.install import PEERS, ROOT
from tests.benchmarks.peers.sac_single_file import Actor, Critics
from tests.benchmarks.peers.sides.ours import in_its_units
from tests.benchmarks.peers.words import NOTES


def finding(case: str, side: str, seed: int = 0, **other: Any) -> results.Finding:
    """As a cell and the driver write it."""
    return {
        "case": case,
        "side": side,
        "seed": seed,
        "steps": CASES[case].steps,
        "mode": "full",
        "machine": "2 x test",
        "commit": "abc",
        "time": "2030-01-02T03:04:05Z",
        "seconds": 1.0,
        "return": 100.0 + seed,
        "steps_per_second": 1000.0,
        "steps_per_cpu_second": 500.0,
        "updates_per_second": 10.0,
        "peak_bytes": 300_000_000,
        "gpu_utilization": None,
        "gpu_memory_bytes": None,
        "load_before": 0.5,
        "device": "cpu",
        "versions": {"torch": "9.9"},
    } | other


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_processes_that_a_side_spawns_get_nothing_of_the_cell() -> None:
    code = "import sys, tests.benchmarks.peers.start; print('numpy' in sys.modules, 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "False"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "case", "steps", "begin"),
    [
        ("ours", "ppo-cartpole", 4096, 2048),
        pytest.param("ours", "sac-pendulum", 160, 120, marks=pytest.mark.slow),
        pytest.param("ours", "td3-halfcheetah", 160, 120, marks=pytest.mark.slow),
        pytest.param("ours", "dqn-cartpole", 1400, 1100, marks=pytest.mark.slow),
        pytest.param("single-file", "ppo-cartpole", 4096, 2048, marks=pytest.mark.exhaustive),
        pytest.param("single-file", "sac-pendulum", 160, 120, marks=pytest.mark.exhaustive),
    ],
)
def test_a_side_trains_and_tells(side: str, case: str, steps: int, begin: int, threads) -> None:
    found = cell.measure(side, case, 0, steps, "cpu", begin)
    json.dumps(found)
    assert found["counted_steps"] == steps - begin
    assert found["steps_per_second"] > 0
    per_step = {"ppo-cartpole": 320 / 2048, "dqn-cartpole": 0.5}.get(case, 1)
    assert found["updates_per_second"] / found["steps_per_second"] == pytest.approx(per_step, rel=0.05)
    assert found["peak_bytes"] > 50_000_000
    least, most = {"CartPole-v1": (8, 500), "Pendulum-v1": (-2000, 0), "HalfCheetah-v5": (-2000, 500)}[
        CASES[case].environment
    ]
    assert least < found["return"] <= most


def test_our_actions_are_played_in_the_environment_s_units() -> None:
    ends = np.array([[-1.0], [0.5], [1.0]], np.float32)
    assert in_its_units(CASES["sac-pendulum"])(ends).tolist() == [[-2.0], [1.0], [2.0]]
    rows = ends.repeat(6, 1)
    assert in_its_units(CASES["td3-halfcheetah"])(rows).tolist() == rows.tolist()
    for name in ("ppo-halfcheetah", "dqn-cartpole"):
        assert in_its_units(CASES[name])(ends) is ends


def test_the_cases_begin_and_end_with_a_rollout() -> None:
    for case in CASES.values():
        rollout = case.length * case.envs
        assert case.begin % rollout == case.steps % rollout == case.quick % rollout == 0, case.name
        assert case.begin < (case.quick or case.steps)
        assert case.values.get("warmup_steps", 0) < case.begin


def test_the_page_says_the_values_of_each_case() -> None:
    cases = list(CASES.values())
    lines = equal(cases, {case.name: case.steps for case in cases}).splitlines()
    assert lines == [
        "- `ppo`, 8 environments: CartPole-v1 61,440, HalfCheetah-v5 61,440 steps",
        "- `a2c`, 8 environments: CartPole-v1 60,000, HalfCheetah-v5 40,000 steps",
        "- `sac`, 1 environment: Pendulum-v1 4,000, HalfCheetah-v5 4,000 steps",
        "- `guide-mt10`, `warmup_steps` 500, 10 environments: MT10 1,000 steps",
        "- `td3`, `warmup_steps` 100, 1 environment: HalfCheetah-v5 4,000 steps",
        "- `dqn`, 1 environment: CartPole-v1 20,000 steps",
    ]
    for case in cases:
        (line,) = (one for one in lines if f"`{case.recipe}`" in one)
        assert f" {case.environment} {case.steps:,}" in line
    assert equal([CASES["dqn-cartpole"]], {"dqn-cartpole": 7}).endswith(": CartPole-v1 7 steps\n")


def test_every_side_has_its_file_its_package_and_its_note() -> None:
    files = {path.stem for path in (ROOT / "tests/benchmarks/peers/sides").glob("[a-z]*.py")}
    assert files == {cell.MODULES[side] for side in TITLES}
    assert NOTES.keys() == TITLES.keys()
    assert PACKAGES.keys() <= PEERS.keys()
    assert all(side in TITLES and case in CASES for side, case in ABSENT)


def test_every_case_comes_before_a_second_seed() -> None:
    order = cells(quick=False, seeds=2)
    assert [seed for *_, seed in order] == sorted(seed for *_, seed in order)
    assert {(side, case) for case, side, seed in order if seed == 0} == {
        (side, case) for case in CASES for side in TITLES if (side, case) not in ABSENT
    }
    first = [side for case, side, seed in order if case == "ppo-halfcheetah" and seed == 0]
    second = [side for case, side, seed in order if case == "ppo-halfcheetah" and seed == 1]
    assert first[0] == "ours" != second[0]


def test_halfcheetah_has_ten_seeds_and_every_other_case_five() -> None:
    seeds = {(case, side): 0 for case, side, _ in cells(quick=False)}
    for case, side, _ in cells(quick=False):
        seeds[case, side] += 1
    assert all(found == (10 if "halfcheetah" in case else 5) for (case, _), found in seeds.items())


def test_the_page_says_where_we_lose_and_what_was_not_run() -> None:
    found = [finding("ppo-cartpole", "ours", seed) for seed in range(3)]
    found += [finding("ppo-cartpole", "sb3", seed, steps_per_second=500.0) for seed in range(3)]
    better = {"steps_per_second": 2000.0, "return": 200.0, "peak_bytes": 100_000_000}
    found += [finding("ppo-cartpole", "skrl", seed, **better) for seed in range(3)]
    found += [finding("ppo-cartpole", "rl_games") | {"error": "exit code 1: no such thing"}]
    del found[-1]["steps_per_second"]
    text = page.render(found)
    lines = text.splitlines()
    assert "- PPO, CartPole-v1, steps per second: ours 1,000; skrl 2,000" in lines
    assert "- PPO, CartPole-v1, memory in MB: ours 300; skrl 100" in lines
    assert "- PPO, CartPole-v1, return: ours 101 [99, 103]; skrl 200 [200, 200]" in lines
    assert "In 3 of 8 comparisons" in text
    assert "overlaps ours in 1 of 2 comparisons" in text
    assert "| PPO, CartPole-v1 | 1,000 | 2.00 (1.00) | - | 0.50 (1.00) | - | - |" in lines
    assert "- PPO, CartPole-v1, rl_games: exit code 1: no such thing." in lines
    assert "| PPO, CartPole-v1 | 101 [99, 103] | 101 [99, 103] | - | 200 [200, 200] | - | - | 3 |" in lines
    assert "GPU use" not in text
    on_gpu = {"device": "cuda", "gpu_utilization": 0.5, "gpu_memory_bytes": 2e9}
    with_gpu = page.render([finding("ppo-cartpole", "ours", **on_gpu)])
    assert "| PPO, CartPole-v1 | 50% (2,000) | - | - | - | - | - |" in with_gpu.splitlines()
    assert "- rsl_rl: no discrete actions." in lines
    assert "- PPO, CartPole-v1, single file: no time was left." in lines
    assert "- SAC, Meta-World MT10: not part of this run." in lines
    assert "Not measured on a GPU" in text
    assert "Not measured on a GPU" not in with_gpu
    assert "Other programs" not in text
    assert "Other programs" in page.render([finding("ppo-cartpole", "ours", load_before=9.0)])


def test_the_page_in_the_documentation_is_made_of_its_findings() -> None:
    found = results.read(ROOT / "docs" / "comparison.jsonl")
    assert (ROOT / "docs" / "comparison.md").read_text() == page.render(found)


def test_findings_outlive_a_crash(tmp_path: Path) -> None:
    store = tmp_path / "deep" / "full.jsonl"
    results.append(store, {"case": "a", "side": "b", "seed": 0, "error": "x"})
    store.write_text(store.read_text() + '{"case": "a", "si')
    results.append(store, {"case": "a", "side": "b", "seed": 0, "good": 1})
    results.append(store, {"case": "a", "side": "b", "seed": 0, "error": "y"})
    assert list(results.newest(results.read(store)).values()) == [
        {"case": "a", "side": "b", "seed": 0, "good": 1}
    ]


@pytest.mark.parametrize("count", [2, 3, 12])
def test_intervals_hold_the_mean_as_often_as_they_say(count: int) -> None:
    rng = np.random.default_rng(count)
    bounds = np.array([results.interval(list(values)) for values in rng.normal(5.0, 2.0, (2000, count))])
    assert np.mean((bounds[:, 0] < 5.0) & (bounds[:, 1] > 5.0)) == pytest.approx(0.95, abs=0.015)


def test_the_interval_of_one_value_is_the_value() -> None:
    assert results.interval([4.0]) == (4.0, 4.0)


def test_a_second_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    asked: list[tuple[str, str, int]] = []

    def run_cell(python: Path, case: str, side: str, seed: int, steps: int, limit: float) -> results.Finding:
        asked.append((case, side, seed))
        if asked[-1:] == [("a2c-cartpole", "ours", 0)] and len(asked) < 7:
            return {"error": "it broke"}
        return finding(case, side, seed, mode="quick", steps=steps, machine=results.machine())

    monkeypatch.setattr(driver, "run_cell", run_cell)
    argv = ["--quick", "--only", "ours", "--folder", str(tmp_path)]
    assert driver.main([*argv, "--budget", "0.0001"]) == 1
    assert asked == []
    assert "time is up: 6 of 6 cells are left" in capsys.readouterr().out
    assert driver.main(argv) == 1
    assert len(asked) == 6
    assert driver.main(argv) == 0
    assert asked[6:] == [("a2c-cartpole", "ours", 0)]
    assert (tmp_path / "comparison.md").read_text().startswith("# Comparison with other trainers")


def test_what_cannot_be_installed_is_said(tmp_path: Path) -> None:
    store = tmp_path / "full.jsonl"
    failed = {"skrl": "No matching distribution found"}
    driver.go([("ppo-cartpole", "skrl", 0)], tmp_path, store, "full", "2 x test", failed, float("inf"))
    text = page.render([*results.read(store), finding("ppo-cartpole", "ours")])
    assert "- PPO, CartPole-v1, skrl: not installed: No matching distribution found." in text.splitlines()


def test_a_cell_that_dies_says_why(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho progress\necho 'ValueError: wrong' >&2\nexit 3\n")
    script.chmod(0o755)
    assert driver.run_cell(script, "ppo-cartpole", "sb3", 0, 1, 60.0) == {
        "error": "exit code 3: ValueError: wrong"
    }
    script.write_text("#!/bin/sh\nsleep 60 &\necho '{\"good\": 1}'\n")
    assert driver.run_cell(script, "ppo-cartpole", "sb3", 0, 1, 60.0) == {"good": 1}
    script.write_text("#!/bin/sh\nsleep 60\n")
    assert driver.run_cell(script, "ppo-cartpole", "sb3", 0, 1, 0.2) is None


def test_the_single_file_of_sac_computes_what_it_should() -> None:
    torch.manual_seed(0)
    low, high = torch.tensor([-2.0, -1.0]), torch.tensor([2.0, 1.0])
    actor = Actor(3, 2, [8], low, high)
    seen = torch.randn(5, 3)
    torch.manual_seed(1)
    action, density = actor(seen)
    mean, log_std = actor.head(actor.body(seen)).chunk(2, -1)
    squashed = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, log_std.exp()), torch.distributions.TanhTransform()
    )
    torch.testing.assert_close(density, squashed.log_prob(action / high).sum(-1, keepdim=True))
    critics = Critics(4, [8])
    rows = torch.randn(5, 4)
    for number, values in enumerate(critics(rows)):
        hidden = (rows @ critics.weights[0][number] + critics.biases[0][number]).relu()
        torch.testing.assert_close(values, hidden @ critics.weights[1][number] + critics.biases[1][number])
