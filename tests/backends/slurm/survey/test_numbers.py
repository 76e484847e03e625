"""Numbers of a site that are none, or far from plausible: each is used or passed over, and never a bug."""

from __future__ import annotations

import random
import re

import pytest

from clusterkit.config.merge import merged
from tests.backends.slurm.survey.sites import ALL, Parts
from tests.backends.slurm.survey.test_draft import drafted, loaded

EXTREMES = [
    "9" * 400,
    "9" * 5000,
    "9" * 18,
    "0",
    "-1",
    "1_000",
    "inf",
    "nan",
    "1e400",
    "²",
    "٣",
    "0" * 300 + "7",
    "0.0000001",
    "",
]


def with_extremes(parts: Parts, dice: random.Random, share: float) -> Parts:
    """The site's answer with some of its numbers replaced."""

    def replaced(text: str) -> str:
        return re.sub(
            r"[0-9]+", lambda number: dice.choice(EXTREMES) if dice.random() < share else number[0], text
        )

    changed: Parts = {}
    for name, part in parts.items():
        if part is None or name == "me":
            changed[name] = part
        else:
            text, status = (part, 0) if isinstance(part, str) else part
            changed[name] = (replaced(text), status)
    return changed


@pytest.mark.parametrize("name", ALL)
def test_a_site_with_any_numbers_is_surveyed_and_its_settings_load(name: str) -> None:
    dice = random.Random(name)
    for share in (0.02, 0.1, 0.3, 1.0):
        for _ in range(2):
            loaded(merged("", drafted(with_extremes(ALL[name], dice, share))))
