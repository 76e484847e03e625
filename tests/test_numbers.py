"""Numbers as a person reads them."""

import math

import pytest

from clusterkit.units import beside, percent, percents_beside, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.010527, "0.0105"),
        (0.31, "0.31"),
        (39.64, "39.6"),
        (123456.7, "123,457"),
        (-3.14159, "-3.14"),
        (-0.0, "0"),
        (1e-9, "1e-09"),
        (math.inf, "inf"),
    ],
)
def test_three_digits_and_never_fewer_before_the_point(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0%"), (1.0, "100%"), (0.5, "50%"), (0.004, "0.4%"), (0.996, "99.6%"), (0.9996, "99.96%")],
)
def test_not_all_and_not_nothing_look_it(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.010527, 0.010417], ["0.0105", "0.0104"]),
        ([4123.4, 4123.2, None], ["4,123.4", "4,123.2", "-"]),
        ([2.0, 2.0000000000000004], ["2", "2.0000000000000004"]),
        ([1.0, 1.0], ["1", "1"]),
        ([0.0, -0.0, math.nan], ["0", "0", "nan"]),
        ([], []),
    ],
)
def test_what_differs_looks_different_side_by_side(values: list[float | None], texts: list[str]) -> None:
    assert beside(values) == texts


def test_percentages_side_by_side() -> None:
    assert percents_beside([0.5, 0.50002, None]) == ["50.000%", "50.002%", "-"]
