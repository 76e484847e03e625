"""From a plan to jobs: check, publish, hand over. Every command that makes a job goes this way.

    plan = resolve(settings, request)          what is asked for, worked out; or resume_plan, rerun_plan
    check(settings, plan, ledger)              everything that can be wrong, before any work
    ready = prepare(site, ledger, plan, ...)   all files, with the absolute paths of the cluster
    (runs/materials.py)                        the image is there, the code is sent
    hand_over(site, ledger, ready)             exactly once, by one remote command for each submission

A dry run is the same, stopped after the check. One run is a group of one: it has one part, which is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.base import Continuation, Limits, Parent
from clusterkit.backends.jobs import JobState
from clusterkit.errors import ClusterkitError, ConfigError, SchedulerError
from clusterkit.images.image import Image
from clusterkit.probes import ask
from clusterkit.runs.after import check_after, parents
from clusterkit.runs.fitting import check_fit
from clusterkit.runs.handover import Parcel, hand_over_parcel
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.materials import (
    image_of,
    layout_of,
    must_have_image,
    send_snapshot,
    take_snapshot,
)
from clusterkit.runs.own_words import check_script
from clusterkit.runs.plan import PREVIOUS, Materials, PlacedRun, Plan, place
from clusterkit.runs.submission import SubmissionOutcome
from clusterkit.site import Site, open_site
from clusterkit.snapshots import Snapshot
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.group import GroupPart

_DIFFS = 16 << 20
"""Characters of the working tree's changes in all run.json of a group; beyond, only the first has them."""
_LIMITS_SECONDS = 60.0


@dataclass(frozen=True)
class Submitted:
    """What has become of a plan."""

    plan: Plan
    placed: tuple[PlacedRun, ...]
    runs: tuple[LedgerRun, ...]
    """Those that the scheduler has accepted."""
    missing: tuple[str, ...]
    """Run ids of the others."""
    trouble: ClusterkitError | None
    """Why some are missing."""
    continuation: Continuation | None
    """How they go on past their time limits."""
    settled: Mapping[str, SubmissionOutcome] = field(default_factory=dict)
    """Earlier runs whose submission was interrupted, and what has come of it, by run id."""
    trusted: tuple[str, ...] = ()
    """A line for each folder there that a user whom the settings trust could change."""
    lacking: tuple[str, ...] = ()
    """What they request and the machine lacks, though they start."""

    @property
    def jobs(self) -> tuple[str, ...]:
        """Ids of the jobs, that of a job array once."""
        backend = backend_of(self.plan.cluster)
        return tuple(dict.fromkeys(backend.array_id(run.job_id) for run in self.runs))


@dataclass(frozen=True)
class DryRun:
    """What a plan would do."""

    plan: Plan
    parts: tuple[GroupPart, ...]
    """Of a group."""
    scripts: tuple[str, ...]
    """Of each part of a group."""
    first: PlacedRun
    snapshot: Snapshot
    image: Image | None
    continuation: Continuation | None


def submit(settings: Settings, plan: Plan, ledger: Ledger, *, bar: Bar) -> Submitted:
    """Check a plan of new runs, publish what they are made of, and hand them over, all over one login.

    What is accepted stays, whatever becomes of the rest of a group.

    Raises:
        ConfigError, RunError: the request is wrong; nothing was sent.
        ImageError: the cluster does not have the image.
        SchedulerError: a run can never run there; or the scheduler refused, its words are in the message and
            the run directory is gone.
        TransportError: the cluster cannot be reached.
    """
    lacking, snapshot, image = _check_new(settings, plan, ledger, bar)
    with open_site(plan.cluster) as site:
        settled = settle_unclear(site, ledger)
        ready = prepare(site, ledger, plan, Materials.taken(snapshot, image))
        must_have_image(site, image, hint=f"run `clusterkit deploy --cluster {plan.cluster.name}` first")
        send_snapshot(site, snapshot, ledger, bar)
        done = hand_over(site, ledger, ready)
    return replace(done, settled=settled, lacking=lacking)


