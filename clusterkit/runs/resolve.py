"""From a request to a plan: every run worked out and checked, without any connection."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.base import EarlySignal
from clusterkit.config.options import NATIVE_OPTION
from clusterkit.errors import ClusterkitError, ConfigError, RecipeLockedError
from clusterkit.runs.group import batches, member_id
from clusterkit.runs.own_words import check_arguments
from clusterkit.runs.plan import GroupMember, Plan, PlannedGroup, PlannedRun
from clusterkit.runs.program import Program, option_of, program, trains
from clusterkit.runs.request import SubmitRequest, command_words, goes_on
from clusterkit.runs.spec import run_id, timestamp
from clusterkit.runs.sweep import OF_THE_RUN, grid, meaning

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings

_SHORTEST_SIGNALLED = 600
"""Seconds; the signal may come a minute early, which a very short run has no time for."""


def resolve(settings: Settings, request: SubmitRequest) -> Plan:
    """Work out every run that is asked for, and check each.

    Raises:
        ConfigError, RecipeLockedError: the request is wrong.
    """
    if request.several:
        return _group(settings, request)
    now = datetime.now(UTC)
    identity = run_id(request.name or request.profile.name, now, secrets.token_hex(2))
    run = _run(settings, request, identity, now)
    return Plan(request.cluster, (run,), None, request.after, request.native, request.allow_large)


def program_of(settings: Settings, request: SubmitRequest) -> Program:
    """What a run would execute.

    Raises:
        ConfigError, RecipeLockedError: the request is wrong.
    """
    profile, own = request.profile, settings.project.program
    check_arguments(settings.project_dir, request.arguments, profile.program or own)
    return program(
        profile,
        own_program=own,
        arguments=request.arguments,
        overrides=request.overrides,
        unlock=request.unlock,
        seed=_seed(request),
        wandb=settings.project.wandb,
    )


def early_signal(profile: Profile, *, trains: bool, goes_on: bool) -> EarlySignal | None:
    """The signal before a run's time limit; None for none.

    Args:
        profile: of the run.
        trains: the program is the bundled trainer, which checkpoints on SIGUSR1; another program may not
            know the signal and would die of it.
        goes_on: the run goes on past its limit.
    """
    name = profile.signal
    if name is None and trains and (goes_on or profile.time >= _SHORTEST_SIGNALLED):
        name = "USR1"
    if name is None or name == "none":
        return None
    limit = -(-profile.time // 60) * 60  # schedulers count in minutes
    return EarlySignal(name, min(profile.signal_before, limit // 5))


def _seed(request: SubmitRequest) -> int:
    return request.profile.seed if request.seed is None else request.seed


def _run(
    settings: Settings,
    request: SubmitRequest,
    identity: str,
    now: datetime,
    member: GroupMember | None = None,
    command: tuple[str, ...] | None = None,
) -> PlannedRun:
    """One new run.

    Args:
        settings: of the project.
        request: of this run alone.
        identity: its run id.
        now: when it is asked for.
        member: its place in a group.
        command: of a member, the words behind `submit` that ask for it alone.
    """
    profile, executed, past_limit = request.profile, program_of(settings, request), goes_on(settings, request)
    signal = early_signal(profile, trains=executed.recipe is not None, goes_on=past_limit)
    return PlannedRun(
        run_id=identity,
        name=request.name or profile.name,
        created=timestamp(now),
        profile=profile,
        program=executed,
        options=backend_of(request.cluster).options(
            request.cluster, profile, signal=signal, extra=request.native
        ),
        goes_on=past_limit,
        seed=_seed(request),
        total_steps=profile.total_steps,
        seed_in_environment=request.seed is not None and executed.keeps_seed,
        verify_image=request.verify_image,
        wandb=settings.project.wandb.model_dump(mode="json"),
        project=settings.project.name,
        member=member,
        command=command if member else command_words(request),
    )


def _group(settings: Settings, request: SubmitRequest) -> Plan:
    cluster, points = request.cluster, grid(request.axes)
    if request.pack > 1 and len(points) == 1:
        raise ConfigError(
            "--pack lets several runs share a GPU, and this is one", hint="add --seeds or --sweep"
        )
    request = replace(request, pack=min(request.pack, len(points)))
    _check_group(request)
    arrays = backend_of(cluster).can.arrays
    now, name = datetime.now(UTC), request.name or request.profile.name
    group = run_id(name, now, secrets.token_hex(2))
    stages = [request.profile.name, *request.then]
    size = len(points) * len(stages)
    one_process = request.pack if request.in_one else 1
    pack = request.pack if arrays else 1  # without arrays each run is a job of its own
    runs, options = [], []
    for index in range(size):
        stage, place = divmod(index, len(points))
        first = place - place % one_process  # packs are filled one after the other
        others = range(first, min(first + one_process, len(points))) if one_process > 1 else ()
        member = GroupMember(
            index=index,
            stage=stage,
            group={"id": group, "index": index, "size": size},
            values=points[place],
            previous=member_id(group, index - len(points), size) if stage else None,
            together=tuple(member_id(group, stage * len(points) + other, size) for other in others)
            if len(others) > 1
            else (),
        )
        one = _member(settings, replace(request, name=name), stages[stage], member, now)
        runs.append(one)
        options.append(backend_of(cluster).packed(one.options, pack, request.native))
    at_once = request.max_parallel
    if at_once is None and not backend_of(cluster).can.queue:
        at_once = max(1, (os.cpu_count() or 1) // request.profile.cpus // one_process) * one_process
    dealt = batches(options, [one.member.stage for one in runs if one.member], pack)
    return Plan(
        cluster,
        tuple(runs),
        PlannedGroup(group, name, now, tuple(dealt), at_once, pack, one_process, request.then_always),
        request.after,
        request.native,
        request.allow_large,
    )


def _check_group(request: SubmitRequest) -> None:
    names, cluster = {axis.name for axis in request.axes}, request.cluster
    backend = backend_of(cluster)
    if request.seed is not None and "seed" in names:
        raise ConfigError("--seed and --seeds both say which seed", hint="use one of them")
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
                "--set and --unlock would change the recipe of one stage only, and --then has several",
                hint="put the values into the profiles of the stages",
            )
        if rest := sorted(names & {"profile", "recipe", "total_steps", "task", "lr"}):
            raise ConfigError(
                f"--sweep {rest[0]}=... and --then: every stage has its own profile",
                hint="sweep the seed, or names that only the program's arguments use",
            )


def _on(cluster: Cluster) -> str:
    return "on this machine" if cluster.here else f"on {cluster.name}"


def _check_in_one(request: SubmitRequest, names: set[str]) -> None:
    """Refuses runs that no process could train together."""
    if rest := sorted(names - {"seed"}):
        raise ConfigError(
            f"--in-one has one process train runs that differ in their seed alone, not in {rest[0]}",
            hint="submit each value by itself, with --seeds; or leave --in-one out",
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


def _member(
    settings: Settings, request: SubmitRequest, profile_name: str, member: GroupMember, now: datetime
) -> PlannedRun:
    """One run of a group."""
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
        member = replace(member, env=meant.env, unused=meant.unused)
        identity = member_id(member.group["id"], member.index, member.group["size"])
        planned = _run(settings, mine, identity, now, member, _member_command(mine, member))
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
        _check_trained_in_one(planned, request.cluster)
    return planned


def _member_command(request: SubmitRequest, member: GroupMember) -> tuple[str, ...] | None:
    """The words that ask for a member alone; None for what no option of `submit` says."""
    if {"recipe", "task"} & member.values.keys() or member.previous:
        return None
    steps = member.values.get("total_steps")
    given = ("--total-steps", steps) if steps else ()
    return command_words(replace(request, given=(*request.given, *given)))


def _check_trained_in_one(planned: PlannedRun, cluster: Cluster) -> None:
    """Refuses a run that no process could train with others."""
    profile, argv = planned.profile, planned.program.argv
    if not trains(argv):
        raise ConfigError(
            "--in-one is for the bundled trainer, and this runs a program of your own",
            hint="leave it out: the runs of a pack are then processes that share the GPU",
        )
    if profile.gpu_count > 1:
        raise ConfigError(
            f"--in-one trains many runs on one GPU, and profile {profile.name} has gpus = {profile.gpus}",
            hint="take a profile with one, or leave --in-one out",
        )
    ranks = option_of(argv, "--ranks")
    if ranks not in (None, "1"):
        raise ConfigError(
            f"--in-one trains many runs in one process, and --ranks {ranks} one run in several",
            hint="leave one of them out",
        )
    if not backend_of(cluster).can.arrays and planned.goes_on:
        raise ConfigError(
            "--in-one does not go with --until-done here, where each run is a job with its own time limit",
            hint="use --not-until-done and enough --time; `resume` goes on with each",
        )
