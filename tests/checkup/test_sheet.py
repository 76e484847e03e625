"""Nothing is guessed after what it needs has failed; the catalogue is in order."""

from __future__ import annotations

from clusterkit.backends.checks import Outcome, Verdict, failed, passed, skipped, warned
from clusterkit.checkup.examination import Sheet
from clusterkit.checkup.order import CHECKS

NAMED = {check.name: check for check in CHECKS}


def never() -> Verdict:
    raise AssertionError("it must not be asked")


def test_what_needs_a_failed_check_is_skipped_with_its_name() -> None:
    sheet = Sheet()
    sheet.add(NAMED["login"], lambda: failed("refused", "a key"))
    result = sheet.add(NAMED["root"], never)
    assert result.verdict == skipped("login failed")
    assert sheet.add(NAMED["modes"], never).verdict == skipped("login failed")
    assert not sheet.works


def test_a_warning_blocks_nothing() -> None:
    sheet = Sheet()
    sheet.add(NAMED["login"], lambda: warned("slow", "keep it"))
    assert sheet.add(NAMED["root"], lambda: passed("there")).verdict.outcome is Outcome.PASS
    assert sheet.works


def test_profiles_do_not_block_each_other() -> None:
    sheet = Sheet()
    sheet.add(NAMED["partition"], lambda: failed("none", "another"), "one")
    assert sheet.add(NAMED["gres"], never, "one").verdict == skipped("partition failed")
    assert sheet.add(NAMED["gres"], lambda: passed("fine"), "two").verdict.outcome is Outcome.PASS


def test_a_check_needs_only_what_comes_before_it() -> None:
    before: set[str] = set()
    for check in CHECKS:
        assert set(check.needs) <= before, check.name
        assert check.name not in before
        before.add(check.name)
    assert len(before) >= 25
