"""Plans a submission that repeats or continues an earlier run, with the requested changes. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clusterkit.backends import backend_of
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.program import Program, trains, wandb_environment
from clusterkit.runs.record import RunRecord
from clusterkit.runs.spec import RunSpec, run_id, timestamp
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
    document: Mapping[str, Any]
    """run.json."""

    @property
    def program(self) -> Program:
        """The program of the newest submission that was not refused."""
        return Program.recorded(self.document, self.record.request, self.run.run_dir)


def resume_plan(cluster: Cluster, ended: Ended, changes: Changes) -> Plan:
    """Plans a further submission of a run, which continues in its run directory.

    Args:
        cluster: the cluster to continue on.
        ended: the run.
        changes: the requested changes.

    Raises:
        ConfigError: the changes are impossible.
    """
    document, before = ended.document, ended.record.request
    same_place = cluster.name == ended.run.cluster
    planned = PlannedRun(
        run_id=ended.run.run_id,
        name=ended.run.name,
        created=timestamp(datetime.now(UTC)),
        number=max((each.number for each in ended.record.submissions), default=-1) + 1,
        seed=document.get("seed"),
        before=RunSpec.from_document(document),
        **_changed(cluster, document, before, ended.program, changes, same_place=same_place),
    )
    return Plan(cluster, (planned,), native=changes.native)


def rerun_plan(
    settings: Settings,
    cluster: Cluster,
    document: Mapping[str, Any],
    request: Mapping[str, Any],
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
        document: run.json of the earlier run.
        request: the newest request.json of the earlier run.
        changes: the requested changes.
        name: a new name; None keeps the earlier one.
        seed: a new seed; None keeps the earlier one.
        same_place: whether the earlier run was submitted to this cluster, so that its options apply.

    Raises:
        ConfigError: the changes are impossible.
    """
    now, wandb = datetime.now(UTC), settings.project.wandb
    name = name or str(document["name"])
    program = Program.recorded(document, request, "")
    # The W&B folder is the run directory, even if the run was moved to another cluster.
    program = replace(program, home=program.env.get("WANDB_DIR", ""))
    before = RunSpec.from_document(document)
    if seed is not None:
        program = program.with_seed(seed)
        if "seed" in (before.sweep or {}):
            before = replace(before, sweep={**(before.sweep or {}), "seed": str(seed)})
    changed = _changed(cluster, document, request, program, changes, same_place=same_place)
    changed["program"] = _in_wandb(changed["program"], wandb)
    planned = PlannedRun(
        run_id=run_id(name, now, secrets.token_hex(2)),
        name=name,
        created=timestamp(now),
        seed=before.seed if seed is None else seed,
        unplaced=("seed",) if seed is not None and program.keeps_seed else (),
        wandb=wandb.model_dump(mode="json"),
        project=settings.project.name,
        before=before,
        **changed,
    )
    return Plan(cluster, (planned,), native=changes.native)


def _in_wandb(program: Program, wandb: Wandb) -> Program:
    """Returns a rerun's program with a W&B run of its own, whatever the profile's `env` says.

    Two runs with the same W&B id would overwrite each other there.
    """
    own = ("WANDB_RUN_ID", "WANDB_DIR", "WANDB_ENTITY")
    env = {name: value for name, value in program.env.items() if name not in own}
    return replace(program, env={**env, **wandb_environment(wandb)})


def recorded_profile(document: Mapping[str, Any]) -> Profile:
    """Returns the profile in a run.json, unvalidated because clusterkit checked it before writing."""
    from clusterkit.config.models import Profile, Retry

    known = {name: value for name, value in document["profile"].items() if name in Profile.model_fields}
    if retry := known.get("retry"):
        known["retry"] = Retry.model_construct(**retry)
    return Profile.model_construct(**known)


def _changed(
    cluster: Cluster,
    document: Mapping[str, Any],
    before: Mapping[str, Any],
    program: Program,
    changes: Changes,
    *,
    same_place: bool,
) -> dict[str, Any]:
    """Returns the `PlannedRun` fields taken from the previous submission, with the changes applied."""
    profile = changes.profile or recorded_profile(document)
    if not changes.profile and before.get("gpu"):  # of several requests, that of the job that took the run
        profile = profile.model_copy(update={"gpu": before["gpu"]})
    if changes.profile:
        program = program.with_hardware(changes.profile)
    if changes.total_steps is not None:
        program = program.with_steps(changes.total_steps)
    if changes.time is not None:
        profile = profile.model_copy(update={"time": changes.time})
    goes_on = bool(before.get("until_done")) if changes.until_done is None else changes.until_done
    return {
        "profile": profile,
        "program": program,
        "options": _options(
            cluster, before if same_place else {}, changes, profile, program, goes_on=goes_on
        ),
        "goes_on": goes_on,
        "total_steps": program.total_steps or document.get("total_steps"),
        "verify_image": before.get("verify_image") or "--verify-image" in (before.get("command") or ()),
    }


def _options(
    cluster: Cluster,
    before: Mapping[str, Any],
    changes: Changes,
    profile: Profile,
    program: Program,
    *,
    goes_on: bool,
) -> tuple[str, ...]:
    """Returns the backend's options: those of the previous submission, with the changes applied.

    Args:
        cluster: the target.
        before: request.json of the previous submission; empty if it was for another cluster.
        changes: the requested changes.
        profile: the profile with the changes.
        program: the program with the changes.
        goes_on: whether the run continues past its time limit.
    """
    backend, extra = backend_of(cluster), list(changes.native)
    if changes.profile is None and before.get("options"):
        packed = int(before.get("pack") or 1) > 1
        kept = backend.carried_over(
            [str(each) for each in before["options"]], time=changes.time is None, packed=packed
        )
        named = {each.partition("=")[0] for each in extra}
        extra = [each for each in kept if each.partition("=")[0] not in named] + extra
    signal = early_signal(profile, trains=trains(program.argv), goes_on=goes_on)
    options = backend.options(cluster, profile, signal=signal, extra=extra)
    return with_retry(cluster, profile, options, goes_on=goes_on)
