"""Turns a request for several runs into a plan: sweep grids, pipeline stages and packs."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.config.options import NATIVE_OPTION
from clusterkit.errors import ClusterkitError, ConfigError, RecipeLockedError
from clusterkit.runs.program import fill, option_of, trains
from clusterkit.runs.spec import run_id
from clusterkit.submit.group import batches, member_id
from clusterkit.submit.plan import GroupMember, Plan, PlannedGroup, PlannedRun
from clusterkit.submit.request import SubmitRequest, plan_of, resolve_run
from clusterkit.submit.sweep import OF_THE_RUN, POINT, grid, meaning

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings


def resolve_group(settings: Settings, request: SubmitRequest) -> Plan:
    """Resolves the runs of a group, each like a single run.

    Args:
        settings: the project's settings.
        request: the request for all runs.

    Raises:
        ConfigError, RecipeLockedError: the request is wrong.
    """
    cluster, points = request.cluster, request.points or grid(request.axes)
    if request.pack > 1 and len(points) == 1:
        raise ConfigError(
            "--pack lets several runs share a GPU, but this is a single run", hint="add --seeds or --sweep"
        )
    request = replace(request, pack=min(request.pack, len(points)))
    _check_group(request, {name for point in points for name in point})
    arrays = backend_of(cluster).can.arrays
    now, name = datetime.now(UTC), request.name or request.profile.name
    group = run_id(name, now, secrets.token_hex(2))
    stages = [request.profile.name, *request.then]
    size = len(points) * len(stages)
    one_process = request.pack if request.in_one else 1
    pack = request.pack if arrays else 1  # without arrays each run is a separate job
    runs, options = [], []
    for index in range(size):
        stage, place = divmod(index, len(points))
        first = place - place % one_process  # packs are filled in order
        others = range(first, min(first + one_process, len(points))) if one_process > 1 else ()
        member = GroupMember(
            stage=stage,
            group={"id": group, "index": index, "size": size},
            values=points[place],
            previous=member_id(group, index - len(points), size) if stage else None,
            together=tuple(member_id(group, stage * len(points) + other, size) for other in others)
            if len(others) > 1
            else (),
        )
        mine = replace(request, name=name)
        if request.points:
            mine = replace(mine, arguments=fill(request.arguments, {POINT: str(place)}))
        one = resolve_member(settings, mine, stages[stage], member, now)
        runs.append(one)
        options.append(backend_of(cluster).packed(one.submission.options, pack, request.native))
    at_once = request.max_parallel
    if at_once is None and not backend_of(cluster).can.queue:
        at_once = max(1, (os.cpu_count() or 1) // request.profile.cpus // one_process) * one_process
    dealt = batches(options, [one.member.stage for one in runs if one.member], pack)
    planned = PlannedGroup(group, name, now, tuple(dealt), at_once, pack, one_process, request.then_always)
    return plan_of(request, runs, planned)


def _check_group(request: SubmitRequest, names: set[str]) -> None:
    cluster = request.cluster
    backend = backend_of(cluster)
    if request.seed is not None and "seed" in names:
        raise ConfigError("--seed and --seeds exclude each other", hint="use one of them")
    if request.in_one:
        _check_in_one(request, names)
    elif not backend.can.arrays and request.pack > 1:
        raise ConfigError(
            f"--pack lets runs share a GPU that a scheduler gives to one job; {_on(cluster)} all share it",
            hint=f"use --max-parallel {request.pack}; or --in-one, and one process trains them all",
        )
    if any(re.match(r"--?a(rray)?\b", option) for option in request.native):
        raise ConfigError(f"a group is a job array itself: {NATIVE_OPTION} array=... cannot be used with it")
    if request.then:
        if request.overrides or request.unlock:
            raise ConfigError(
                "--set and --unlock would change the recipe of one stage only, but --then has several stages",
                hint="put the values into the stages' profiles",
            )
        if rest := sorted(names & {"profile", "recipe", "total_steps", "task", "lr"}):
            raise ConfigError(
                f"--sweep {rest[0]}=... and --then: every stage has its own profile",
                hint="sweep the seed, or names that occur only in the program's arguments",
            )


def _on(cluster: Cluster) -> str:
    return "on this machine" if cluster.here else f"on {cluster.name}"


def _check_in_one(request: SubmitRequest, names: set[str]) -> None:
    """Refuses runs that one process cannot train together."""
    if rest := sorted(names - {"seed"}):
        raise ConfigError(
            f"--in-one trains runs in one process that may differ only in their seed, not in {rest[0]}",
            hint="submit each value separately with --seeds, or leave --in-one out",
        )
    if (
        not backend_of(request.cluster).can.arrays
        and request.max_parallel is not None
        and request.max_parallel % request.pack
    ):
        raise ConfigError(
            f"--max-parallel {request.max_parallel}: {_on(request.cluster)} each run is a job, and the "
            f"{request.pack} that one process trains have to run at the same time",
            hint=f"use --max-parallel {request.pack}, or a multiple of it",
        )


def resolve_member(
    settings: Settings,
    request: SubmitRequest,
    profile_name: str,
    member: GroupMember,
    now: datetime,
) -> PlannedRun:
    """Resolves one run of a group.

    Args:
        settings: the project's settings.
        request: the request for the whole group.
        profile_name: of the run's stage.
        member: its position and values; `env` is filled in.
        now: time of the request.

    Raises:
        ConfigError, RecipeLockedError: a value is wrong.
    """
    values = member.values
    profile = settings.profile(values.get("profile", profile_name))
    try:
        meant = meaning(
            values,
            profile,
            own_program=profile.program or settings.project.program,
            overrides=request.overrides,
            unlock=request.unlock,
            arguments=request.arguments,
        )
        mine = replace(
            request,
            profile=meant.profile,
            seed=request.seed if meant.seed is None else meant.seed,
            arguments=meant.arguments,
            overrides=meant.overrides,
            unlock=meant.unlock,
            after=(),
        )
        member = replace(member, env=meant.env)
        identity = member_id(*(member.group[name] for name in ("id", "index", "size")))
        planned = resolve_run(settings, mine, identity, now, member)
        planned = replace(planned, unplaced=(*meant.unplaced, *planned.unplaced))
        if {*meant.unplaced} - {"total_steps"} or meant.profile.program != profile.program:
            # A run alone has no swept values.
            planned = replace(planned, submission=replace(planned.submission, command=None))
    except RecipeLockedError as error:
        swept = [key for key in values if key not in OF_THE_RUN]
        if not swept:
            raise
        unlocks = " ".join(f"--unlock {key}" for key in swept)
        words = f"{unlocks} allows it; the runs are then permanently marked as modified"
        raise RecipeLockedError(error.cause.partition(";")[0], hint=words) from error
    except ClusterkitError as error:
        if not values:
            raise
        point = ", ".join(f"{key}={text}" for key, text in values.items())
        raise type(error)(f"{point}: {error.cause}", hint=error.hint) from error
    if request.pack > 1 and planned.profile.nodes > 1:
        raise ConfigError(
            f"--pack lets several runs share a GPU, and profile {planned.profile.name} has "
            f"{planned.profile.nodes} nodes",
            hint="leave --pack out, or use --nodes 1",
        )
    if request.in_one:
        _check_trained_in_one(planned, request.cluster)
    return planned


def _check_trained_in_one(planned: PlannedRun, cluster: Cluster) -> None:
    """Refuses a run that cannot share a training process."""
    profile, argv = planned.profile, planned.program.argv
    if not trains(argv):
        raise ConfigError(
            "--in-one is for the bundled trainer, but this runs your own program",
            hint="leave it out: the runs of a pack are then processes that share the GPU",
        )
    if profile.gpu_count > 1:
        raise ConfigError(
            f"--in-one trains many runs on one GPU, but profile {profile.name} has gpus = {profile.gpus}",
            hint="use a profile with one GPU, or leave --in-one out",
        )
    ranks = option_of(argv, "--ranks")
    if ranks not in (None, "1"):
        raise ConfigError(
            f"--in-one trains many runs in one process, and --ranks {ranks} one run in several",
            hint="leave one of them out",
        )
    if option_of(argv, "--stop-at") is not None:
        raise ConfigError(
            "--in-one trains runs that end together, and stop_at ends each that has learnt enough",
            hint="leave --in-one out, or use a profile without stop_at",
        )
    if not backend_of(cluster).can.arrays and planned.goes_on:
        raise ConfigError(
            "--in-one does not go with --until-done here, where each run is a job with its own time limit",
            hint="use --not-until-done with enough --time; `resume` continues each",
        )
