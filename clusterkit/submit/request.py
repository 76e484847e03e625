"""A user's requests: runs to submit, changes to a resubmitted run, and their resolution: no connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import EarlySignal
from clusterkit.backends.submission import Submission
from clusterkit.config.options import NATIVE_OPTION
from clusterkit.errors import ConfigError
from clusterkit.runs.program import Program, program
from clusterkit.runs.spec import RunSpec, timestamp, versions
from clusterkit.snapshots import Allow
from clusterkit.submit.own_program import check_arguments
from clusterkit.submit.plan import After, GroupMember, Plan, PlannedGroup, PlannedRun
from clusterkit.units import format_size

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.runs.alternatives import First
    from clusterkit.submit.sweep import SweepAxis


_SHORTEST_SIGNALLED = 600
"""Seconds; shorter runs get no signal, because it may come a minute early."""


@dataclass(frozen=True)
class SubmitRequest:
    """One run to submit, or a group with sweep axes, stages or packs."""

    cluster: Cluster
    profile: Profile
    name: str | None = None
    seed: int | None = None
    arguments: tuple[str, ...] = ()
    """Arguments after `--`, appended verbatim to the program's argv."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    unlock: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    """Scheduler options, `--option=value`, that override all configured ones."""
    verify_image: bool = False
    """Whether the job reads its whole image and checks the digest before it starts the container."""
    allow_large: Allow | None = None
    """Decides whether files over the size limit may be sent; None refuses."""
    allow_unread: bool = False
    """Whether the runs may have values that do not reach their program."""
    until_done: bool | None = None
    """Whether to continue past the time limit; None uses the profile's setting, or else the project's."""
    after: tuple[After, ...] = ()
    """Runs that must end before this one starts."""
    given: tuple[str, ...] = ()
    """Options that changed the profile, as typed, e.g. `--time 4h`."""
    axes: tuple[SweepAxis, ...] = ()
    """The sweep's axes."""
    points: tuple[Mapping[str, str], ...] = ()
    """The sweep's points, by name, in place of the grid that axes span; `{point}` is a point's number."""
    max_parallel: int | None = None
    """Maximum number of the group's jobs that run at a time; None leaves it to the scheduler."""
    pack: int = 1
    """Number of runs that share one job and its GPU."""
    then: tuple[str, ...] = ()
    """Profiles of the following stages."""
    then_always: bool = False
    """Whether a stage starts even if the previous one failed."""
    in_one: bool = False
    """Whether one process trains all runs of a pack."""
    first: First | None = None
    """Where the run may start, where a job of several starts first."""

    @property
    def several(self) -> bool:
        """Whether a group is requested, even of one run."""
        return bool(self.axes or self.points or self.then) or self.pack > 1


@dataclass(frozen=True)
class Changes:
    """Changes to a resubmitted run; None leaves a value unchanged."""

    profile: Profile | None = None
    """Other resources; the recipe and the number of environments stay."""
    cluster: str | None = None
    """The cluster that the run moves to."""
    time: int | None = None
    """Time limit in seconds."""
    total_steps: int | None = None
    until_done: bool | None = None
    native: tuple[str, ...] = ()
    """Scheduler options."""


def check_together(request: SubmitRequest) -> None:
    """Raises ConfigError for options about several runs that the request does not have."""
    if request.max_parallel and not request.several:
        raise ConfigError(
            "--max-parallel is for runs that are submitted together",
            hint="use it with --seeds, --sweep or --then; `--after RUN` makes one run wait for another",
        )
    if request.then_always and not request.then:
        raise ConfigError("--then-always needs --then", hint="add --then PROFILE, or leave it out")
    if request.in_one and request.pack == 1:
        raise ConfigError(
            "--in-one trains all runs of a pack in one process, and there is no --pack",
            hint="add --seeds and --pack: --seeds 1..8 --pack 8 --in-one",
        )


