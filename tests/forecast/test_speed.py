"""How long a run takes: measured, or not said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clusterkit.forecast.speed import Rate, expect, lasts, shipped, shipped_rates
from clusterkit.resources import DOCS

OWN = Rate("a40", "guide-mt10", 1000.0, 900.0, 1200.0, "you", "r1", "A40", "2026-01-01", 32, "tf32", own=True)
OTHER = replace(OWN, steps_per_second=5e3, low=5e3, high=5e3, by="somebody", own=False, machine="A40")
ASKED = {"gpu": "a40", "recipe": "guide-mt10", "num_envs": 32, "precision": "tf32"}


def test_the_user_s_own_runs_come_first() -> None:
    speed = expect([OTHER, OWN], **ASKED)  # type: ignore[arg-type]
    assert (speed.steps_per_second, speed.low, speed.high) == (1000.0, 900.0, 1200.0)
    assert speed.source == "your run r1"
    assert speed.caveats == ()


def test_several_runs_make_an_interval() -> None:
    slow = replace(OWN, steps_per_second=700.0, low=650.0, high=800.0, source="r2")
    fast = replace(OWN, steps_per_second=1100.0, source="r3")
    speed = expect([OWN, slow, fast], **ASKED)  # type: ignore[arg-type]
    assert (speed.steps_per_second, speed.low, speed.high, speed.runs) == (1000.0, 650.0, 1200.0, 3)
    assert speed.source == "3 runs of yours"


def test_a_published_figure_names_its_author() -> None:
    speed = expect([OTHER], **ASKED)  # type: ignore[arg-type]
    assert speed.source == "measured by somebody (r1, A40, 2026-01-01)"


def test_what_was_measured_on_another_machine_gives_no_tight_interval() -> None:
    here, away = replace(OWN, cluster="uni"), replace(OWN, cluster="lab", source="r2")
    tight = expect([away, here, OTHER], cluster="uni", **ASKED)  # type: ignore[arg-type]
    assert (tight.low, tight.high, tight.here, tight.source) == (900.0, 1200.0, True, "your run r1")
    wide = expect([away, OTHER], cluster="uni", **ASKED)  # type: ignore[arg-type]
    assert (wide.low, wide.high, wide.here, wide.source) == (300.0, 3600.0, False, "your run r2 (on lab)")
    published = expect([OTHER], cluster="uni", **ASKED)  # type: ignore[arg-type]
    assert (published.low, published.high, published.here) == (5e3 / 3, 15e3, False)


def test_other_settings_stand_in_unscaled_and_it_is_said() -> None:
    ten = replace(OWN, num_envs=10, precision="fp32")
    speed = expect([ten], **ASKED)  # type: ignore[arg-type]
    assert speed.steps_per_second == 1000.0
    assert speed.caveats == ("measured with 10 environments, not 32", "measured in fp32, not tf32")
    better = expect([ten, OWN], **ASKED)  # type: ignore[arg-type]
    assert better.caveats == ()


@pytest.mark.parametrize(
    "far", [{"gpu": "a100"}, {"recipe": "mclean2025-mt10"}, {"same_work": False}], ids=str
)
def test_another_gpu_recipe_or_work_says_nothing(far: dict[str, object]) -> None:
    assert expect([replace(OWN, **far)], **ASKED) is None  # type: ignore[arg-type]


def test_hours_attempts_and_checkpoints() -> None:
    speed = expect([OWN], **ASKED)  # type: ignore[arg-type]
    assert speed is not None
    duration = lasts(7_200_000, speed, gpus=2, limit=3600, checkpoint_every=50_000)
    assert duration.seconds == 7200.0
    assert duration.gpu_seconds == 14_400.0
    assert (duration.shortest, duration.longest) == (6000.0, 8000.0)
    assert duration.attempts == 3, "of the slowest, for a promise"
    assert duration.checkpoints == 144


def test_the_shipped_table_says_who_when_and_where() -> None:
    rates = shipped_rates()
    assert rates
    for rate in rates:
        assert rate.low <= rate.steps_per_second <= rate.high
        assert all((rate.by, rate.source, rate.machine, rate.date, rate.num_envs, rate.precision)), rate
        assert not rate.own
    assert shipped("") == ()


def test_a_rate_on_another_number_of_gpus_is_not_scaled() -> None:
    speed = expect([replace(OWN, gpus=2)], **ASKED)  # type: ignore[arg-type]
    assert speed.caveats == ("measured on 2 GPUs, not 1",)
    both = expect([OWN, replace(OWN, gpus=2, steps_per_second=1700.0)], gpus=2, **ASKED)  # type: ignore[arg-type]
    assert (both.steps_per_second, both.caveats) == (1700.0, ())


@pytest.mark.parametrize("steps", [2_000_000, 20_000_000])
@pytest.mark.parametrize(("num_envs", "with_envs"), [(10, "mt10"), (30, "mt10_30")])
@pytest.mark.parametrize(("recipe", "of"), [("guide-mt10", ""), ("mclean2025-mt10", "paper_")])
def test_a_run_on_an_h200_is_predicted_as_it_was_measured_on_one(
    recipe: str, of: str, num_envs: int, with_envs: str, steps: int
) -> None:
    speed = expect(shipped_rates(), gpu="h200", recipe=recipe, num_envs=num_envs, precision="tf32")
    assert speed is not None
    assert speed.caveats == ()
    measured = json.loads((DOCS / "gpu.json").read_text())[of + with_envs]
    seconds = steps * measured["wall_seconds"] / measured["steps"]  # of the whole run, its warm-up too
    duration = lasts(steps, speed, gpus=1, limit=3600, checkpoint_every=None)
    assert duration.seconds == pytest.approx(seconds, rel=0.15)
