"""The submissions of a group: their options and job scripts, and submitting them in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from clusterkit.backends import backend_of
from clusterkit.backends.base import Continuation, Kind, Parent
from clusterkit.backends.job_script import GroupScript, render_group
from clusterkit.backends.jobs import SCHEDULER_LOG, JobState, group_log
from clusterkit.errors import ClusterkitError
from clusterkit.folders import work_folder
from clusterkit.runs.group import GroupPart, group_json, members_file, parts
from clusterkit.runs.handover import Parcel, SubmissionRefusedError, hand_over_parcel
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.plan import PlacedRun, Plan
from clusterkit.runs.spec import timestamp
from clusterkit.runs.submission import job_name, request_json
from clusterkit.site import Layout, Site


def split_group(
    plan: Plan, array_size: int | None, continuation: Continuation | None
) -> tuple[GroupPart, ...]:
    """Returns a group's submissions, with the options for continuation; none for a single run.

    Args:
        plan: the group's plan.
        array_size: maximum number of tasks in a job array; None for no limit.
        continuation: how runs continue past their time limits; None if they do not.
    """
    if plan.group is None:
        return ()
    split = parts(plan.group.dealt, array_size=array_size, at_once=plan.group.at_once)
    if not backend_of(plan.cluster).can.arrays:  # jobs index the lines of `members` directly
        split = [replace(part, origin=0) for part in split]
    if continuation is None:
        return tuple(split)
    return tuple(
        replace(part, options=(*part.options, *continuation.options))
        if any(plan.runs[index].goes_on for index in part.members)
        else part
        for part in split
    )


def part_options(plan: Plan, part: GroupPart) -> tuple[str, ...]:
    """Returns the options of a part, without its dependencies."""
    backend = backend_of(plan.cluster)
    tasks = part.tasks_of_array(always=not backend.can.arrays)
    return (*part.options, backend.array(*tasks)) if tasks else part.options


def part_script(plan: Plan, part: GroupPart, layout: Layout, options: tuple[str, ...]) -> str:
    """Returns the job script of a part, with all its options."""
    group, cluster, backend = plan.group, plan.cluster, backend_of(plan.cluster)
    assert group is not None
    return render_group(
        GroupScript(
            job_name=job_name(group.id, part.number),
            group_dir=f"{layout.root}/groups/{group.id}",
            part=part.number,
            origin=part.origin,
            first=part.first,
            pack=group.pack,
            scratch_root=layout.scratch if group.in_one > 1 else None,
            options=options,
            array=part.tasks_of_array(always=not backend.can.arrays) is not None,
            requeue=any(plan.runs[index].goes_on for index in part.members),
            mps=cluster.mps and plan.runs[0].profile.gpu_count > 0,
            prelude=cluster.prelude,
            trust=cluster.trust,
            group=cluster.group,
        ),
        backend,
    )


class GroupHandover:
    """Submits the parts of a group in order.

    The first part's remote command writes the whole group and all its run directories; those of the other
    parts only submit.
    """

    def __init__(
        self,
        site: Site,
        ledger: Ledger,
        plan: Plan,
        split: Sequence[GroupPart],
        placed: Sequence[PlacedRun],
        after: Sequence[Parent],
    ) -> None:
        assert plan.group is not None
        self._site, self._ledger, self._plan, self._split = site, ledger, plan, split
        self._placed, self._after, self._group = placed, after, plan.group
        self._backend = backend_of(plan.cluster)
        self._owner = f"groups/{plan.group.id}"
        self._alone = not self._backend.can.arrays
        """Whether each run is a separate job."""
        self._first_jobs: dict[int, str] = {}
        """First job id of each accepted part."""

    def over(self) -> tuple[tuple[LedgerRun, ...], ClusterkitError | None]:
        """Submits the parts; returns the runs of accepted parts, and why a part was not accepted.

        Raises:
            SchedulerError, TransportError: the first part was not accepted; then either nothing remains or
                its submission stays open.
        """
        trouble: ClusterkitError | None = None
        with work_folder(self._ledger.folder) as alive:  # shows that later parts are still being submitted
            for part in self._split:
                try:
                    job_id = hand_over_parcel(self._site, self._ledger, self._parcel(part), alive.name)
                except ClusterkitError as error:
                    if not self._first_jobs:
                        raise
                    if isinstance(error, SubmissionRefusedError):
                        self._give_up(part, error)
                    trouble = error
                    break
                self._first_jobs[part.number] = job_id
        known = (
            self._ledger.get(self._placed[index].spec.run_id)
            for part in self._split
            if part.number in self._first_jobs
            for index in part.members
        )
        return tuple(run for run in known if run is not None), trouble

    def _parcel(self, part: GroupPart) -> Parcel:
        options = (*part_options(self._plan, part), *self._waiting(part))
        created = timestamp(self._group.created)
        files = self._all_files(created) if part.number == 0 else {}
        script = part_script(self._plan, part, self._site.layout, options)
        files[f"{self._owner}/job.sh"] = script.encode("utf-8", "surrogateescape")
        files[f"{self._owner}/submissions/{part.number}/request.json"] = request_json(
            part.number, "first", created, options, part=part.number
        )
        rows = [one.row for one in self._placed]
        return Parcel(
            tuple(rows[index] for index in part.members),
            self._owner,
            files,
            options,
            number=part.number,
            tasks=tuple(part.task_of(index, always=self._alone) for index in part.members),
            later=tuple(row for row in rows if row.part > 0) if part.number == 0 else (),
        )

    def _all_files(self, created: str) -> dict[str, bytes | str]:
        """Returns the files of the group's folder and of all run directories."""
        group = self._group
        files: dict[str, bytes | str] = {
            f"{self._owner}/members": members_file(
                [one.row.run_dir for one in self._placed], group.dealt, group.pack
            ),
            f"{self._owner}/group.json": group_json(
                group.id,
                group.name,
                created,
                pack=group.pack,
                members=[one.spec.run_id for one in self._placed],
                values=[one.spec.sweep or {} for one in self._placed],
                split=self._split,
                in_one=group.in_one,
            ),
        }
        for part in self._split:
            options = part_options(self._plan, part)
            for index in part.members:
                one, task = self._placed[index], part.task_of(index, always=self._alone)
                submission = f"{one.folder}/submissions/0"
                files |= one.files()
                files[f"{submission}/request.json"] = one.request(
                    options, task=task, part=part.number, pack=group.pack
                )
                for name in ("asked", "answer", "error", "status"):
                    files[f"{submission}/{name}"] = (
                        f"../../../../{self._owner}/submissions/{part.number}/{name}"
                    )
                if not self._alone:
                    files[f"{one.folder}/{SCHEDULER_LOG}"] = (
                        f"../../{self._owner}/{group_log(part.number, task)}"
                    )
        return files

    def _waiting(self, part: GroupPart) -> tuple[str, ...]:
        """Returns the part's dependencies: the user's `--after`, its turn and the previous stage."""
        found = list(self._after) if part.stage == 0 else []
        if part.turn is not None and not self._alone:
            found.append(Parent(self._backend.array_id(self._first_jobs[part.turn]), "", "any"))
        if part.before is not None:
            found += self._stage_before(part, self._first_jobs[part.before])
        return self._backend.dependency(found)

    def _stage_before(self, part: GroupPart, before: str) -> list[Parent]:
        """Returns the dependencies of a part's runs on the corresponding runs of the previous stage."""
        always = self._group.then_always
        if not self._alone:
            several = part.tasks_of_array(always=False) is not None
            kind: Kind = "any" if always else "corr" if several else "ok"
            return [Parent(self._backend.array_id(before), "", kind)]
        found = []
        for index in part.members:
            member = self._plan.runs[index].member
            run = self._ledger.get((member and member.previous) or "")
            if run is not None:
                task = part.task_of(index, always=True)
                found.append(Parent(run.job_id, run.run_dir, "any" if always else "ok", task))
        return found

    def _give_up(self, refused: GroupPart, error: ClusterkitError) -> None:
        """Records that this part and the following ones have no jobs."""
        last = json.dumps({"state": JobState.NOT_SUBMITTED, "why": error.cause})
        for one in self._placed:
            if one.row.part >= refused.number:
                self._ledger.settle(one.spec.run_id, "", JobState.NOT_SUBMITTED, last)
