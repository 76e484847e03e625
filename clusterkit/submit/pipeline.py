"""Turns a plan into jobs: check, publish, submit. Every command that creates a run's job uses this pipeline.

    plan = resolve(settings, request)          needs no connection (submit/request.py, submit/resubmit.py)
    check(settings, plan, ledger)              finds all errors before any work (submit/check.py)
    ready = prepare(site, ledger, plan, ...)   makes all files, with absolute paths on the cluster
    (submit/materials.py)                        checks the image and sends the code
    hand_over(site, ledger, ready)             submits exactly once, one remote command per submission

A dry run stops after the check. A single run is a group of one, with one part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import Continuation, Limits
from clusterkit.backends.submission import SubmissionOutcome
from clusterkit.errors import ClusterkitError, ConfigError, SchedulerError
from clusterkit.images.image import Image
from clusterkit.probes import ask
from clusterkit.runs.ledger import ALONE, Ledger, LedgerRun
from clusterkit.runs.program import PREVIOUS
from clusterkit.runs.secret_values import SecretValues, find_secrets
from clusterkit.runs.spec import run_id, slug
from clusterkit.site import Site, open_site
from clusterkit.snapshots import Snapshot
from clusterkit.submit.check import check, check_script, check_trainer, parents
from clusterkit.submit.handover import Parcel, hand_over_parcel, other_jobs, settle_unclear, short_names
from clusterkit.submit.materials import (
    Materials,
    environment_of,
    image_of,
    layout_of,
    must_have_image,
    send_environment,
    send_snapshot,
    take_snapshot,
    without_values,
)
from clusterkit.submit.own_program import check_reach, with_program_python
from clusterkit.submit.plan import PlacedRun, Plan, PlannedRun, Ready, place
from clusterkit.submit.request import SubmitRequest, check_together, plan_of, resolve_run
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.submit.group import GroupPart
    from clusterkit.transport.ahead import LoginAhead

_DIFFS = 16 << 20
"""Maximum characters of the diff in all run.json of a group; above it only the first contains the diff."""
_LIMITS_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Submitted(Ready):
    """The result of submitting a plan."""

    runs: tuple[LedgerRun, ...]
    """The accepted runs."""
    trouble: ClusterkitError | None
    """Why runs are missing."""
    settled: Mapping[str, SubmissionOutcome] = field(default_factory=dict)
    """Outcomes of earlier interrupted submissions, by run id."""
    trusted: tuple[str, ...] = ()
    """A line for each folder on the cluster that a trusted other user could change."""
    lacking: tuple[str, ...] = ()
    """Descriptions of requested hardware that the machine lacks, for runs that can start anyway."""
    to_build: bool = False
    """Whether the first job has to build the project's environment."""
    others: tuple[str, ...] = ()
    """Ids of the run's further jobs, of which the first to start takes it."""
    refused: tuple[str, ...] = ()
    """Why the scheduler refused one of those."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Run ids of runs that were not accepted."""
        taken = {run.run_id for run in self.runs}
        return tuple(run.spec.run_id for run in self.placed if run.spec.run_id not in taken)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The job ids, with each job array once."""
        backend = backend_of(self.plan.cluster)
        return tuple(dict.fromkeys(backend.array_id(run.job_id) for run in self.runs))


@dataclass(frozen=True)
class DryRun:
    """The effect that submitting a plan would have."""

    plan: Plan
    parts: tuple[GroupPart, ...]
    """The group's parts."""
    scripts: tuple[str, ...]
    """The job script of each part of a group."""
    first: PlacedRun
    snapshot: Snapshot | None
    """None for a run with the code of an earlier one."""
    image: Image | None
    continuation: Continuation | None
    lacking: tuple[str, ...] = ()
    """As of `Submitted`."""


def resolve(settings: Settings, request: SubmitRequest) -> Plan:
    """Resolves and checks every requested run, without a connection.

    Raises:
        ConfigError, RecipeLockedError: the request is wrong.
    """
    check_together(request)
    if request.several:
        from clusterkit.submit.resolve_group import resolve_group

        return resolve_group(settings, request)
    now = datetime.now(UTC)
    identity = run_id(request.name or request.profile.name, now, token_hex(2))
    return plan_of(request, [resolve_run(settings, request, identity, now)])


