"""The cause of everything that was ever provoked on a real cluster, from what the cluster answered."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterkit.backends.slurm import why
from clusterkit.diagnosis import CAUSES, Diagnosis, diagnose, parse_evidence
from tests.diagnosis.run_dirs import RECORDED

ANSWERS = sorted(RECORDED.glob("*.txt"))


def expected(path: Path) -> str:
    return path.stem.partition("--")[0]


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_the_right_cause_is_named(path: Path) -> None:
    diagnosis = diagnose(parse_evidence(path.read_text()))
    assert diagnosis.finding.cause.slug == expected(path), diagnosis.finding


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_the_cause_is_shown(path: Path) -> None:
    finding = diagnose(parse_evidence(path.read_text())).finding
    assert finding.evidence
    assert all(line.source and line.text for line in finding.evidence)
    assert "\n" not in finding.sentence + finding.next


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_banners_and_line_ends_change_nothing(path: Path) -> None:
    text = path.read_text()
    noisy = "Welcome to the cluster!\nQuota: 3 % used\n" + text.replace("\n", "\r\n") + "bye\n"
    assert cause(diagnose(parse_evidence(noisy))) == cause(diagnose(parse_evidence(text)))


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_without_accounting_the_cause_is_the_same_or_less_sure(path: Path) -> None:
    text = re.sub(
        r"(begin sacct\n).*?(?=\n\x1e)",
        r"\1Slurm accounting storage is disabled\n",
        path.read_text(),
        flags=re.S,
    )
    found = cause(diagnose(parse_evidence(text)))
    # Who cancelled it, only the accounting knows.
    assert found == expected(path) or (found, expected(path)[:9]) == ("cancelled", "cancelled")


def test_at_least_25_causes_were_provoked_for_real() -> None:
    provoked = {expected(path) for path in ANSWERS}
    assert provoked <= {cause.slug for cause in (*CAUSES, *why.CAUSES)}
    assert len(provoked) >= 25


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(ANSWERS), st.randoms(use_true_random=False))
def test_whatever_is_missing_there_is_an_answer(path: Path, random: Random) -> None:
    """Parts go missing where a command is not there, lines where a disk is full."""
    head, *parts = re.split(r"(?=\x1eclusterkit (?:begin (?!subject)|now))", path.read_text())
    kept = [part for part in parts[:-1] if random.random() < 0.7]
    thinned = ["\n".join(line for line in part.split("\n") if random.random() < 0.95) for part in kept]
    whole = [part for part in thinned if part.startswith("\x1e")]
    finding = diagnose(parse_evidence("".join([head, *whole, parts[-1]]))).finding
    assert finding.sentence
    assert finding.next


def cause(diagnosis: Diagnosis) -> str:
    return diagnosis.finding.cause.slug
