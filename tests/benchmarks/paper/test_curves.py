from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.paper import curves
from tests.benchmarks.paper.page import part


def piece(side: str, seed: int, level: float, **more: Any) -> dict[str, Any]:
    """A piece whose tasks are all at one level after the first evaluation."""
    steps = list(range(curves.EVERY, curves.STEPS + 1, curves.EVERY))
    success = dict.fromkeys(curves.TASKS, [0.0] + [level] * (len(steps) - 1))
    return {
        "side": side,
        "seed": seed,
        "device": "cpu",
        "minutes": 21.4,
        "steps": steps,
        "success": success,
        **more,
    }


def test_the_area_leaves_out_the_first_evaluation() -> None:
    assert curves.area(piece("ours", 1, 0.5)) == pytest.approx(0.5)


def test_two_codes_are_equivalent_only_if_the_whole_interval_is_within_the_margin() -> None:
    theirs = [piece("theirs", seed, level) for seed, level in enumerate((0.50, 0.52, 0.54))]
    near = [piece("ours", seed, level) for seed, level in enumerate((0.51, 0.53, 0.55))]
    spread = [piece("ours", seed, level) for seed, level in enumerate((0.30, 0.53, 0.76))]
    words = "Mean areas 0.530 (`ours`) and 0.520 (`theirs`); 90% interval of the difference"
    # the means differ by 0.01, with a standard error of 0.0163 and 4 degrees of freedom
    assert f"{words} -0.025 to +0.045: equivalent." in curves.render([*near, *theirs])
    assert "not shown to be equivalent." in curves.render([*spread, *theirs])
    # (0.23^2 + 0.02^2) * (1.645 + 1.282)^2 / 0.1^2 = 45.7
    assert "deviations of 0.23 and 0.02, 46 seeds a side" in curves.render([*spread, *theirs])
    assert "`ours` and `theirs`: too few seeds" in curves.render([near[0], *theirs])


def test_a_recipe_is_stronger_or_weaker_only_if_the_interval_is_all_on_one_side() -> None:
    ours = [piece("ours", seed, level) for seed, level in enumerate((0.50, 0.52, 0.54))]
    strong = [piece("strong", seed, level) for seed, level in enumerate((0.60, 0.62, 0.64))]
    swapped = [{**one, "side": "strong" if one["side"] == "ours" else "ours"} for one in [*ours, *strong]]
    level = [{**one, "side": "strong"} for one in ours]
    assert ": stronger." in curves.render([*ours, *strong])
    assert ": weaker." in curves.render(swapped)
    assert ": no difference shown." in curves.render([*ours, *level])


def test_the_table_shows_where_each_piece_ended_and_how_far_the_evaluators_are_apart() -> None:
    official = dict.fromkeys(curves.TASKS, 0.46)
    text = curves.render([piece("theirs", 3, 0.5, official=official)])
    assert "| theirs | 3 | 0.50 | 0.50 | 0.50 | 0.50 | 0.500 | cpu | 21 |" in text.splitlines()
    assert "differs from ours by at most 0.04 in a task" in text


def test_the_documentation_says_what_the_pieces_give() -> None:
    assert part(curves.NAME) == curves.render(curves.pieces()).strip()