def submit(
    settings: Settings,
    plan: Plan,
    ledger: Ledger,
    *,
    bar: Bar,
    agree: Callable[[Plan], None] | None = None,
    login: LoginAhead | None = None,
) -> Submitted:
    """Checks a plan of new runs, publishes their code and submits them, with one login.

    Accepted parts of a group stay submitted even if later parts fail.

    Args:
        settings: the project's settings.
        plan: the runs.
        ledger: the project's ledger.
        bar: opens progress bars.
        agree: called with the checked plan before anything is sent; it raises to abort.
        login: a login to the cluster that was started already; its starter ends it.

    Raises:
        ConfigError, RunError: the request is wrong, or shows a secret's value; nothing was sent.
        ImageError: the cluster does not have the image.
        SchedulerError: a run can never work on the cluster; or the scheduler refused it: the message quotes
            the scheduler, and the run directory is removed.
        TransportError: the cluster cannot be reached.
    """
    lacking = check(settings, plan, ledger)
    secrets = find_secrets(settings)
    secrets.refuse_shown(plan=plan)
    snapshot, image = take(settings, plan, ledger, secrets, bar)
    environment = environment_of(settings, plan.cluster, image)
    if agree is not None:
        agree(plan)
    with open_site(plan.cluster, login=login) as site:
        settled = settle_unclear(site, ledger)
        ready = prepare(site, ledger, plan, Materials.taken(snapshot, image, environment), secrets)
        must_have_image(site, image, hint=f"run `clusterkit deploy --cluster {plan.cluster.name}` first")
        to_build = send_environment(site, environment, image, bar)
        send_snapshot(site, snapshot, ledger, bar)
        done = hand_over(site, ledger, ready)
    return replace(done, settled=settled, lacking=lacking, to_build=to_build)


def dry_run(settings: Settings, plan: Plan, ledger: Ledger, *, bar: Bar) -> DryRun:
    """Returns what `submit` would do, without changing anything or reading the cluster's array limits.

    It logs in only if the root depends on the account (`~`, `$USER`), or to ask how runs can continue past
    their time limit.

    Raises:
        ConfigError, RunError, ImageError, SchedulerError, TransportError: as `submit`.
    """
    lacking = check(settings, plan, ledger)
    secrets = find_secrets(settings)
    secrets.refuse_shown(plan=plan)
    snapshot, image = take(settings, plan, ledger, secrets, bar)
    environment = environment_of(settings, plan.cluster, image)
    would = foresee(settings, plan, Materials.taken(snapshot, image, environment), secrets, snapshot)
    return replace(would, lacking=lacking)


def foresee(
    settings: Settings,
    plan: Plan,
    materials: Materials,
    secrets: SecretValues,
    snapshot: Snapshot | None = None,
) -> DryRun:
    """Returns what submitting a checked plan would do; logs in as `dry_run` does.

    Raises:
        ConfigError, SchedulerError, TransportError: as `submit`.
    """
    materials = without_values(secrets, materials)
    secrets.refuse_shown(plan=plan, snapshot=materials.facts, environment=materials.environment)
    continuation = None
    if any(run.goes_on for run in plan.runs):
        with open_site(plan.cluster, create=False) as site:
            layout = site.layout
            continuation = _continuation(site, plan, ask_limits(site, plan))
    else:
        layout = layout_of(plan.cluster)
    first = plan.runs[0]
    cluster = with_program_python(plan.cluster, first.program.argv, settings.project_dir)
    placed = place(first, materials, cluster, layout, continuation if first.goes_on else None, secrets)
    split: tuple[GroupPart, ...] = ()
    scripts: tuple[str, ...] = ()
    if plan.group is not None:
        from clusterkit.submit.parts import part_options, part_script, split_group

        split = split_group(plan, Limits(), continuation)
        scripts = tuple(part_script(plan, part, layout, part_options(plan, part)) for part in split)
    return DryRun(plan, split, scripts, placed, snapshot, materials.image, continuation)


def ask_limits(site: Site, plan: Plan) -> Limits | None:
    """Asks for the cluster's limits for the plan's jobs; None if its scheduler does not report them.

    Raises:
        SchedulerError: the limits are unknown, and the settings let the scheduler decide how runs continue.
        TransportError: the connection failed.
    """
    probe = backend_of(site.cluster).limits(_measure(plan).submission.options)
    answers = ask(site.transport, probe, check=False, timeout=_LIMITS_SECONDS)
    try:
        return answers.of(probe)
    except SchedulerError:
        if site.cluster.continue_by == "auto" and any(run.goes_on for run in plan.runs):
            raise
        return None


def prepare(site: Site, ledger: Ledger, plan: Plan, materials: Materials, secrets: SecretValues) -> Ready:
    """Asks the cluster for limits and dependencies and makes all files; writes nothing yet.

    Raises:
        ConfigError: a run cannot continue past its time limit as configured, or shows a secret's value.
        RunError: a run depends on a run that has failed.
        SchedulerError, TransportError: the cluster did not answer.
    """
    materials = without_values(secrets, materials)
    secrets.refuse_shown(plan=plan, snapshot=materials.facts, environment=materials.environment)
    after = parents(site, ledger, plan.after)
    backend, several = backend_of(site.cluster), plan.group is not None and plan.group.jobs > 1
    asks = any(run.goes_on for run in plan.runs) or (several and backend.can.arrays)
    limits = ask_limits(site, plan) if asks else None
    continuation = _continuation(site, plan, limits)
    split: tuple[GroupPart, ...] = ()
    fed = False
    if plan.group is not None:
        from clusterkit.submit.parts import is_fed, split_group

        site_limits = limits or backend.usual_limits()
        split = split_group(plan, site_limits, continuation)
        fed = is_fed(plan, split, site_limits)
    part_of = {index: part.number for part in split for index in part.members}
    leaner = replace(materials, facts={**materials.facts, "diff": None})
    large = len(materials.facts.get("diff") or "") * len(plan.runs) > _DIFFS
    names = short_names(site, ledger, plan, slug(plan.runs[0].spec.project))
    placed = tuple(
        place(
            run,
            leaner if large and index else materials,
            with_program_python(plan.cluster, run.program.argv, ledger.folder.parent),
            site.layout,
            continuation if run.goes_on else None,
            secrets,
            part=part_of.get(index, ALONE if run.member else 0),
            previous_there=run.member is not None or _previous_there(site, run.program.env),
            short=names[index],
        )
        for index, run in enumerate(plan.runs)
    )
    return Ready(plan, placed, split, after, continuation, fed)


