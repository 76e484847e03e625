"""docs/why.md lists every cause, with the words the command uses."""

from __future__ import annotations

import re
from pathlib import Path

from clusterkit.diagnosis import CAUSES, UNKNOWN

PAGE = Path(__file__).resolve().parents[2] / "docs" / "why.md"


def test_the_page_lists_the_causes_as_the_command_names_them() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(cause.slug, cause.means, cause.cure) for cause in (*CAUSES, UNKNOWN)]


def test_every_cause_can_stand_in_a_table() -> None:
    for cause in (*CAUSES, UNKNOWN):
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cause.slug)
        assert "|" not in cause.means + cause.cure
        assert not cause.means.endswith(".")
