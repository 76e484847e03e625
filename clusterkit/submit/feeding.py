"""Groups that do not fit into the queue: the first part is submitted, the group's own jobs submit the rest.

The group's folder holds what they need: `feed.sh` submits, in order and each part once, as many of the parts
that `feed/parts` lists as the queue takes; `submissions/<part>/claim.<n>` marks a part that a job submits.
The submitting command runs it once; after that each job of the group does, at its start and at its end, so
neither the laptop nor the login node is needed.
"""

from __future__ import annotations

import json
from dataclasses import replace

from clusterkit.backends.base import Backend, backend_of
from clusterkit.backends.group_script import render_feed, render_group, render_task
from clusterkit.backends.jobs import JobState, group_log
from clusterkit.backends.submission import DEFERRED, Submission, job_name
from clusterkit.errors import ClusterkitError
from clusterkit.folders import work_folder
from clusterkit.interruption import held_back
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.spec import timestamp
from clusterkit.site import Site
from clusterkit.submit.group import GroupPart
from clusterkit.submit.handover import hand_over_parcel
from clusterkit.submit.parts import group_script, parcel_of, part_options
from clusterkit.submit.plan import Ready

_FEED_SECONDS = 600.0


def hand_over_fed(site: Site, ledger: Ledger, ready: Ready) -> tuple[LedgerRun, ...]:
    """Submits the first part of a group, and then as many of the others as the queue takes.

    Returns:
        All runs of the group; those that are not submitted yet are DEFERRED.

    Raises:
        SchedulerError, TransportError: the first part was not accepted; then either nothing remains or its
            submission stays open.
    """
    first, backend = ready.split[0], backend_of(site.cluster)
    parcel = parcel_of(site.layout, ready, first, part_options(ready.plan, first))
    owner = parcel.owner
    parcel = replace(parcel, files={**parcel.files, **_files(ready, site, owner)})
    last = json.dumps({"state": JobState.DEFERRED, "why": DEFERRED})
    with held_back():
        with work_folder(ledger.folder) as alive:
            hand_over_parcel(site, ledger, parcel, alive.name)
        for run in parcel.later:
            ledger.settle(run.run_id, "", JobState.DEFERRED, last)
    _feed(site, ledger, ready, backend, owner)
    rows = (ledger.get(one.spec.run_id) for one in ready.placed)
    return tuple(run for run in rows if run is not None)


def feed(site: Site, group: str) -> dict[int, str]:
    """Submits as many parts of a group as the queue takes; returns the accepted parts' job ids.

    Raises:
        TransportError: the cluster did not answer.
    """
    argv = ["bash", "-p", f"{site.layout.root}/groups/{group}/feed.sh", "now"]
    said = site.transport.run(argv, check=False, timeout=_FEED_SECONDS).text
    lines = (line.split() for line in said.splitlines())
    return {int(words[0]): words[1] for words in lines if len(words) == 2 and words[0].isdigit()}


def _feed(site: Site, ledger: Ledger, ready: Ready, backend: Backend, owner: str) -> None:
    """Notes what the queue takes at once. If the connection breaks, `status` finds out later."""
    try:
        accepted = feed(site, owner.rpartition("/")[2])
    except ClusterkitError:
        return
    for part in ready.split:
        job_id = accepted.get(part.number)
        if job_id is None:
            continue
        for index in part.members:
            task = part.task_of(index, always=False)
            mine = job_id if task is None else backend.task_id(job_id, task)
            row = ready.placed[index].row
            ledger.update([replace(row, job_id=mine, state=JobState.PENDING, last="")])


def _files(ready: Ready, site: Site, owner: str) -> dict[str, bytes | str]:
    """Returns the scripts, and the list of the parts to submit later."""
    plan, layout = ready.plan, site.layout
    group = plan.group
    assert group is not None
    first = ready.split[0]
    start = group_script(plan, first, layout, part_options(plan, first), fed=True)
    files: dict[str, bytes | str] = {
        f"{owner}/job.sh": _text(render_group(start)),
        f"{owner}/task.sh": _text(render_task(start)),
        f"{owner}/feed.sh": _text(render_feed(start)),
        f"{owner}/feed/ended/": "",
    }
    scripts: dict[tuple[str, ...], int] = {}
    lines = []
    for part in ready.split[1:]:
        script = scripts.setdefault(part.options, len(scripts))
        lines.append(_line(part, script, f"{layout.root}/{owner}", group.pack))
        request = Submission(
            part.number,
            created=timestamp(group.created),
            options=part_options(plan, part),
            part=part.number,
            fed=True,
        )
        files[f"{owner}/submissions/{part.number}/request.json"] = request.to_json()
    for options, number in scripts.items():
        job = replace(start, options=options, job_name=job_name(group.id, 1), array=False)
        files[f"{owner}/feed/{number}.sh"] = _text(render_group(job))
    files[f"{owner}/feed/parts"] = "".join(lines).encode("utf-8", "surrogateescape")
    return files


def _line(part: GroupPart, script: int, folder: str, pack: int) -> str:
    """Returns a part's line of `feed/parts`, which feed.sh reads."""
    tasks = part.tasks_of_array(always=False)
    log = group_log(part.number, "%a" if tasks else None)
    array = "-"
    if tasks:
        begin, end, limit = tasks
        array = f"--array={begin}-{end}" + (f"%{limit}" if limit is not None else "")
    fields = (
        part.number,
        script,
        part.origin,
        part.first - part.origin,
        array,
        folder.replace("%", "%%") + f"/{log}",
        "-" if part.turn is None else part.turn,
        part.first * pack + 1,
        (part.first + len(part.tasks)) * pack,
    )
    return "\t".join(map(str, fields)) + "\n"


def _text(script: str) -> bytes:
    return script.encode("utf-8", "surrogateescape")
