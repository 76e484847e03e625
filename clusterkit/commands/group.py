"""Submits a group of runs over one login, or says what that would do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterkit.backends.slurm.abilities import Choice
from clusterkit.backends.slurm.arrays import QUESTION, array_size
from clusterkit.commands.after import parents
from clusterkit.commands.deploy import Bar, take_snapshot
from clusterkit.commands.fitting import check_fit
from clusterkit.commands.parts import Handed, Handover, part_options, part_script
from clusterkit.commands.prepare import Prepared, goes_on, prepare
from clusterkit.commands.submit import bring, image_of, layout_of, settle_unclear
from clusterkit.commands.sweep import GroupPlan
from clusterkit.commands.until_done import choose_way
from clusterkit.errors import ClusterkitError, ConfigError
from clusterkit.runs.group import Part, parts
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.submission import Outcome
from clusterkit.site import Site, open_site

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

_DIFFS = 16 << 20
"""Characters of the working tree's changes in all run.json of a group; beyond, only the first has them."""


@dataclass(frozen=True)
class SubmittedGroup:
    """What has become of a group."""

    plan: GroupPlan
    handed: tuple[Handed, ...]
    runs: tuple[LedgerRun, ...]
    """Those that the scheduler has accepted."""
    missing: tuple[str, ...]
    """Run ids of the others."""
    trouble: ClusterkitError | None
    """Why some are missing."""
    snapshot_sent: bool
    settled: Mapping[str, Outcome]
    lacking: tuple[str, ...] = ()
    """What they ask for and will not have."""
    trusted: tuple[str, ...] = ()
    """A line for each folder there that a user whom the settings trust could change."""


def submit(settings: Settings, planned: GroupPlan, ledger: Ledger, *, bar: Bar) -> SubmittedGroup:
    """Submit a group over one login; what is accepted stays, whatever becomes of the rest.

    Raises:
        ConfigError, RunError, ImageError, SchedulerError, TransportError: as for a single run, as long as no
            part has been accepted.
    """
    base = planned.request.base
    lacking = _check_fit(settings, planned)
    image = image_of(base.cluster, ledger, bar)
    snapshot = take_snapshot(settings, base.allow_large, ledger)
    with open_site(base.cluster) as site:
        settled = settle_unclear(site, ledger)
        first = parents(site, ledger, base.after)
        size = None if site.cluster.kind == "local" or planned.jobs == 1 else _array_size(site)
        choice = _choice(settings, site, planned)
        prepared = _slimmed(
            prepare(settings, one.request, site.layout, snapshot, image, one.member, way=_always(choice))
            for one in planned.members
        )
        split = [_going_on(part, settings, planned, choice) for part in _split(planned, size)]
        sent = bring(site, snapshot, image, ledger, bar)
        handed, trouble = Handover(site, ledger, planned, split, prepared, first).over()
    accepted = [index for each in handed for index in each.part.members]
    runs = [ledger.get(planned.members[index].member.run_id) for index in accepted]
    missing = [one.member.run_id for one in planned.members if one.index not in accepted]
    known = tuple(run for run in runs if run is not None)
    left = tuple(missing)
    return SubmittedGroup(planned, tuple(handed), known, left, trouble, sent, settled, lacking, site.notes)


def dry_run(
    settings: Settings, planned: GroupPlan, ledger: Ledger, *, bar: Bar
) -> tuple[list[Part], list[str], Prepared]:
    """What `submit` would do; nothing is changed on the cluster, and its array limits are not asked for.

    It is logged in to only when its root depends on the account there, or to ask how the runs can go on past
    their time limits.

    Returns:
        The parts, their job scripts, and the first run.

    Raises:
        ConfigError, RunError, ImageError, TransportError: as `submit`.
    """
    base = planned.request.base
    _check_fit(settings, planned)
    image = image_of(base.cluster, ledger, bar)
    snapshot = take_snapshot(settings, base.allow_large, ledger)
    layout, choice, one = None, None, planned.members[0]
    if any(goes_on(settings, each.request) for each in planned.members):
        with open_site(base.cluster, create=False) as site:
            layout, choice = site.layout, _choice(settings, site, planned)
    layout = layout or layout_of(base.cluster)
    split = [_going_on(part, settings, planned, choice) for part in _split(planned, None)]
    first = prepare(settings, one.request, layout, snapshot, image, one.member, way=_always(choice))
    scripts = [part_script(planned, part, layout, part_options(planned, part)) for part in split]
    return split, scripts, first


def _check_fit(settings: Settings, planned: GroupPlan) -> tuple[str, ...]:
    wanted = {one.request.profile.name: one for one in planned.members}.values()
    return check_fit(
        settings, planned.request.base.cluster, ((one.request.profile, one.argv) for one in wanted)
    )


def _choice(settings: Settings, site: Site, planned: GroupPlan) -> Choice | None:
    """How its runs go on past their time limits, asked once for all of them; None when none is to.

    Raises:
        ConfigError: they cannot be requeued there: a group is a job array itself, and no chain.
    """
    if not any(goes_on(settings, one.request) for one in planned.members):
        return None
    choice = choose_way(site, planned.dealt[0].options)
    if choice.way != "requeue":
        raise ConfigError(
            f"runs of a group go on past their time limit by a requeue, and {site.cluster.name} would do it "
            f"by {choice.way}: {choice.why}",
            hint="submit the runs one by one, or without --until-done and `resume` them",
        )
    return choice


def _always(choice: Choice | None) -> Callable[[Sequence[str]], Choice] | None:
    return None if choice is None else lambda _options: choice


def _going_on(part: Part, settings: Settings, planned: GroupPlan, choice: Choice | None) -> Part:
    """The part with what its runs need to go on past their time limits."""
    if choice and any(goes_on(settings, planned.members[index].request) for index in part.members):
        return replace(part, options=(*part.options, *choice.options))
    return part


def _slimmed(prepared: Iterable[Prepared]) -> list[Prepared]:
    """Runs whose uncommitted changes, all the same, do not travel a thousand times when they are large."""
    runs = list(prepared)
    diff = runs[0].spec.snapshot.get("diff") or ""
    if len(diff) * len(runs) <= _DIFFS:
        return runs
    rest = (
        replace(one, spec=replace(one.spec, snapshot={**one.spec.snapshot, "diff": None})) for one in runs[1:]
    )
    return [runs[0], *rest]


def _split(planned: GroupPlan, size: int | None) -> list[Part]:
    split = parts(planned.dealt, array_size=size, at_once=planned.at_once)
    if planned.request.base.cluster.kind == "local":  # it reads the lines of `members` by their own numbers
        return [replace(part, origin=0) for part in split]
    return split


def _array_size(site: Site) -> int:
    return array_size(site.transport.run(["sh", "-c", QUESTION], check=False, timeout=60.0).text)
