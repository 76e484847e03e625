"""The choice of a setting, and what a profile would say of it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.config.models import Profile
from clusterkit.errors import RunError
from clusterkit.forecast.bench import Bench, BenchRow, BenchSetting, read_bench
from clusterkit.forecast.tuning import FULL, NEAR, changes, choose, remark

GIB = 1 << 30
OWN = BenchSetting(16, 4, "tf32")


def row(
    setting: BenchSetting, steps: float | None, host: float = 2.0, device: float | None = 4.0
) -> BenchRow:
    held = None if device is None else int(device * GIB)
    return BenchRow("loop", setting, None, 100.0, steps, int(host * GIB), held, None)


def bench(*rows: BenchRow, **changed: Any) -> Bench:
    evaluation = BenchRow("evaluation", OWN, None, None, None, GIB, None, None)
    known = Bench(
        time=1.8e9,
        complete=True,
        node="n1",
        device="NVIDIA A40",
        gpu_bytes=48 * GIB,
        recipe="guide-mt10",
        own=OWN,
        rows=(*rows, evaluation),
    )
    return replace(known, **changed)


def profile(**changed: Any) -> Profile:
    values = {"name": "mine", "time": "1h", "gpu": "a40", "cpus": 16, "memory": "32G", "precision": "tf32"}
    return Profile.model_validate(values | {"recipe": "guide-mt10", "total_steps": 10} | changed)


def test_the_fastest_is_taken() -> None:
    fast = row(BenchSetting(32, 8, "tf32"), 5000.0)
    assert choose(bench(row(OWN, 4000.0), fast), memory=32 * GIB).row == fast


def test_of_those_that_are_as_fast_the_one_with_less_memory_then_with_fewer_processes() -> None:
    large = row(BenchSetting(40, 15, "tf32"), 5000.0, host=6.0)
    many = row(BenchSetting(20, 10, "tf32"), 4900.0, host=2.1)
    few = row(BenchSetting(20, 5, "tf32"), 4800.0, host=2.2)
    slow = row(BenchSetting(10, 1, "tf32"), 4700.0, host=1.0)
    chosen = choose(bench(row(OWN, 3000.0), large, many, few, slow), memory=None)
    assert (chosen.row, chosen.fastest) == (few, large)


def test_what_is_nearly_full_is_not_safe() -> None:
    full = row(BenchSetting(40, 8, "tf32"), 9000.0, host=27.0)
    tight = row(BenchSetting(20, 8, "tf32"), 8000.0, device=45.0)
    good = row(OWN, 1000.0)
    chosen = choose(bench(full, tight, good), memory=32 * GIB)
    assert chosen.row == good
    assert chosen.unsafe == {
        full.setting: "takes 88% of the requested memory",  # with the evaluations' GiB
        tight.setting: "takes 94% of the GPU's memory",
    }
    assert choose(bench(full), memory=32 * GIB).row is None


def test_another_precision_only_where_it_is_asked_for() -> None:
    half = row(BenchSetting(16, 4, "bf16"), 9000.0)
    both = bench(row(OWN, 1000.0), half)
    assert choose(both, memory=None).row == row(OWN, 1000.0)
    assert choose(both, memory=None, precision=True).row == half
    assert changes(both, half, profile())["precision"] == "bf16"


def test_of_one_setting_that_was_measured_twice_the_better_counts() -> None:
    slow, quick, other = row(OWN, 1000.0), row(OWN, 3000.0), row(BenchSetting(32, 8, "tf32"), 2500.0)
    found = bench(slow, other, quick, replace(quick, error="it was killed", steps_per_second=None))
    assert choose(found, memory=None).row == quick
    assert found.loops == [quick, other]


def test_a_failed_measurement_is_never_chosen() -> None:
    failed = replace(row(BenchSetting(32, 8, "tf32"), 9000.0), error="it was killed")
    assert choose(bench(failed), memory=None).row is None


SETTINGS = st.builds(BenchSetting, st.integers(1, 64), st.integers(0, 32), st.sampled_from(["fp32", "tf32"]))
ROWS = st.lists(
    st.builds(row, SETTINGS, st.floats(1, 1e5), st.floats(0.1, 60), st.floats(0.1, 60)),
    max_size=12,
    unique_by=lambda each: each.setting,
)


@pytest.mark.slow
@given(ROWS, st.none() | st.integers(GIB, 64 * GIB), st.booleans())
def test_the_choice_is_safe_and_near_the_fastest_safe_one(
    rows: list[BenchRow], memory: int | None, precision: bool
) -> None:
    found = bench(*rows)
    chosen = choose(found, memory=memory, precision=precision)
    allowed = [
        each
        for each in rows
        if (precision or each.setting.precision == OWN.precision)
        and (each.device_bytes or 0) <= FULL * 48 * GIB
        and (memory is None or (each.host_bytes or 0) + GIB <= FULL * memory)
    ]
    if not allowed:
        assert chosen.row is None
        return
    assert chosen.row in allowed
    best = max(each.steps_per_second or 0.0 for each in allowed)
    assert (chosen.row.steps_per_second or 0.0) >= NEAR * best
    what = changes(found, chosen.row, profile(cpus=8, memory="16G"))
    assert int(what.get("cpus", 8)) <= 8
    assert int(str(what.get("memory", "16G")).removesuffix("G")) <= 16
    assert precision or "precision" not in what


def test_the_keys_that_change() -> None:
    taken = row(BenchSetting(20, 5, "tf32"), 5000.0)
    found = bench(row(OWN, 4000.0), taken)
    assert changes(found, taken, profile()) == {"num_envs": 20, "workers": 5, "cpus": 7, "memory": "5G"}
    assert changes(found, taken, profile(cpus=8, memory="6G")) == {"num_envs": 20, "workers": 5}
    assert changes(found, row(OWN, 4000.0), profile(cpus=6, memory=None)) == {}
    # it says so already
    assert changes(replace(found, threads=4), taken, profile(memory="6G"))["cpus"] == 10
    assert changes(replace(found, threads=4), taken, profile(memory="6G", threads=2))["cpus"] == 8
    there = profile(num_envs=20, workers=5, cpus=7, memory="5G")
    assert changes(found, taken, there) == {}
    # fewer processors would have the trainer choose other workers
    assert changes(found, row(OWN, 4000.0), profile(memory=None)) == {"cpus": 6, "workers": 4}


def test_memory_is_left_alone_where_that_of_evaluations_is_not_known() -> None:
    taken = row(OWN, 4000.0)
    found = bench(taken)
    short = replace(found, rows=(taken,))
    assert "memory" in changes(found, taken, profile())
    assert "memory" not in changes(short, taken, profile())


def test_the_remark_has_date_node_gpu_and_figures() -> None:
    taken = row(BenchSetting(20, 5, "tf32"), 5000.0)
    assert remark(bench(row(OWN, 4000.0), taken), taken) == (
        "2027-01-15 on n1 (NVIDIA A40): 5,000 steps/s; 4,000 with 16 environments in 4 workers, tf32"
    )


DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "time": 1.8e9,
    "complete": False,
    "node": "n1",
    "device": {"type": "cpu", "name": "a\nb"},
    "recipe": "local-demo",
    "modified": {},
    "own": {"num_envs": 4, "workers": 1, "precision": "fp32"},
    "rows": [
        {"kind": kind, "num_envs": 4, "workers": 1, "precision": "fp32", "error": None}
        | {"env_steps_per_second": envs, "updates_per_second": updates, "steps_per_second": steps}
        | {"host_bytes": host, "device_bytes": None}
        for kind, envs, updates, steps, host in [
            ("loop", None, 60.0, 900.0, 3 * GIB),
            ("envs", 2000.0, None, None, GIB),
            ("updates", None, 200.0, None, GIB),
            ("evaluation", None, None, None, GIB),
        ]
    ],
}


def test_control_characters_of_a_node_are_replaced() -> None:
    assert read_bench(json.dumps(DOCUMENT)).device == "a?b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        "{}",
        json.dumps(DOCUMENT | {"rows": [{}]}),
        json.dumps(DOCUMENT | {"own": {"num_envs": 1, "workers": 1, "precision": "fp8"}}),
        json.dumps(DOCUMENT | {"own": {"num_envs": -1, "workers": 1, "precision": "fp32"}}),
        json.dumps(DOCUMENT | {"device": None}),
        json.dumps(DOCUMENT | {"time": "x"}),
        json.dumps(DOCUMENT | {"time": 1e300}),
        json.dumps(DOCUMENT | {"time": float("nan")}),
        json.dumps(DOCUMENT | {"rows": [DOCUMENT["rows"][0] | {"host_bytes": -GIB}]}),
    ],
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(RunError, match=r"bench\.json"):
        read_bench(text)
