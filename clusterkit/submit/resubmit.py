"""Plans a submission that repeats or continues an earlier run, with the requested changes. Pure."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.submission import Submission
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.program import Program, trains, wandb_environment
from clusterkit.runs.record import RunRecord
from clusterkit.runs.spec import RunSpec, run_id, timestamp, versions
from clusterkit.runs.state import RunState
from clusterkit.submit.plan import Plan, PlannedRun
from clusterkit.submit.request import Changes, early_signal, with_retry

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile, Wandb
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class Ended:
    """A run as recorded on its cluster."""

    run: LedgerRun
    """The ledger row, with the run's newest job."""
    state: RunState
    record: RunRecord
    spec: RunSpec

    @property
    def program(self) -> Program:
        """The program of the newest submission that was not refused."""
        return self.spec.program(self.record.request, self.run.run_dir)


def resume_plan(cluster: Cluster, ended: Ended, changes: Changes) -> Plan:
    """Plans a further submission of a run, which continues in its run directory.

    Args:
        cluster: the cluster to continue on.
        ended: the run.
        changes: the requested changes.

    Raises:
        ConfigError: the changes are impossible.
    """
    number = max((each.number for each in ended.record.submissions), default=-1) + 1
    return _changed(
        cluster,
        ended.spec,
        ended.record.request,
        Submission(number, "resume", timestamp(datetime.now(UTC))),
        _with_changes(ended.program, changes),
        changes,
        same_place=cluster.name == ended.run.cluster,
    )


def rerun_plan(
    settings: Settings,
    cluster: Cluster,
    spec: RunSpec,
    newest: Submission,
    changes: Changes,
    *,
    name: str | None,
    seed: int | None,
    same_place: bool,
) -> Plan:
    """Plans a new run with the code, image and arguments of an earlier one.

    Args:
        settings: the project's settings, for the W&B project.
        cluster: the target.
        spec: the earlier run.
        newest: its newest submission.
        changes: the requested changes.
        name: a new name; None keeps the earlier one.
        seed: a new seed; None keeps the earlier one.
        same_place: whether the earlier run was submitted to this cluster, so that its options apply.

    Raises:
        ConfigError: the changes are impossible.
    """
    now, wandb = datetime.now(UTC), settings.project.wandb
    program = spec.program(newest, "")
    # The W&B folder is the run directory, even if the run was moved to another cluster.
    program = replace(program, home=program.env.get("WANDB_DIR", ""))
    identity = run_id(name or spec.name, now, secrets.token_hex(2))
    new = replace(
        spec,
        run_id=identity,
        name=name or spec.name,
        created=timestamp(now),
        cluster=cluster.name,
        wandb={"run_id": identity, **wandb.model_dump(mode="json")},
        versions=versions(cluster),
        project=settings.project.name,
        short="",
        group=None,
        rerun_of=spec.run_id,
    )
    if seed is not None:
        program = program.with_seed(seed)
        new = replace(new, seed=seed)
        if "seed" in (new.sweep or {}):
            new = replace(new, sweep={**(new.sweep or {}), "seed": str(seed)})
    unplaced = ("seed",) if seed is not None and program.keeps_seed else ()
    program = _in_wandb(_with_changes(program, changes), wandb)
    submission = Submission(0, created=new.created)
    return _changed(
        cluster, new, newest, submission, program, changes, same_place=same_place, unplaced=unplaced
    )


def _in_wandb(program: Program, wandb: Wandb) -> Program:
    """Returns a rerun's program with a W&B run of its own, whatever the profile's `env` says.

    Two runs with the same W&B id would overwrite each other there.
    """
    own = ("WANDB_RUN_ID", "WANDB_DIR", "WANDB_ENTITY")
    env = {name: value for name, value in program.env.items() if name not in own}
    return replace(program, env={**env, **wandb_environment(wandb)})


def _recorded_profile(spec: RunSpec, newest: Submission) -> Profile:
    """Returns a run's profile, unvalidated because clusterkit checked it before writing."""
    from clusterkit.config.models import Profile, Retry

    known = {name: value for name, value in spec.profile.items() if name in Profile.model_fields}
    if retry := known.get("retry"):
        known["retry"] = Retry.model_construct(**retry)
    if newest.gpu:  # of several requests, that of the job that took the run
        known["gpu"] = newest.gpu
    return Profile.model_construct(**known)


def _with_changes(program: Program, changes: Changes) -> Program:
    """Returns the program with the requested hardware and number of steps."""
    if changes.profile:
        program = program.with_hardware(changes.profile)
    return program if changes.total_steps is None else program.with_steps(changes.total_steps)


def _changed(
    cluster: Cluster,
    spec: RunSpec,
    newest: Submission,
    submission: Submission,
    program: Program,
    changes: Changes,
    *,
    same_place: bool,
    unplaced: tuple[str, ...] = (),
) -> Plan:
    """Returns the plan of a submission that follows another one, with the changes applied."""
    profile = changes.profile or _recorded_profile(spec, newest)
    if changes.time is not None:
        profile = profile.model_copy(update={"time": changes.time})
    goes_on = newest.until_done is not None if changes.until_done is None else changes.until_done
    before = newest if same_place else Submission(0)
    run = PlannedRun(
        profile=profile,
        program=program,
        spec=replace(
            spec,
            profile=profile.model_dump(mode="json", warnings=False),
            total_steps=program.total_steps or spec.total_steps,
            time_limit_seconds=profile.time,
        ),
        submission=replace(
            submission,
            options=_options(cluster, before, changes, profile, program, goes_on=goes_on),
            verify_image=newest.verify_image,
            gpu=profile.gpu,
        ),
        goes_on=goes_on,
        unplaced=unplaced,
    )
    return Plan(cluster, (run,), native=changes.native)


def _options(
    cluster: Cluster,
    before: Submission,
    changes: Changes,
    profile: Profile,
    program: Program,
    *,
    goes_on: bool,
) -> tuple[str, ...]:
    """Returns the backend's options: those of the previous submission, with the changes applied.

    Args:
        cluster: the target.
        before: the previous submission; one without options if it was for another cluster.
        changes: the requested changes.
        profile: the profile with the changes.
        program: the program with the changes.
        goes_on: whether the run continues past its time limit.
    """
    backend, extra = backend_of(cluster), list(changes.native)
    if changes.profile is None and before.options:
        kept = backend.carried_over(before.options, time=changes.time is None, packed=before.pack > 1)
        named = {each.partition("=")[0] for each in extra}
        extra = [each for each in kept if each.partition("=")[0] not in named] + extra
    signal = early_signal(profile, trains=trains(program.argv), goes_on=goes_on)
    options = backend.options(cluster, profile, signal=signal, extra=extra)
    return with_retry(cluster, profile, options, goes_on=goes_on)
