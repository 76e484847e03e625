"""Works out a group: seeds, a grid of values, packs that share a GPU, stages of a pipeline.

Each point is a run of its own, checked here before anything is sent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clusterkit.commands import in_one
from clusterkit.commands.after import check_after
from clusterkit.commands.prepare import Member, Request, check
from clusterkit.config.options import names_of
from clusterkit.errors import ClusterkitError, ConfigError, RecipeLockedError
from clusterkit.runs.group import Batch, batches, member_id
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.spec import run_id
from clusterkit.runs.sweep import OF_THE_RUN, Axis, grid, meaning
from clusterkit.units import parse_size, slurm_memory

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class SweepRequest:
    """What the user asked for."""

    base: Request
    axes: tuple[Axis, ...] = ()
    max_parallel: int | None = None
    """Tasks that run at a time; None leaves it to the scheduler."""
    pack: int = 1
    """Runs that share one job and its GPU."""
    then: tuple[str, ...] = ()
    """Profiles of the stages that follow."""
    then_always: bool = False
    """A stage starts also when the one before has failed."""
    in_one: bool = False
    """One process trains all runs of a pack."""

    @property
    def several(self) -> bool:
        """Whether a group is asked for, if only of one run."""
        return bool(self.axes or self.then) or self.pack > 1


@dataclass(frozen=True)
class Planned:
    """One run of the group."""

    index: int
    stage: int
    values: Mapping[str, str]
    request: Request
    member: Member
    recipe: str
    modified: tuple[str, ...]
    """Recipe values that are not the recipe's own."""
    options: tuple[str, ...]
    """What its task asks the scheduler for."""
    unused: tuple[str, ...]
    """Swept names that the program can only know from its environment."""
    argv: tuple[str, ...]
    """Of its program."""


@dataclass(frozen=True)
class GroupPlan:
    """A group that could be submitted."""

    request: SweepRequest
    group: str
    name: str
    created: datetime
    members: tuple[Planned, ...]
    dealt: tuple[Batch, ...]
    at_once: int | None
    in_one: int = 1
    """Runs that one process trains."""

    @property
    def jobs(self) -> int:
        """Tasks of all arrays."""
        return sum(len(batch.tasks) for batch in self.dealt)

    @property
    def hours(self) -> tuple[float, float]:
        """GPU hours and CPU hours asked for: limits, not what it will take."""
        gpu = cpu = 0.0
        for batch in self.dealt:
            for task in batch.tasks:
                profile = self.members[task[0]].request.profile
                gpu += profile.gpu_count * profile.time / 3600
                cpu += _number(batch.options, "cpus-per-task", profile.cpus) * profile.time / 3600
        return gpu, cpu


