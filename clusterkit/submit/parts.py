"""The submissions of a group: their options and job scripts, and submitting them in order."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from clusterkit.backends.base import backend_of
from clusterkit.backends.group_script import GroupScript, render_group
from clusterkit.backends.jobs import SCHEDULER_LOG, Continuation, JobState, Kind, Limits, Parent, group_log
from clusterkit.backends.submission import Submission, job_name, json_file
from clusterkit.errors import ClusterkitError
from clusterkit.folders import work_folder
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.spec import timestamp
from clusterkit.site import Layout, Site
from clusterkit.submit.group import GroupPart, members_file, parts
from clusterkit.submit.handover import Parcel, SubmissionRefusedError, hand_over_parcel
from clusterkit.submit.plan import Plan, PlannedGroup, Ready

_SCHEMA = 1
"""Of group.json."""


def split_group(plan: Plan, limits: Limits, continuation: Continuation | None) -> tuple[GroupPart, ...]:
    """Returns a group's submissions, with the options for continuation; none for a single run.

    Args:
        plan: the group's plan.
        limits: the site's. A group larger than the queue takes now is cut into a quarter of what the queue
            takes at all, so that it is never empty while the group's jobs submit the rest; or into less, so
            that the first part is taken.
        continuation: how runs continue past their time limits; None if they do not.
    """
    if plan.group is None:
        return ()
    array_size = limits.array_size
    if limits.jobs is not None and _over(plan.group, limits):
        fitting = max(1, min(limits.jobs // 4, limits.room or 0))
        array_size = min(array_size or fitting, fitting)
    split = parts(plan.group.dealt, array_size=array_size, at_once=plan.group.at_once)
    if _alone(plan):  # jobs index the lines of `members` directly
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
    tasks = part.tasks_of_array(always=_alone(plan))
    return (*part.options, backend_of(plan.cluster).array(*tasks)) if tasks else part.options


def part_script(plan: Plan, part: GroupPart, layout: Layout, options: tuple[str, ...]) -> str:
    """Returns the job script of a part, with all its options."""
    return render_group(group_script(plan, part, layout, options))


def group_script(
    plan: Plan, part: GroupPart, layout: Layout, options: tuple[str, ...], *, fed: bool = False
) -> GroupScript:
    """Returns the contents of a part's job script."""
    group, cluster = plan.group, plan.cluster
    assert group is not None
    return GroupScript(
        job_name=job_name(group.id, part.number),
        group_dir=f"{layout.root}/groups/{group.id}",
        part=part.number,
        origin=part.origin,
        first=part.first,
        pack=group.pack,
        scratch_root=layout.scratch if group.in_one > 1 else None,
        options=options,
        array=part.tasks_of_array(always=_alone(plan)) is not None,
        requeue=any(plan.runs[index].goes_on for index in part.members),
        mps=cluster.mps and plan.runs[0].profile.gpu_count > 0,
        cluster=cluster,
        fed=fed,
    )


def is_fed(plan: Plan, split: Sequence[GroupPart], limits: Limits) -> bool:
    """Returns whether a group does not fit into the queue, so that its own jobs submit the later parts.

    Only without stages and dependencies: what a part waits for must still be known to the scheduler then.
    """
    if plan.group is None or _alone(plan) or plan.after or any(part.stage for part in split):
        return False
    return len(split) > (1 if _over(plan.group, limits) else len(plan.group.dealt))


def _over(group: PlannedGroup, limits: Limits) -> bool:
    """Returns whether the queue does not take a group whole now."""
    return limits.room is not None and group.jobs > limits.room


def hand_over_parts(
    site: Site, ledger: Ledger, ready: Ready
) -> tuple[tuple[LedgerRun, ...], ClusterkitError | None]:
    """Submits the parts of a group in order.

    The first part's remote command writes the whole group and all its run directories; those of the other
    parts only submit.

    Returns:
        The runs of the accepted parts, and why a part was not accepted.

    Raises:
        SchedulerError, TransportError: the first part was not accepted; then either nothing remains or its
            submission stays open.
    """
    jobs: dict[int, str] = {}  # the first job id of each accepted part
    trouble: ClusterkitError | None = None
    with work_folder(ledger.folder) as alive:  # shows that later parts are still being submitted
        for part in ready.split:
            try:
                options = (*part_options(ready.plan, part), *_dependencies(ledger, ready, part, jobs))
                parcel = parcel_of(site.layout, ready, part, options)
                jobs[part.number] = hand_over_parcel(site, ledger, parcel, alive.name)
            except KeyboardInterrupt:
                _give_up(ledger, ready, part.number + 1, "it was interrupted before anything was submitted")
                raise
            except ClusterkitError as error:
                if not jobs:
                    raise
                if isinstance(error, SubmissionRefusedError):
                    _give_up(ledger, ready, part.number, error.cause)
                trouble = error
                break
    accepted = (
        ledger.get(ready.placed[index].spec.run_id)
        for part in ready.split
        if part.number in jobs
        for index in part.members
    )
    return tuple(run for run in accepted if run is not None), trouble