def _measure(plan: Plan) -> PlannedRun:
    """Returns the run whose partition's limits apply: the first one that continues past its time limit."""
    return next((run for run in plan.runs if run.goes_on), plan.runs[0])


def _continuation(site: Site, plan: Plan, limits: Limits | None) -> Continuation | None:
    """Determines how the runs continue past their time limits; None if none does.

    Raises:
        ConfigError: the runs cannot continue as configured; or a group's runs cannot be requeued (a group is
            already a job array and cannot be a chain).
    """
    if not any(run.goes_on for run in plan.runs):
        return None
    cluster, options = site.cluster, _measure(plan).submission.options
    backend = backend_of(cluster)
    if limits is not None:
        backend.check_limits(cluster, limits, options)
    found = backend.continuation(limits, cluster.continue_by, options)
    if any(run.others for run in plan.runs) and found.way != "requeue":
        raise ConfigError(
            f"a run with --first continues past its time limit only by requeue, but {cluster.name} would use "
            f"{found.way}: {found.why}",
            hint="leave --first out, or submit without --until-done and `resume` the run",
        )
    if plan.group is not None and found.way != "requeue":
        raise ConfigError(
            f"runs of a group continue past their time limit only by requeue, but {cluster.name} would use "
            f"{found.way}: {found.why}",
            hint="submit the runs one by one, or without --until-done and `resume` them",
        )
    return found


def take(
    settings: Settings, plan: Plan, ledger: Ledger, secrets: SecretValues, bar: Bar
) -> tuple[Snapshot, Image | None]:
    """Reads the image and the working tree, and checks its programs: their scripts, and the runs' values."""
    image = image_of(plan.cluster, ledger, bar, [each for run in plan.runs for each in run.requests])
    trainer = any(run.uses_trainer for run in plan.runs)
    snapshot = take_snapshot(settings, secrets, plan.allow_large, ledger, trainer=trainer)
    check_reach(plan, snapshot.project.root, snapshot.project.files)
    for run in plan.runs:
        check_script(snapshot.project, run.program.argv)
        if run.program.recipe is None:
            check_trainer(snapshot, run.program.argv)
    return snapshot, image


def hand_over(site: Site, ledger: Ledger, ready: Ready) -> Submitted:
    """Submits a plan to a cluster that has its image and code.

    The scheduler accepts all of it, nothing, or the first parts of a group.

    Raises:
        SchedulerError, TransportError: the first submission was not accepted; then either nothing remains or
            the submission stays open.
    """
    trouble: ClusterkitError | None = None
    others: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    if ready.split:
        from clusterkit.submit.parts import hand_over_parts

        if ready.fed:
            from clusterkit.submit.feeding import hand_over_fed

            accepted = hand_over_fed(site, ledger, ready)
        else:
            accepted, trouble = hand_over_parts(site, ledger, ready)
    else:
        (run,) = ready.placed
        waits = backend_of(site.cluster).dependency(ready.after)
        requests = [replace(each, options=(*each.options, *waits)) for each in run.submissions]
        first = requests[0]
        files = run.files(requests)
        parcel = Parcel(
            (run.row,),
            run.folder,
            files,
            first.options,
            first.number,
            needs=run.needs,
            secrets=(run.sealed.folder,) if run.sealed else (),
        )
        accepted = (replace(run.row, job_id=hand_over_parcel(site, ledger, parcel)),)
        if len(requests) > 1:
            others, refused = other_jobs(site, run.row.run_dir)
    return Submitted(
        **vars(ready), runs=accepted, trouble=trouble, trusted=site.notes, others=others, refused=refused
    )


def _previous_there(site: Site, env: Mapping[str, str]) -> bool:
    """Returns whether the run directory of a resubmitted run's previous stage exists on this cluster."""
    before = env.get(PREVIOUS, "")
    if not before or before != site.layout.run(before.rpartition("/")[2]):
        return False  # the program gets no other folder mounted
    return site.transport.run(["test", "-d", before], check=False).returncode == 0