def dry_run(settings: Settings, plan: Plan, ledger: Ledger, *, bar: Bar) -> DryRun:
    """What `submit` would do; nothing is changed on the cluster, and its array limits are not asked for.

    It is logged in to only when its root depends on the account there (`~`, `$USER`), or to ask how runs can
    go on past their time limit.

    Raises:
        ConfigError, RunError, ImageError, SchedulerError, TransportError: as `submit`.
    """
    _, snapshot, image = _check_new(settings, plan, ledger, bar)
    continuation = None
    if any(run.goes_on for run in plan.runs):
        with open_site(plan.cluster, create=False) as site:
            layout = site.layout
            continuation = _continuation(site, plan, ask_limits(site, plan))
    else:
        layout = layout_of(plan.cluster)
    first = plan.runs[0]
    placed = place(
        first, Materials.taken(snapshot, image), plan.cluster, layout, continuation if first.goes_on else None
    )
    split: tuple[GroupPart, ...] = ()
    scripts: tuple[str, ...] = ()
    if plan.group is not None:
        from clusterkit.runs.parts import part_options, part_script, split_group

        split = split_group(plan, None, continuation)
        scripts = tuple(part_script(plan, part, layout, part_options(plan, part)) for part in split)
    return DryRun(plan, split, scripts, placed, snapshot, image, continuation)


def check(settings: Settings, plan: Plan, ledger: Ledger) -> tuple[str, ...]:
    """Find out what is wrong with a plan before any work.

    Returns:
        What the runs request and the machine lacks, though they start.

    Raises:
        ConfigError, RunError: what it waits for is not known, or elsewhere.
        SchedulerError: a run can never run there.
        TransportError: the machine gave no answer.
    """
    check_after(ledger, plan.cluster, plan.after, plan.native)
    wanted = {run.profile.name: (run.profile, run.program.argv) for run in plan.runs}
    return check_fit(settings, plan.cluster, wanted.values())


def settle_unclear(site: Site, ledger: Ledger) -> dict[str, SubmissionOutcome]:
    """What has come of earlier submissions to this cluster that were interrupted, by run id."""
    unclear = [run for run in ledger.runs(cluster=site.cluster.name) if run.state == JobState.SUBMITTING]
    if not unclear:
        return {}
    from clusterkit.runs.settling import settle

    return settle(site.cluster, site.transport, ledger, unclear)


def ask_limits(site: Site, plan: Plan) -> Limits | None:
    """What the cluster allows jobs like those of the plan; None where its scheduler does not say.

    Raises:
        SchedulerError: it does not say, and the settings leave it to the scheduler how runs go on.
        TransportError: the connection failed.
    """
    probe = backend_of(site.cluster).limits(plan.runs[0].options)
    answers = ask(site.transport, probe, check=False, timeout=_LIMITS_SECONDS)
    try:
        return answers.of(probe)
    except SchedulerError:
        if site.cluster.continue_by == "auto" and any(run.goes_on for run in plan.runs):
            raise
        return None


@dataclass(frozen=True)
class Ready:
    """A plan with everything that is written of it, for one cluster."""

    plan: Plan
    placed: tuple[PlacedRun, ...]
    split: tuple[GroupPart, ...]
    """The submissions of a group."""
    after: tuple[Parent, ...]
    """What the first stage waits for."""
    continuation: Continuation | None