def parcel_of(layout: Layout, ready: Ready, part: GroupPart, options: tuple[str, ...]) -> Parcel:
    """Returns the submission of a part, with all its options."""
    group = ready.plan.group
    assert group is not None
    owner, created, first = f"groups/{group.id}", timestamp(group.created), part.number == 0
    request = Submission(part.number, created=created, options=options, part=part.number)
    script = part_script(ready.plan, part, layout, options)
    rows = [one.row for one in ready.placed]
    return Parcel(
        tuple(rows[index] for index in part.members),
        owner,
        {
            **(_group_files(ready, group, owner) if first else {}),
            f"{owner}/job.sh": script.encode("utf-8", "surrogateescape"),
            f"{owner}/submissions/{part.number}/request.json": request.to_json(),
        },
        options,
        number=part.number,
        tasks=tuple(part.task_of(index, always=_alone(ready.plan)) for index in part.members),
        later=tuple(row for row in rows if row.part > 0) if first else (),
        needs=ready.placed[0].needs,
        secrets=tuple(run.sealed.folder for run in ready.placed if run.sealed) if first else (),
    )


def _group_files(ready: Ready, group: PlannedGroup, owner: str) -> dict[str, bytes | str]:
    """Returns the files of the group's folder and of all run directories."""
    alone, specs = _alone(ready.plan), [run.spec for run in ready.placed]
    about = {
        "id": group.id,
        "name": group.name,
        "created": timestamp(group.created),
        "size": len(specs),
        "pack": group.pack,
        "in_one": group.in_one,
        "members": [{"run_id": spec.run_id, "sweep": spec.sweep or {}} for spec in specs],
        "parts": [
            {"number": part.number, "stage": part.stage, "members": part.members, "options": part.options}
            for part in ready.split
        ],
    }
    run_dirs = [run.row.run_dir for run in ready.placed]
    files: dict[str, bytes | str] = {
        f"{owner}/members": members_file(run_dirs, group.dealt, group.pack),
        f"{owner}/group.json": json_file(_SCHEMA, about),
    }
    for part in ready.split:
        options = part_options(ready.plan, part)
        for index in part.members:
            run, task = ready.placed[index], part.task_of(index, always=alone)
            later = part.number > 0 and ready.fed
            request = replace(run.submission, options=options, task=task, pack=group.pack, fed=later)
            files |= run.files([request])
            for name in ("asked", "answer", "error", "status"):
                there = f"../../../../{owner}/submissions/{part.number}/{name}"
                files[f"{run.folder}/submissions/0/{name}"] = there
            if not alone:
                files[f"{run.folder}/{SCHEDULER_LOG}"] = f"../../{owner}/{group_log(part.number, task)}"
    return files


def _dependencies(ledger: Ledger, ready: Ready, part: GroupPart, jobs: Mapping[int, str]) -> tuple[str, ...]:
    """Returns the options for what a part waits for: the user's `--after`, its turn and the previous stage.

    Args:
        ledger: knows the jobs of the previous stage's runs.
        ready: the group.
        part: the part.
        jobs: the first job id of each accepted part.
    """
    plan, backend, alone = ready.plan, backend_of(ready.plan.cluster), _alone(ready.plan)
    always = plan.group is not None and plan.group.then_always
    found = list(ready.after) if part.stage == 0 else []
    if part.turn is not None and not alone:
        found.append(Parent(backend.array_id(jobs[part.turn]), "", "any"))
    if part.before is not None and not alone:
        several = part.tasks_of_array(always=False) is not None
        kind: Kind = "any" if always else "corr" if several else "ok"
        found.append(Parent(backend.array_id(jobs[part.before]), "", kind))
    elif part.before is not None:
        for index in part.members:
            member = plan.runs[index].member
            run = ledger.get((member and member.previous) or "")
            if run is not None:
                task = part.task_of(index, always=True)
                found.append(Parent(run.job_id, run.run_dir, "any" if always else "ok", task))
    return backend.dependency(found)


def _give_up(ledger: Ledger, ready: Ready, part: int, why: str) -> None:
    """Records that this part and the following ones have no jobs."""
    last = json.dumps({"state": JobState.NOT_SUBMITTED, "why": why, "updated": time.time()})
    for one in ready.placed:
        if one.row.part >= part:
            ledger.settle(one.spec.run_id, "", JobState.NOT_SUBMITTED, last)


def _alone(plan: Plan) -> bool:
    """Returns whether each run is a job of its own."""
    return not backend_of(plan.cluster).can.arrays