def plan(settings: Settings, request: SweepRequest, ledger: Ledger) -> GroupPlan:
    """Work out every run and check each, without any connection.

    Raises:
        ConfigError, RecipeLockedError, RunError: the request is wrong.
    """
    base = request.base
    points = grid(request.axes)
    if request.pack > 1 and len(points) == 1:
        raise ConfigError(
            "--pack lets several runs share a GPU, and this is one", hint="add --seeds or --sweep"
        )
    request = dataclasses.replace(request, pack=min(request.pack, len(points)))
    _check(request)
    check_after(ledger, base.cluster, base.after, base.sbatch)
    now = datetime.now(UTC)
    name = base.name or base.profile.name
    group = run_id(name, now, secrets.token_hex(2))
    profiles = [base.profile.name, *request.then]
    size = len(points) * len(profiles)
    one_process = request.pack if request.in_one else 1
    local = base.cluster.kind == "local"
    if local:  # where each run is a job of its own
        request = dataclasses.replace(request, pack=1)
    members = []
    for index in range(size):
        stage, place = divmod(index, len(points))
        before = member_id(group, index - len(points), size) if stage else None
        facts = {"id": group, "index": index, "size": size}
        identity = member_id(group, index, size)
        others = in_one.together(place, one_process, len(points))
        together = tuple(member_id(group, stage * len(points) + other, size) for other in others)
        own = Member(identity, facts, points[place], {}, before, together if len(together) > 1 else ())
        members.append(_planned(settings, request, name, profiles[stage], stage, own))
    dealt = batches([one.options for one in members], [one.stage for one in members], request.pack)
    at_once = request.max_parallel
    if at_once is None and local:
        at_once = max(1, (os.cpu_count() or 1) // base.profile.cpus // one_process) * one_process
    return GroupPlan(request, group, name, now, tuple(members), tuple(dealt), at_once, one_process)


def _check(request: SweepRequest) -> None:
    base = request.base
    names = {axis.name for axis in request.axes}
    if base.seed is not None and "seed" in names:
        raise ConfigError("--seed and --seeds both say which seed", hint="use one of them")
    local = base.cluster.kind == "local"
    if request.in_one:
        in_one.check_group(names, request.pack, request.max_parallel, local=local)
    elif local and request.pack > 1:
        raise ConfigError(
            "--pack lets runs share a GPU that a scheduler gives to one job; on this machine all share it",
            hint=f"use --max-parallel {request.pack}; or --in-one, and one process trains them all",
        )
    if any(re.match(r"--?a(rray)?\b", option) for option in base.sbatch):
        raise ConfigError("a group is a job array itself: --sbatch array=... cannot be used with it")
    if request.then:
        if base.overrides or base.unlock:
            raise ConfigError(
                "--set and --unlock would change the recipe of one stage only, and --then has several",
                hint="put the values into the profiles of the stages",
            )
        if rest := sorted(names & {"profile", "recipe", "total_steps", "task", "lr"}):
            raise ConfigError(
                f"--sweep {rest[0]}=... and --then: every stage has its own profile",
                hint="sweep the seed, or names that only the program's arguments use",
            )


def _planned(
    settings: Settings, request: SweepRequest, name: str, profile_name: str, stage: int, member: Member
) -> Planned:
    base, values = request.base, member.sweep
    profile = settings.profile(values.get("profile", profile_name))
    own_program = profile.program or settings.project.program
    try:
        meant = meaning(
            values,
            profile,
            own_program=own_program,
            overrides=base.overrides,
            unlock=base.unlock,
            arguments=base.arguments,
        )
        mine = dataclasses.replace(
            base,
            profile=meant.profile,
            name=name,
            seed=base.seed if meant.seed is None else meant.seed,
            arguments=meant.arguments,
            overrides=meant.overrides,
            unlock=meant.unlock,
            after=(),
        )
        member = dataclasses.replace(member, env=meant.env)
        prepared = check(settings, mine, member)
    except RecipeLockedError as error:
        swept = [key for key in values if key not in OF_THE_RUN]
        if not swept:
            raise
        words = f"{' '.join(f'--unlock {key}' for key in swept)} allows it; the runs are then marked for ever"
        raise RecipeLockedError(error.cause.partition(";")[0], hint=words) from error
    except ClusterkitError as error:
        if not values:
            raise
        point = ", ".join(f"{key}={text}" for key, text in values.items())
        raise type(error)(f"{point}: {error.cause}", hint=error.hint) from error
    if request.in_one:
        in_one.check_run(settings, mine, prepared)
    options = _shared(prepared.job.options, request.pack, base.sbatch)
    if any(option.startswith("--array") for option in options):
        raise ConfigError("a group is a job array itself: sbatch's array option cannot be used with it")
    trained = prepared.spec.recipe or {}
    return Planned(
        index=member.group["index"],
        stage=stage,
        values=values,
        request=mine,
        member=member,
        recipe=str(trained.get("name", "")),
        modified=tuple(trained.get("modified", ())),
        options=options,
        unused=meant.unused,
        argv=prepared.spec.argv,
    )


def _shared(options: Sequence[str], pack: int, given: Sequence[str]) -> tuple[str, ...]:
    """The request of a job of several runs: one GPU, but processors and memory for each.

    What the command line gives with --sbatch is for the whole job.
    """
    named = names_of(given)
    shared = []
    for option in options:
        name, _, value = option.removeprefix("--").partition("=")
        if name == "cpus-per-task" and name not in named and value.isdigit():
            value = str(int(value) * pack)
        elif name == "mem" and name not in named and value != "0":
            with contextlib.suppress(ValueError):  # the site's own spelling stays as it is
                value = slurm_memory(parse_size(value if value[-1:].isalpha() else f"{value}M") * pack)
        shared.append(f"--{name}={value}" if value else option)
    return tuple(shared)


def _number(options: Sequence[str], name: str, default: int) -> int:
    texts = [option.partition("=")[2] for option in options if option.startswith(f"--{name}=")]
    return int(texts[-1]) if texts and texts[-1].isdigit() else default
