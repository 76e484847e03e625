"""The paper's figures: those of docs/paper.md, found by tasks and networks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusterkit.report.paper import published
from trainer.recipe import load

DOCS = Path(__file__).parents[2] / "docs" / "paper.md"


def recipe(tasks: str, actor: list[int], critic: list[int]) -> dict[str, object]:
    return {"tasks": [tasks], "actor_hidden": actor, "critic_hidden": critic}


def test_they_are_those_of_the_docs() -> None:
    rows = re.findall(r"^\| ([\d,]+) \| (0\.\d+) \| (0\.\d+) \|$", DOCS.read_text(), re.MULTILINE)
    assert len(rows) == 6
    for width, mt10, mt50 in rows:
        layers = [int(width.replace(",", ""))] * 3
        for tasks, success in (("MT10", mt10), ("MT50", mt50)):
            found = published(recipe(tasks, layers, layers))
            assert (found.success, found.exact) == (float(success), True)


@pytest.mark.parametrize(
    ("name", "success", "dormant", "exact"),
    [
        ("mclean2025-mt10", 0.870, 0.150, True),
        ("mclean2025-mt50", 0.727, 0.005, True),
        ("guide-mt10", 0.874, None, False),
    ],
)
def test_shipped_recipes(name: str, success: float, dormant: float | None, exact: bool) -> None:
    found = published(load(name).as_json()["values"])
    assert (found.success, found.dormant, found.exact) == (success, dormant, exact)


def test_networks_of_another_kind_are_not_the_papers() -> None:
    values = recipe("MT10", [1024] * 3, [1024] * 3)
    assert published({**values, "critic_network": "mlp"}) == published(values)
    assert published({**values, "critic_network": "residual"}) is None
    assert published(load("strong-mt10").as_json()["values"]) is None


def test_steps_and_network() -> None:
    found = published(recipe("MT10", [400] * 3, [1024] * 3))
    assert (found.success, found.steps, found.network) == (0.880, 20_000_000, "actor 3x400, critics 3x1,024")


@pytest.mark.parametrize(
    "values",
    [
        {},
        recipe("MT10", [64] * 3, [64] * 3),
        recipe("MT10", [1024] * 3, [1024] * 2),
        recipe("MT1", [1024] * 3, [1024] * 3),
        recipe("MT10", [], [1024] * 3),
        {"tasks": ["reach", "push"], "actor_hidden": [1024] * 3, "critic_hidden": [1024] * 3},
        {"tasks": 7, "actor_hidden": "x", "critic_hidden": None},
    ],
)
def test_nothing_close_is_nothing(values: dict[str, object]) -> None:
    assert published(values) is None
