"""`doctor`'s checks, their verdicts, and the interface of a scheduler's own checks. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from clusterkit.probes import MARK, Section, sections

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile, ProjectTable

Evidence = TypeVar("Evidence")
LIBRARIES: Mapping[str, re.Pattern[str]] = {
    "torch": re.compile(r"torch|lightning|stable_baselines3|transformers|deepspeed|rsl_rl|skrl|tianshou"),
    "mujoco": re.compile(r"mujoco|gymnasium|metaworld|dm_control|robosuite"),
    "wandb": re.compile(r"wandb"),
}
"""Libraries that have checks of their own -> words in the code of a program that may use them."""
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
    """Parses an answer into parts, ignoring other text. A truncated answer has timed out."""
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
class Verdict:
    """A check's result."""

    outcome: Outcome
    evidence: str
    """One line."""
    cure: str = ""
    """A command or a setting."""


@dataclass(frozen=True)
class Scope:
    """The subject of an examination, which decides what is checked."""

    cluster: Cluster
    project: ProjectTable
    queue: bool
    """Whether jobs wait in a queue, and so run on nodes of their own."""
    arrays: bool
    """Whether runs submitted together become one job array."""
    profile: Profile | None = None
    """None for the checks that are made once for all profiles."""
    gpu: bool = False
    """Whether the profile's runs need a GPU."""
    vendor: str = "nvidia"
    """Who made it."""
    uses: Collection[str] = frozenset(LIBRARIES)
    """Those of `LIBRARIES` that the programs use, as far as is known."""

    def tests(self) -> tuple[str, ...]:
        """Returns what is tried where the program runs: the tests of `node/inside.py` by name."""
        tests = {
            "installers": self.with_environment(),
            "torch": self.with_torch(),
            "wandb": self.with_wandb(),
            "rendering": self.with_mujoco(),
        }
        return tuple(name for name, wanted in tests.items() if wanted)

    def with_torch(self) -> bool:
        """Returns whether the programs use PyTorch."""
        return "torch" in self.uses

    def with_mujoco(self) -> bool:
        """Returns whether the programs use MuJoCo."""
        return "mujoco" in self.uses

    def remote(self) -> bool:
        """Returns whether the cluster has a login node."""
        return self.cluster.host is not None

    def queued(self) -> bool:
        """Returns whether jobs wait in a queue."""
        return self.queue

    def stores_image(self) -> bool:
        """Returns whether the cluster keeps its image in a file of clusterkit's."""
        return self.cluster.stores_image

    def contained(self) -> bool:
        """Returns whether programs run in a container."""
        return self.cluster.contained

    def with_wandb(self) -> bool:
        """Returns whether the project uses W&B: its settings say so, or its programs do."""
        mode = self.project.wandb.mode
        return mode == "online" or (mode == "offline" and "wandb" in self.uses)

    def with_environment(self) -> bool:
        """Returns whether the project has a Python environment of its own."""
        return self.project.environment is not None

    def of_gpu(self) -> bool:
        """Returns whether the profile's runs need a GPU."""
        return self.gpu

    def of_nvidia(self) -> bool:
        """Returns whether the profile's runs need a GPU of NVIDIA."""
        return self.gpu and self.vendor == "nvidia"

    def computes_on_gpu(self) -> bool:
        """Returns whether the profile's runs compute on a GPU that they need."""
        computes = self.profile is not None and self.profile.device != "cpu"
        return self.gpu and computes and self.with_torch()

    def of_several_nodes(self) -> bool:
        """Returns whether a run of the profile has several nodes."""
        return self.profile is not None and self.profile.nodes > 1


@dataclass(frozen=True)
class Check(Generic[Evidence]):
    """One check, named after its judge."""

    place: CheckPlace
    name: str
    judge: Callable[[Evidence], Verdict]
    needs: tuple[str, ...]
    """Names of checks that must pass for its result to mean anything."""
    applies: Callable[[Scope], bool]
    of_profile: bool
    """Made once for each profile."""
    part: str
    """The part of a job's answer that it judges."""
    cure: str
    """What to do if the job ended before that part; `{table}` stands for the cluster's settings."""


class Checks(list[Check[Evidence]]):
    """The checks of one place, in the order in which their judges are declared."""

    def __init__(self, place: CheckPlace, *needs: str, of_profile: bool = False) -> None:
        super().__init__()
        self.place, self.needs, self.of_profile = place, needs, of_profile

    def declare(
        self,
        *needs: str,
        applies: Callable[[Scope], bool] = lambda _: True,
        of_profile: bool = False,
        part: str = "",
        cure: str = "",
    ) -> Callable[[Callable[[Evidence], Verdict]], Callable[[Evidence], Verdict]]:
        """Makes a check of the judge that follows, under its name; see `Check`."""

        def with_judge(judge: Callable[[Evidence], Verdict]) -> Callable[[Evidence], Verdict]:
            name, every = judge.__name__.strip("_").replace("_", "-"), self.of_profile or of_profile
            needed = needs or self.needs
            self.append(Check(self.place, name, judge, needed, applies, every, part, cure))
            return judge

        return with_judge


def passed(evidence: str) -> Verdict:
    """Returns the verdict that all is well."""
    return Verdict(Outcome.PASS, evidence)


def warned(evidence: str, cure: str) -> Verdict:
    """Returns the verdict that runs work, but worse than they could."""
    return Verdict(Outcome.WARN, evidence, cure)


def failed(evidence: str, cure: str) -> Verdict:
    """Returns the verdict that no run would work."""
    return Verdict(Outcome.FAIL, evidence, cure)


def skipped(because: str) -> Verdict:
    """Returns the verdict that the check was not made."""
    return Verdict(Outcome.SKIPPED, because)


class SchedulerChecks(Protocol):
    """A backend's checks on the login node: one shell fragment, and judges of its answer."""

    @property
    def checks(self) -> Sequence[Check[Any]]:
        """The checks in order, each of `CheckPlace.SCHEDULER`."""
        ...

    def script(self, requests: Mapping[str, tuple[str, ...]]) -> str:
        """Returns a POSIX sh fragment with the functions of `clusterkit.probes`.

        Args:
            requests: job options by profile.
        """
        ...

    def evidence(
        self, answer: Answer, cluster: str, profile: str = "", options: tuple[str, ...] = ()
    ) -> object:
        """Returns what the checks judge.

        Args:
            answer: the login node's answer.
            cluster: the cluster's name in the settings, for cures.
            profile: the profile being judged; empty for checks without a profile.
            options: the profile's job options.
        """
        ...


def shortlist(names: list[str], most: int = 6) -> str:
    """Returns names separated by commas; of many only the first, followed by an ellipsis."""
    shown = ", ".join(names[:most])
    return f"{shown}, ..." if len(names) > most else shown or "none"