def prepare(site: Site, ledger: Ledger, plan: Plan, materials: Materials) -> Ready:
    """Ask the cluster what decides about the jobs of a plan, and work out all files; nothing is written yet.

    Raises:
        ConfigError: it cannot go on past its time limit as the settings want.
        RunError: it waits for a run that has failed.
        SchedulerError, TransportError: the cluster did not say.
    """
    after = parents(site, ledger, plan.after)
    several = plan.group is not None and plan.group.jobs > 1
    asks = any(run.goes_on for run in plan.runs) or (several and backend_of(site.cluster).can.arrays)
    limits = ask_limits(site, plan) if asks else None
    continuation = _continuation(site, plan, limits)
    split: tuple[GroupPart, ...] = ()
    if plan.group is not None:
        from clusterkit.runs.parts import split_group

        split = split_group(plan, limits.array_size if limits else None, continuation)
    part_of = {index: part.number for part in split for index in part.members}
    leaner = replace(materials, facts={**materials.facts, "diff": None})
    large = len(materials.facts.get("diff") or "") * len(plan.runs) > _DIFFS
    placed = tuple(
        place(
            run,
            leaner if large and index else materials,
            plan.cluster,
            site.layout,
            continuation if run.goes_on else None,
            part=part_of.get(index, 0),
            previous_there=run.member is not None or _previous_there(site, run.program.env),
        )
        for index, run in enumerate(plan.runs)
    )
    return Ready(plan, placed, split, after, continuation)


def _continuation(site: Site, plan: Plan, limits: Limits | None) -> Continuation | None:
    """How the runs go on past their time limits; None when none is to.

    Raises:
        ConfigError: they cannot in the wanted way; or those of a group cannot be requeued, and a group is a
            job array itself, and no chain.
    """
    going = [run for run in plan.runs if run.goes_on]
    if not going:
        return None
    cluster, options = site.cluster, going[0].options
    backend = backend_of(cluster)
    if limits is not None:
        backend.check_limits(cluster, limits, options)
    found = backend.continuation(limits, cluster.continue_by, options)
    if plan.group is not None and found.way != "requeue":
        raise ConfigError(
            f"runs of a group go on past their time limit by a requeue, and {cluster.name} would do it "
            f"by {found.way}: {found.why}",
            hint="submit the runs one by one, or without --until-done and `resume` them",
        )
    return found


def _check_new(
    settings: Settings, plan: Plan, ledger: Ledger, bar: Bar
) -> tuple[tuple[str, ...], Snapshot, Image | None]:
    lacking = check(settings, plan, ledger)
    image = image_of(plan.cluster, ledger, bar)
    snapshot = take_snapshot(settings, plan.allow_large, ledger)
    for run in plan.runs:
        check_script(snapshot.project, run.program.argv)
    return lacking, snapshot, image


def hand_over(site: Site, ledger: Ledger, ready: Ready) -> Submitted:
    """Hand a plan over to a cluster that has what its runs are made of.

    All of it is accepted or nothing, or the first parts of a group.

    Raises:
        SchedulerError, TransportError: the first submission was not accepted; nothing is left then, or it
            stays open.
    """
    trouble: ClusterkitError | None = None
    if ready.split:
        from clusterkit.runs.parts import GroupHandover

        accepted, trouble = GroupHandover(
            site, ledger, ready.plan, ready.split, ready.placed, ready.after
        ).over()
    else:
        (one,) = ready.placed
        options = (*one.job.options, *backend_of(site.cluster).dependency(ready.after))
        number = one.planned.number
        request = {f"{one.folder}/submissions/{number}/request.json": one.request(options)}
        parcel = Parcel((one.row,), one.folder, {**one.files(), **request}, options, number)
        accepted = (replace(one.row, job_id=hand_over_parcel(site, ledger, parcel)),)
    taken = {run.run_id for run in accepted}
    missing = tuple(one.spec.run_id for one in ready.placed if one.spec.run_id not in taken)
    return Submitted(
        ready.plan, ready.placed, accepted, missing, trouble, ready.continuation, trusted=site.notes
    )


def _previous_there(site: Site, env: Mapping[str, str]) -> bool:
    """Whether a pipeline's stage before, of a run that is submitted again, has a run directory there."""
    before = env.get(PREVIOUS, "")
    if not before or before != site.layout.run(
        before.rpartition("/")[2]
    ):  # nothing else is shown to a program
        return False
    return site.transport.run(["test", "-d", before], check=False).returncode == 0
