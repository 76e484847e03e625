"""Submits a group of runs over one login.

A group is written by one remote command and is one job array, as far as the site's limits allow: else it is
split into parts, of which each is a submission.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterkit.errors import ClusterkitError, SchedulerError
from clusterkit.group import Part, group_json, members_file, parts
from clusterkit.ledger import Ledger, LedgerRun
from clusterkit.runspec import timestamp
from clusterkit.scheduler import JobState, Kind, Parent
from clusterkit.site import Site, open_site, scheduler_of
from clusterkit.slurm.arrays import QUESTION, array_size
from clusterkit.slurm.group_script import GroupScript, log_name, render_group
from clusterkit.submission import Outcome, request_json
from clusterkit.verbs.after import parents
from clusterkit.verbs.deploy import Bar, take_snapshot
from clusterkit.verbs.handover import Parcel, hand_over, job_name
from clusterkit.verbs.submit import (
    Prepared,
    bring,
    image_of,
    layout_of,
    ledger_run,
    prepare,
    run_files,
    settle_unclear,
)
from clusterkit.verbs.sweep import GroupPlan

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class Handed:
    """One part the scheduler has accepted."""

    part: Part
    job_id: str
    """Of its first task."""


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


def submit(settings: Settings, planned: GroupPlan, ledger: Ledger, *, bar: Bar) -> SubmittedGroup:
    """Submit a group over one login; what is accepted stays, whatever becomes of the rest.

    Raises:
        ConfigError, RunError, ImageError, SchedulerError, TransportError: as for a single run, as long as no
            part has been accepted.
    """
    base = planned.request.base
    image = image_of(base.cluster, ledger, bar)
    snapshot = take_snapshot(settings, base.allow_large)
    with open_site(base.cluster) as site:
        settled = settle_unclear(site, ledger)
        first = parents(site, ledger, base.after)
        size = None if site.cluster.kind == "local" or planned.jobs == 1 else _array_size(site)
        split = _split(planned, size)
        prepared = [
            prepare(settings, one.request, site.layout, snapshot, image, one.member)
            for one in planned.members
        ]
        sent = bring(site, snapshot, image, ledger, bar)
        hands = _Hands(site, ledger, planned, split, prepared, first)
        handed, trouble = hands.over()
    accepted = [index for each in handed for index in each.part.members]
    runs = [ledger.get(planned.members[index].member.run_id) for index in accepted]
    missing = [one.member.run_id for one in planned.members if one.index not in accepted]
    known = tuple(run for run in runs if run is not None)
    return SubmittedGroup(planned, tuple(handed), known, tuple(missing), trouble, sent, settled)


def dry_run(
    settings: Settings, planned: GroupPlan, ledger: Ledger, *, bar: Bar
) -> tuple[list[Part], list[str], Prepared]:
    """What `submit` would do; nothing is changed on the cluster, and its array limits are not asked for.

    Returns:
        The parts, their job scripts, and the first run.

    Raises:
        ConfigError, RunError, ImageError, TransportError: as `submit`.
    """
    base = planned.request.base
    image = image_of(base.cluster, ledger, bar)
    snapshot = take_snapshot(settings, base.allow_large)
    layout = layout_of(base.cluster)
    split = _split(planned, None)
    first = prepare(settings, planned.members[0].request, layout, snapshot, image, planned.members[0].member)
    scripts = [
        _script(planned, part, f"{layout.root}/groups/{planned.group}", _part_options(planned, part))
        for part in split
    ]
    return split, scripts, first


class _Hands:
    """Hands over one part after the other."""

    def __init__(
        self,
        site: Site,
        ledger: Ledger,
        planned: GroupPlan,
        split: Sequence[Part],
        prepared: Sequence[Prepared],
        first: Sequence[Parent],
    ) -> None:
        self._site, self._ledger, self._planned, self._split = site, ledger, planned, split
        self._prepared, self._first = prepared, first
        self._owner = f"groups/{planned.group}"
        self._always = site.cluster.kind == "local"
        part_of = {index: part.number for part in split for index in part.members}
        self._runs = [
            ledger_run(one, planned.members[index].request.profile, part_of[index])
            for index, one in enumerate(prepared)
        ]

    def over(self) -> tuple[list[Handed], ClusterkitError | None]:
        """The parts that were accepted, and why one was not.

        Raises:
            SchedulerError, TransportError: the first one was not; nothing is left then, or it stays open.
        """
        handed: list[Handed] = []
        for part in self._split:
            try:
                job_id = hand_over(self._site, self._ledger, self._parcel(part, handed))
            except ClusterkitError as error:
                if not handed:
                    raise
                if isinstance(error, SchedulerError):
                    self._give_up(part, error)
                return handed, error
            handed.append(Handed(part, job_id))
        return handed, None

    def _parcel(self, part: Part, handed: Sequence[Handed]) -> Parcel:
        options = (*_part_options(self._planned, part), *self._waiting(part, handed))
        group_dir = f"{self._site.layout.root}/{self._owner}"
        created = timestamp(self._planned.created)
        files: dict[str, bytes | str] = {}
        if part.number == 0:
            files |= self._all_files(created)
        script = _script(self._planned, part, group_dir, options)
        files[f"{self._owner}/job.sh"] = script.encode("utf-8", "surrogateescape")
        files[f"{self._owner}/submissions/{part.number}/request.json"] = request_json(
            part.number, "first", created, options, part=part.number
        )
        return Parcel(
            tuple(self._runs[index] for index in part.members),
            self._owner,
            files,
            options,
            number=part.number,
            tasks=tuple(part.task_of(index, always=self._always) for index in part.members),
            later=tuple(run for run in self._runs if run.part > 0) if part.number == 0 else (),
        )

    def _all_files(self, created: str) -> dict[str, bytes | str]:
        """The group's folder and all run directories."""
        planned = self._planned
        run_dirs = [one.run_dir for one in self._prepared]
        files: dict[str, bytes | str] = {
            f"{self._owner}/members": members_file(run_dirs, planned.dealt, planned.request.pack),
            f"{self._owner}/group.json": group_json(
                planned.group,
                planned.name,
                created,
                pack=planned.request.pack,
                members=[one.spec.run_id for one in self._prepared],
                values=[one.values for one in planned.members],
                split=self._split,
            ),
        }
        for part in self._split:
            options = _part_options(planned, part)
            for index in part.members:
                one, task = self._prepared[index], part.task_of(index, always=self._always)
                folder = f"runs/{one.spec.run_id}"
                files |= run_files(one)
                files[f"{folder}/submissions/0/request.json"] = request_json(
                    0,
                    "first",
                    created,
                    options,
                    task=task,
                    part=part.number,
                    pack=planned.request.pack,
                )
                for name in ("asked", "answer", "error", "status"):
                    files[f"{folder}/submissions/0/{name}"] = (
                        f"../../../../{self._owner}/submissions/{part.number}/{name}"
                    )
                if self._site.cluster.kind != "local":
                    files[f"{folder}/slurm.log"] = f"../../{self._owner}/{log_name(part.number, task)}"
        return files

    def _waiting(self, part: Part, handed: Sequence[Handed]) -> tuple[str, ...]:
        """What this part waits for: the user's `--after`, its turn, the stage before."""
        local = self._site.cluster.kind == "local"
        found = list(self._first) if part.stage == 0 else []
        if part.turn is not None and not local:
            found.append(Parent(_whole(handed[part.turn]), "", "any"))
        if part.before is not None:
            found += self._stage_before(part, handed[part.before], local=local)
        return scheduler_of(self._site.cluster).dependency(found)

    def _stage_before(self, part: Part, before: Handed, *, local: bool) -> list[Parent]:
        """A run of a stage starts after the run of the same place in the stage before."""
        always = self._planned.request.then_always
        if not local:
            kind: Kind = "any" if always else "corr" if part.array(always=False) else "ok"
            return [Parent(_whole(before), "", kind)]
        found = []
        for index in part.members:
            run = self._ledger.get(self._planned.members[index].member.previous or "")
            if run is not None:
                task = part.task_of(index, always=True)
                found.append(Parent(run.job_id, run.run_dir, "any" if always else "ok", task))
        return found

    def _give_up(self, refused: Part, error: ClusterkitError) -> None:
        """Note that there are no jobs for this part and those behind it."""
        last = json.dumps({"state": JobState.NOT_SUBMITTED, "why": error.cause})
        for run in self._runs:
            if run.part >= refused.number:
                self._ledger.settle(run.run_id, "", JobState.NOT_SUBMITTED, last)


def _split(planned: GroupPlan, size: int | None) -> list[Part]:
    split = parts(planned.dealt, array_size=size, at_once=planned.at_once)
    if planned.request.base.cluster.kind == "local":  # it reads the lines of `members` by their own numbers
        return [replace(part, origin=0) for part in split]
    return split


def _part_options(planned: GroupPlan, part: Part) -> tuple[str, ...]:
    """Without what it waits for."""
    always = planned.request.base.cluster.kind == "local"
    array = part.array(always=always)
    return (*part.options, array) if array else part.options


def _script(planned: GroupPlan, part: Part, group_dir: str, options: tuple[str, ...]) -> str:
    return render_group(
        GroupScript(
            job_name=job_name(planned.group, part.number),
            group_dir=group_dir,
            part=part.number,
            origin=part.origin,
            first=part.first,
            pack=planned.request.pack,
            options=options,
        )
    )


def _array_size(site: Site) -> int:
    return array_size(site.transport.run(["sh", "-c", QUESTION], check=False, timeout=60.0).text)


def _whole(handed: Handed) -> str:
    """The id of all of a part's tasks."""
    number, _, rest = handed.job_id.partition("_")
    return number + (f";{rest.partition(';')[2]}" if ";" in rest else "")
