"""Checks that `doctor` makes, what they say, and those that only a scheduler can make. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from clusterkit.probes.framing import MARK, Section, sections

END = 'printf "\\n%s end\\n" "$ck_mark"\n'


@dataclass(frozen=True)
class Answer:
    """All that came back."""

    parts: Mapping[str, Section]
    whole: bool
    """Whether it came to its end."""

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def __getitem__(self, name: str) -> Section:
        return self.parts.get(name, Section(name))


def parse_answer(text: str) -> Answer:
    """The parts of an answer; what stands outside of them is passed over. One that was cut off timed out."""
    parts = {section.name: section for section in sections(text, cut=True)}
    return Answer(parts, f"{MARK} end" in text)


class CheckPlace(StrEnum):
    """Where a check looks, in the order of the way from the laptop to the program."""

    LAPTOP = "laptop"
    LOGIN = "login"
    STORAGE = "storage"
    SCHEDULER = "scheduler"
    NODE = "node"
    CONTAINER = "container"


class Outcome(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    """A run starts and comes home all the same."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """Something else must be mended first, or there is nothing to look at; the evidence says which."""


@dataclass(frozen=True)
class Check:
    """One question. docs/doctor.md lists them all; a test compares the two."""

    name: str
    place: CheckPlace
    looks_at: str
    needs: tuple[str, ...] = ()
    """Names of checks without which its answer would mean nothing."""
    of_profile: bool = False
    """Asked once for each profile."""
    of_gpu: bool = False
    """Only of a profile that asks for a GPU."""


@dataclass(frozen=True)
class Verdict:
    """What a check said."""

    outcome: Outcome
    evidence: str
    """One line."""
    cure: str = ""
    """One command or one setting."""


def passed(evidence: str) -> Verdict:
    """It is as a run needs it."""
    return Verdict(Outcome.PASS, evidence)


def warned(evidence: str, cure: str) -> Verdict:
    """A run works, but something about it will be worse than it need be."""
    return Verdict(Outcome.WARN, evidence, cure)


def failed(evidence: str, cure: str) -> Verdict:
    """No run would work."""
    return Verdict(Outcome.FAIL, evidence, cure)


def skipped(because: str) -> Verdict:
    """It was not asked."""
    return Verdict(Outcome.SKIPPED, because)


class SchedulerChecks(Protocol):
    """What a backend looks at on the login node, by the fragment of one question, and judges."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """In the order in which they are made, each of `CheckPlace.SCHEDULER`."""
        ...

    def script(self, requests: Mapping[str, tuple[str, ...]]) -> str:
        """A POSIX sh fragment with the functions of `clusterkit.probes.framing`.

        Args:
            requests: by profile the options of its job.
        """
        ...

    def judges(
        self, answer: Answer, cluster: str, profile: str = "", options: tuple[str, ...] = ()
    ) -> Mapping[str, Callable[[], Verdict]]:
        """What decides each check, by its name.

        Args:
            answer: all that the login node said.
            cluster: its name in the settings, for cures.
            profile: the one whose request is judged; empty for the checks that are about none.
            options: of its job.
        """
        ...


def shortlist(names: list[str], most: int = 6) -> str:
    """Names separated by commas; of many only the first, followed by an ellipsis."""
    shown = ", ".join(names[:most])
    return f"{shown}, ..." if len(names) > most else shown or "none"
