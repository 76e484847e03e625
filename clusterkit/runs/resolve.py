"""Turns a request into a plan, with every run checked, without a connection."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.base import EarlySignal
from clusterkit.runs.own_words import check_arguments
from clusterkit.runs.plan import GroupMember, Plan, PlannedRun
from clusterkit.runs.program import Program, program
from clusterkit.runs.request import SubmitRequest, command_words, goes_on
from clusterkit.runs.spec import run_id, timestamp

if TYPE_CHECKING:
    from clusterkit.config.models import Profile
    from clusterkit.config.settings import Settings

_SHORTEST_SIGNALLED = 600
"""Seconds; shorter runs get no signal, because it may come a minute early."""


def resolve(settings: Settings, request: SubmitRequest) -> Plan:
    """Resolves and checks every requested run.

    Raises:
        ConfigError, RecipeLockedError: the request is wrong.
    """
    if request.several:
        from clusterkit.runs.resolve_group import resolve_group

        return resolve_group(settings, request, resolve_run)
    now = datetime.now(UTC)
    identity = run_id(request.name or request.profile.name, now, secrets.token_hex(2))
    run = resolve_run(settings, request, identity, now)
    return Plan(request.cluster, (run,), None, request.after, request.native, request.allow_large)


def program_of(settings: Settings, request: SubmitRequest) -> Program:
    """Returns the program that a run would execute.

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
    """Returns the signal before a run's time limit; None means no signal.

    Args:
        profile: the run's profile.
        trains: whether the program is the bundled trainer, which checkpoints on SIGUSR1; a program that does
            not handle the signal would die.
        goes_on: whether the run continues past its limit.
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


def resolve_run(
    settings: Settings,
    request: SubmitRequest,
    identity: str,
    now: datetime,
    member: GroupMember | None = None,
    command: tuple[str, ...] | None = None,
) -> PlannedRun:
    """Resolves one new run.

    Args:
        settings: the project's settings.
        request: the request for this run alone.
        identity: the run id.
        now: time of the request.
        member: the run's position in its group, if any.
        command: the arguments of `submit` that reproduce a group's member alone, if any.
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
