"""Hands over a group of runs, part by part.

The first part's remote command writes the whole group and all its run directories; those of the others only
ask the scheduler. What is accepted stays, whatever becomes of the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clusterkit.backends.base import JobState, Kind, Parent
from clusterkit.backends.slurm.group_script import GroupScript, log_name, render_group
from clusterkit.commands.again import words_of
from clusterkit.commands.handover import Parcel, RefusedError, hand_over, job_name
from clusterkit.commands.prepare import Prepared, ledger_run, run_files
from clusterkit.commands.sweep import GroupPlan, Planned
from clusterkit.errors import ClusterkitError
from clusterkit.folders import work_folder
from clusterkit.runs.group import Part, group_json, members_file
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.spec import timestamp
from clusterkit.runs.submission import array_id, request_json
from clusterkit.site import Layout, Site, scheduler_of


@dataclass(frozen=True)
class Handed:
    """One part the scheduler has accepted."""

    part: Part
    job_id: str
    """Of its first task."""


class Handover:
    """Hands over one part after the other.

    Args:
        site: the open cluster.
        ledger: of the project.
        planned: the group.
        split: its parts.
        prepared: its runs.
        first: what the parts of the first stage wait for.
    """

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
        with work_folder(self._ledger.folder) as alive:  # those of later parts wait for the ones before
            return self._over(alive.name)

    def _over(self, alive: str) -> tuple[list[Handed], ClusterkitError | None]:
        handed: list[Handed] = []
        for part in self._split:
            try:
                job_id = hand_over(self._site, self._ledger, self._parcel(part, handed), alive)
            except ClusterkitError as error:
                if not handed:
                    raise
                if isinstance(error, RefusedError):
                    self._give_up(part, error)
                return handed, error
            handed.append(Handed(part, job_id))
        return handed, None

    def _parcel(self, part: Part, handed: Sequence[Handed]) -> Parcel:
        options = (*part_options(self._planned, part), *self._waiting(part, handed))
        created = timestamp(self._planned.created)
        files: dict[str, bytes | str] = {}
        if part.number == 0:
            files |= self._all_files(created)
        script = part_script(self._planned, part, self._site.layout, options)
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
                in_one=planned.in_one,
            ),
        }
        for part in self._split:
            options = part_options(planned, part)
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
                    in_one=max(1, len(planned.members[index].member.together)),
                    until_done=one.choice.way if one.choice else None,
                    command=_again(planned.members[index]),
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
            found.append(Parent(array_id(handed[part.turn].job_id), "", "any"))
        if part.before is not None:
            found += self._stage_before(part, handed[part.before], local=local)
        return scheduler_of(self._site.cluster).dependency(found)

    def _stage_before(self, part: Part, before: Handed, *, local: bool) -> list[Parent]:
        """A run of a stage starts after the run of the same place in the stage before."""
        always = self._planned.request.then_always
        if not local:
            kind: Kind = "any" if always else "corr" if part.array(always=False) else "ok"
            return [Parent(array_id(before.job_id), "", kind)]
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


def _again(one: Planned) -> list[str] | None:
    """The words that ask for a member alone; None for what no option of `submit` says."""
    if {"recipe", "task"} & one.values.keys() or one.member.previous:
        return None
    steps = one.values.get("total_steps")
    given = ("--total-steps", steps) if steps else ()
    return words_of(replace(one.request, given=(*one.request.given, *given)))


def part_options(planned: GroupPlan, part: Part) -> tuple[str, ...]:
    """Without what it waits for."""
    always = planned.request.base.cluster.kind == "local"
    array = part.array(always=always)
    return (*part.options, array) if array else part.options


def part_script(planned: GroupPlan, part: Part, layout: Layout, options: tuple[str, ...]) -> str:
    """The job script of a part, with all its options."""
    base = planned.request.base
    return render_group(
        GroupScript(
            job_name=job_name(planned.group, part.number),
            group_dir=f"{layout.root}/groups/{planned.group}",
            part=part.number,
            origin=part.origin,
            first=part.first,
            pack=planned.request.pack,
            scratch_root=layout.scratch if planned.in_one > 1 else None,
            options=options,
            mps=base.cluster.mps and base.profile.gpu_count > 0,
            prelude=base.cluster.prelude,
            trust=base.cluster.trust,
            group=base.cluster.group,
        )
    )
