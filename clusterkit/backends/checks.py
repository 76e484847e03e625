"""`doctor`'s checks, their verdicts, and the interface of a scheduler's own checks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from clusterkit.probes.framing import MARK, Section, sections

END = 'printf "\\n%s end\\n" "$ck_mark"\n'


@dataclass(frozen=True)
class Answer:
    """A complete answer."""

    parts: Mapping[str, Section]
    whole: bool
    """Whether it is complete."""

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def __getitem__(self, name: str) -> Section:
        return self.parts.get(name, Section(name))


def parse_answer(text: str) -> Answer:
    """Parse an answer into parts, ignoring other text. A truncated answer has timed out."""
    parts = {section.name: section for section in sections(text, cut=True)}
    return Answer(parts, f"{MARK} end" in text)


class CheckPlace(StrEnum):
    """Where a check looks, in order from the laptop to the program."""

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
    """Runs work nevertheless."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """Another check failed first, or there is nothing to check; the evidence says which."""


@dataclass(frozen=True)
class Check:
    """One check. docs/doctor.md lists them all; a test compares the two."""

    name: str
    place: CheckPlace
    looks_at: str
    needs: tuple[str, ...] = ()
    """Names of checks that must pass for its result to mean anything."""
    of_profile: bool = False
    """Made once for each profile."""
    of_gpu: bool = False
    """Made only for profiles that request a GPU."""


def checks_of(
    place: CheckPlace,
    *rows: tuple[str, str, tuple[str, ...]],
    of_profile: bool = False,
    of_gpu: Collection[str] = (),
) -> tuple[Check, ...]:
    """Checks of one place.

    Args:
        place: where they look.
        rows: name, what it looks at, and needed checks of each.
        of_profile: whether they are made once for each profile.
        of_gpu: names of those made only for profiles that request a GPU.
    """
    return tuple(
        Check(name, place, looks_at, needs, of_profile, name in of_gpu) for name, looks_at, needs in rows
    )


@dataclass(frozen=True)
class Verdict:
    """A check's result."""

    outcome: Outcome
    evidence: str
    """One line."""
    cure: str = ""
    """A command or a setting."""


def passed(evidence: str) -> Verdict:
    """The check passed."""
    return Verdict(Outcome.PASS, evidence)


def warned(evidence: str, cure: str) -> Verdict:
    """Runs work, but worse than they could."""
    return Verdict(Outcome.WARN, evidence, cure)


def failed(evidence: str, cure: str) -> Verdict:
    """No run would work."""
    return Verdict(Outcome.FAIL, evidence, cure)


def skipped(because: str) -> Verdict:
    """The check was not made."""
    return Verdict(Outcome.SKIPPED, because)


class SchedulerChecks(Protocol):
    """A backend's checks on the login node: one shell fragment, and judges of its answer."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks in order, each of `CheckPlace.SCHEDULER`."""
        ...

    def script(self, requests: Mapping[str, tuple[str, ...]]) -> str:
        """A POSIX sh fragment with the functions of `clusterkit.probes.framing`.

        Args:
            requests: job options by profile.
        """
        ...

    def judges(
        self, answer: Answer, cluster: str, profile: str = "", options: tuple[str, ...] = ()
    ) -> Mapping[str, Callable[[], Verdict]]:
        """The function that judges each check, by its name.

        Args:
            answer: the login node's answer.
            cluster: the cluster's name in the settings, for cures.
            profile: the profile being judged; empty for checks without a profile.
            options: the profile's job options.
        """
        ...


def shortlist(names: list[str], most: int = 6) -> str:
    """Names separated by commas; of many only the first, followed by an ellipsis."""
    shown = ", ".join(names[:most])
    return f"{shown}, ..." if len(names) > most else shown or "none"
