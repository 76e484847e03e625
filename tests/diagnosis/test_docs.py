"""docs/troubleshooting.md lists every cause, with words of the log and of the command."""

from __future__ import annotations

import re

from clusterkit.backends.slurm import why
from clusterkit.diagnosis import CAUSES, UNKNOWN, Cause
from docs.tools import troubleshooting


def test_the_page_is_made_from_the_rules() -> None:
    assert troubleshooting.PAGE.read_text(encoding="utf-8") == troubleshooting.page(), (
        "make it anew: python -m docs.tools.troubleshooting"
    )


def test_every_cause_has_its_theme() -> None:
    listed = [cause for theme in troubleshooting.THEMES for cause in troubleshooting.causes(theme)]
    assert sorted(listed, key=by_slug) == sorted([*CAUSES, *why.CAUSES, UNKNOWN], key=by_slug)


def test_every_cause_is_on_the_page() -> None:
    page = troubleshooting.PAGE.read_text(encoding="utf-8")
    for cause in (*CAUSES, *why.CAUSES, UNKNOWN):
        assert (f"- **{cause.slug}**: " if cause.trouble else f"`{cause.slug}`") in page, cause.slug


def test_every_cause_can_stand_in_a_list() -> None:
    for cause in (*CAUSES, *why.CAUSES, UNKNOWN):
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cause.slug)
        assert "|" not in cause.means + cause.cure
        assert not cause.means.endswith(".")


def by_slug(cause: Cause) -> str:
    return cause.slug