def parse_after(texts: Sequence[str]) -> tuple[After, ...]:
    """Parses `RUN`, `RUN:ok` and `RUN:any`.

    Raises:
        ConfigError: the name is empty, or the text after the colon is not `ok` or `any`.
    """
    found = []
    for text in texts:
        name, _, kind = text.partition(":")
        if not name or kind not in ("", "ok", "any"):
            raise ConfigError(f"--after {text}: not of the form RUN or RUN:any")
        found.append(After(name, "any" if kind == "any" else "ok"))
    return tuple(found)


def plan_of(request: SubmitRequest, runs: Iterable[PlannedRun], group: PlannedGroup | None = None) -> Plan:
    """Returns the plan of a request whose runs are resolved."""
    return Plan(
        request.cluster,
        tuple(runs),
        group,
        request.after,
        request.native,
        request.allow_large,
        request.allow_unread,
    )


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


def with_retry(
    cluster: Cluster, profile: Profile, options: tuple[str, ...], *, goes_on: bool
) -> tuple[str, ...]:
    """Returns a job's options with what it needs to be tried again as the profile says.

    Args:
        cluster: the target; nothing is tried again on one that cannot.
        profile: the run's profile.
        options: the job's.
        goes_on: whether the run continues past its limit, and so after a node failure.

    Raises:
        ConfigError: there is no memory to raise, or the options contradict.
    """
    retry, backend = profile.retry, backend_of(cluster)
    if retry is None or not backend.can.retries:
        return options
    memory, most = backend.asked(options).memory, retry.memory_up_to
    if most is not None and not memory:
        raise ConfigError(
            f"retry.memory_up_to = {format_size(most)!r}, but no memory is requested that could be raised",
            hint=f'set `memory` in [profiles.{profile.name}], e.g. "8G"',
        )
    if most is not None and memory and most < memory:
        raise ConfigError(
            f"retry.memory_up_to = {format_size(most)!r} is below the requested {format_size(memory)}",
            hint="raise it, or request less memory",
        )
    return backend.requeued(options) if retry.node_failures and not goes_on else options


def _with_mail(settings: Settings, cluster: Cluster, options: tuple[str, ...]) -> tuple[str, ...]:
    """Returns a job's options with the mail that the settings ask for."""
    notify = settings.notify
    if notify.mail is None or not notify.on:
        return options
    only_failures = set(notify.on) == {"failed"}
    return backend_of(cluster).mailed(options, notify.mail, only_failures=only_failures)


def _check_kept(executed: Program, asked: Mapping[str, object]) -> None:
    """Checks that the user's own arguments, which come last, do not replace a value that was asked for.

    Args:
        executed: the run's program.
        asked: the values by name; None for one that was not asked for.

    Raises:
        ConfigError: they do, so that the run would not be what it is called.
    """
    for name, value in asked.items():
        if value is not None and (last := executed.replaced(name, str(value))) is not None:
            raise ConfigError(
                f"`{last}` among the arguments replaces the {name} that was asked for, {value}",
                hint="give only one of the two",
            )


def _seed(request: SubmitRequest) -> int:
    return request.profile.seed if request.seed is None else request.seed


def resolve_run(
    settings: Settings,
    request: SubmitRequest,
    identity: str,
    now: datetime,
    member: GroupMember | None = None,
) -> PlannedRun:
    """Resolves one new run.

    Args:
        settings: the project's settings.
        request: the request for this run alone.
        identity: the run id.
        now: time of the request.
        member: the run's position in its group, if any.
    """
    profile, executed = request.profile, program_of(settings, request)
    swept = member.values if member else {}
    _check_kept(
        executed,
        {
            "seed": request.seed,
            "total_steps": profile.total_steps if "total_steps" in swept else None,
            "recipe": (executed.recipe or {}).get("name") if "recipe" in swept else None,
        },
    )
    if request.first and request.first.kind == "gpu":
        profile = profile.model_copy(update={"gpu": request.first.values[0]})
    # Runs that share a job run out of its memory together, and the job ends with the last of them.
    retry = (profile.retry or settings.project.retry) if request.pack == 1 else None
    profile = profile.model_copy(update={"retry": retry})
    past_limit = _goes_on(settings, request)
    signal = early_signal(profile, trains=executed.recipe is not None, goes_on=past_limit)
    created = timestamp(now)
    requests = [
        Submission(
            number,
            created=created,
            options=_with_mail(
                settings, request.cluster, with_retry(request.cluster, one, options, goes_on=past_limit)
            ),
            command=_command(request, member),
            verify_image=request.verify_image,
            gpu=one.gpu,
        )
        for number, (one, options) in enumerate(_requested(request, profile, signal))
    ]
    spec = RunSpec(
        run_id=identity,
        name=request.name or profile.name,
        created=created,
        cluster=request.cluster.name,
        profile=profile.model_dump(mode="json", warnings=False),
        recipe=executed.recipe,
        seed=_seed(request),
        total_steps=profile.total_steps,
        time_limit_seconds=profile.time,
        wandb={"run_id": identity, **settings.project.wandb.model_dump(mode="json")},
        versions=versions(request.cluster),
        project=settings.project.name,
        group=member.group if member else None,
        sweep=member.values if member else None,
    )
    return PlannedRun(
        profile=profile,
        program=executed,
        member=member,
        spec=spec,
        submission=requests[0],
        others=tuple(requests[1:]),
        goes_on=past_limit,
        unplaced=("seed",) if request.seed is not None and executed.keeps_seed else (),
    )


def _requested(
    request: SubmitRequest, profile: Profile, signal: EarlySignal | None
) -> list[tuple[Profile, tuple[str, ...]]]:
    """Returns the profile and the backend's options of each job that a run is offered as."""
    cluster, native = request.cluster, request.native
    if request.first is None:
        return [(profile, backend_of(cluster).options(cluster, profile, signal=signal, extra=native))]
    if request.several or request.after:
        raise ConfigError(
            "--first is for a single run that waits for no other",
            hint="submit the runs one by one, or name one GPU type or partition",
        )
    if profile.retry and profile.retry.memory_up_to:
        raise ConfigError(
            "--first and retry.memory_up_to exclude each other",
            hint=f"remove memory_up_to from [profiles.{profile.name}.retry] and [project.retry], or --first",
        )
    from clusterkit.runs.alternatives import alternatives

    return alternatives(cluster, profile, request.first, signal=signal, native=native)


def _goes_on(settings: Settings, request: SubmitRequest) -> bool:
    """Returns whether a run continues past its time limit."""
    if request.until_done is not None:
        return request.until_done
    profiles = request.profile.until_done
    return settings.project.until_done if profiles is None else profiles


def _command(request: SubmitRequest, member: GroupMember | None) -> tuple[str, ...] | None:
    """Returns the arguments of `clusterkit submit` for a run alone, without dependencies; None if none do."""
    given = list(request.given)
    if member is not None:
        if {"recipe", "task"} & member.values.keys() or member.previous:
            return None
        if steps := member.values.get("total_steps"):
            given += ["--total-steps", steps]
    words = ["--cluster", request.cluster.name, "--profile", request.profile.name]
    if request.name is not None:
        words += ["--name", request.name]
    if request.seed is not None:
        words += ["--seed", str(request.seed)]
    words += given
    for name, value in request.overrides.items():
        words += ["--set", f"{name}={value}"]
    for name in request.unlock:
        words += ["--unlock", name]
    if request.first is not None:
        words += ["--first", str(request.first)]
    for option in request.native:
        words += [NATIVE_OPTION, option]
    if request.until_done is not None:
        words.append("--until-done" if request.until_done else "--not-until-done")
    if request.verify_image:
        words.append("--verify-image")
    return (*words, "--", *request.arguments) if request.arguments else tuple(words)
