"""Examines compute nodes: one short job for each different request, whose answer comes through a file."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from clusterkit import folders
from clusterkit.backends.base import backend_of, vendor
from clusterkit.backends.checks import (
    Answer,
    Check,
    CheckPlace,
    Checks,
    Scope,
    Verdict,
    failed,
    parse_answer,
    passed,
    skipped,
    warned,
)
from clusterkit.backends.jobs import Job, JobState
from clusterkit.checkup import container, node
from clusterkit.checkup.examination import Examination, Result, fault
from clusterkit.checkup.examine_site import layout_of
from clusterkit.checkup.login import Login
from clusterkit.checkup.node import Node
from clusterkit.checkup.node_script import (
    SECONDS,
    NodeJob,
    inside_request,
    node_script,
)
from clusterkit.errors import ClusterkitError, ImageError, WandbError
from clusterkit.images.architecture import fitting
from clusterkit.images.image import Image
from clusterkit.interruption import held_back
from clusterkit.resources import NODE_PROGRAMS
from clusterkit.runs.observe import ask_job
from clusterkit.runs.program import needs_trainer
from clusterkit.site import Site
from clusterkit.submit.check import wants_gpu
from clusterkit.submit.handover import SubmissionRefusedError, hand_over_job
from clusterkit.wandb import server

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

_TINY = {"cpus": 2, "memory": 4 << 30, "gpus": 1, "nodes": 2}
"""Upper limits of the job's request, so that it starts soon."""
_LOOK_SECONDS = 8
_PATIENCE_SECONDS = 90.0
"""Seconds after its time limit in which a job may still be ending."""
_LATE_SECONDS = 15.0
"""Seconds by which the answer may appear on a shared file system after the job's end."""
_BUSY = re.compile(
    r"Resources|Priority|None|BeginTime|Licenses|Prolog|.*Limit.*|QOS.*|Assoc.*|", re.IGNORECASE
)
"""Reasons for waiting that do not concern the request itself."""
_SWEEP = 'find "$1/doctor" -mindepth 1 -maxdepth 1 -mmin +60 -exec rm -rf {} + 2>/dev/null; :'
"""Removes the folders of killed examinations; $1 is the work root."""
_REMOVE = 'rm -rf -- "$1"; rmdir -- "${1%/*}" "${1%/*/*}" 2>/dev/null'
"""Removes the folder, and the work root if nothing else is in it."""

# $1 folder, $2 seconds: waits so long for the answer. $3 `last`: of a job that was killed, what there is.
LOOK = r"""
end=$(($(date +%s) + $2))
while :; do
  ls "$1" >/dev/null
  [ "$3" != last ] || [ -f "$1/answer" ] || mv "$1/answer.part" "$1/answer" 2>/dev/null
  [ ! -f "$1/answer" ] || { echo "seen $(date +%s)"; cat "$1/answer"; exit 0; }
  [ "$(date +%s)" -lt "$end" ] || break
  sleep 1
done
"""


@dataclass(frozen=True)
class _Came:
    """The outcome of a job."""

    verdict: Verdict
    """The verdict on the job itself."""
    answer: Answer | None = None
    seen: float = 0.0
    """The login node's clock when the answer was seen."""
    silent: str = ""
    """Why it ran without giving an answer."""
    image: Image | None = None
    """The image that it was to start."""


def examine_nodes(exam: Examination, wait: int) -> Iterator[Result]:
    """Makes the checks of node and container for every profile; profiles with equal requests share a job.

    Args:
        exam: the examination, with the login node's answer.
        wait: seconds to wait for a job's start.
    """
    jobs: dict[tuple[str, ...], _Came] = {}
    for profile in exam.profiles:
        name = profile.name
        because = exam.sheet.because(OF_JOB[0], name)
        seen, planned = exam.login, exam.planned.get(name)
        if because or seen is None or planned is None:
            yield from exam.leave_out(CHECKS, skipped(because or "the profile does not fit"), profile)
            continue
        options = _options(exam, profile)
        key = (*options, repr(sorted(planned.program.env.items())), *exam.scope(profile).tests())
        came = jobs.get(key) or _run(exam, profile, seen, options, wait)
        jobs[key] = came
        yield from _judge(exam, profile, came)


def _judge(exam: Examination, profile: Profile, came: _Came) -> Iterator[Result]:
    if backend_of(exam.cluster).can.queue:
        yield from exam.make(OF_JOB[:1], (exam, came), profile)
        if came.answer is None and not came.silent:
            yield from exam.leave_out(CHECKS[1:], skipped("the job did not run"), profile)
            return
        yield from exam.make(OF_JOB[1:], (exam, came), profile)
    elif came.answer is None:
        yield from exam.leave_out(CHECKS, came.verdict, profile, only="scratch")
        yield from exam.leave_out(CHECKS, skipped("the script did not answer"), profile, but="scratch")
        return
    server, _ = _server()
    evidence = Node(
        cluster=exam.cluster,
        profile=profile,
        answer=came.answer or parse_answer(""),
        image=came.image,
        seen=came.seen,
        trains=needs_trainer(profile, exam.settings.project.program),
        online=exam.settings.project.wandb.mode == "online",
        server=server,
        environment=file.name if (file := exam.settings.project.environment) else "",
    )
    yield from exam.make(_IN_THE_JOB, evidence, profile)


OF_JOB = Checks[tuple[Examination, _Came]](CheckPlace.NODE, "job", of_profile=True)


@OF_JOB.declare("submit", "root", "owners", applies=Scope.queued)
def _job(of: tuple[Examination, _Came]) -> Verdict:
    return of[1].verdict


@OF_JOB.declare(applies=Scope.queued)
def _root_shared(of: tuple[Examination, _Came]) -> Verdict:
    exam, came = of
    if came.answer is None:
        return failed(
            came.silent, f"set `root` of [clusters.{exam.cluster.name}] to a folder that the nodes can see"
        )
    return passed(f"{came.answer['about'].value('host')} sees it")


_IN_THE_JOB = node.as_far_as_it_came((*node.CHECKS, *container.CHECKS))
CHECKS: tuple[Check[Any], ...] = (*OF_JOB, *_IN_THE_JOB)


def _options(exam: Examination, profile: Profile) -> tuple[str, ...]:
    changes: dict[str, object] = {"time": SECONDS, "cpus": min(profile.cpus, _TINY["cpus"])}
    changes["gpus"] = min(profile.gpus, _TINY["gpus"])
    changes["nodes"] = min(profile.nodes, _TINY["nodes"])
    if profile.memory is not None:
        changes["memory"] = min(profile.memory, _TINY["memory"])
    tiny = profile.model_copy(update=changes)
    backend = backend_of(exam.cluster)
    return backend.brief(backend.options(exam.cluster, tiny, signal=None), SECONDS)


def _run(exam: Examination, profile: Profile, seen: Login, options: tuple[str, ...], wait: int) -> _Came:
    """Sends the job's folder, runs the job, and removes the folder."""
    transport, layout = exam.transport, layout_of(seen)
    assert transport is not None
    token, backend = secrets.token_hex(6), backend_of(exam.cluster)
    owner = f"doctor/{token}"
    folder = f"{layout.root}/{owner}"
    try:
        image = fitting(exam.image, exam.cluster, [options]) if exam.image else None
    except ImageError as error:
        return _Came(fault(error))
    job = NodeJob(
        cluster=exam.cluster,
        folder=folder,
        name=f"doctor-{token}",
        scratch_root=layout.scratch,
        images={each.arch: each.path(layout.images) for each in (image.all if image else ())},
        nv=wants_gpu(exam.cluster, profile),
        vendor=vendor(exam.cluster, profile),
        options=options,
        server=_server(),
        nodes=min(profile.nodes, _TINY["nodes"]),
    )
    files: dict[str, bytes | str] = {
        f"{owner}/job.sh": node_script(job).encode("utf-8", "surrogateescape"),
        f"{owner}/inside.py": (NODE_PROGRAMS / "inside.py").read_bytes(),
        f"{owner}/inside.json": inside_request(
            exam.planned[profile.name].program.env, exam.scope(profile).tests()
        ),
        f"{owner}/token": token.encode(),
    }
    if job.nodes > 1:
        files |= {
            f"{owner}/rendezvous.py": (NODE_PROGRAMS / "rendezvous.py").read_bytes(),
            f"{owner}/between.py": (NODE_PROGRAMS / "between.py").read_bytes(),
        }
    site = Site(exam.cluster, transport, layout, None)
    try:
        with ExitStack() as stack:
            stack.callback(transport.run, ["sh", "-c", _REMOVE, "sh", folder], check=False)
            transport.run(["sh", "-c", _SWEEP, "sh", layout.root])
            try:
                with held_back():
                    job_id = hand_over_job(
                        site, owner, files, job_name=job.name, options=job.options, new=True
                    )
                    stack.callback(transport.run, backend.cancel_argv([job_id]), check=False)
            except SubmissionRefusedError as error:
                return _Came(failed(error.cause.rpartition(": ")[2], error.hint or "see `submit` above"))
            return replace(_wait(exam, site, job, job_id, wait), image=image)
    except ClusterkitError as error:
        return _Came(fault(error), silent="" if backend.can.queue else error.cause)


def _wait(exam: Examination, site: Site, job: NodeJob, job_id: str, wait: int) -> _Came:
    """Waits for the answer of a job."""
    began, started, ended = time.monotonic(), 0.0, 0.0
    while True:
        look = ["sh", "-c", LOOK, "sh", job.folder, str(_LOOK_SECONDS), "last" if ended else "wait"]
        output = site.transport.run(look, timeout=120.0, check=False).text
        first, _, rest = output.partition("\n")
        if first.startswith("seen "):
            answer, took = parse_answer(rest), time.monotonic() - began
            text = f"job {job_id} on {answer['about'].value('host')}, {took:.0f} s in all"
            return _Came(passed(text), answer, float(first.split()[1]))
        reported, now = ask_job(site, job_id), time.monotonic()
        state = reported.state if reported else None
        reason = (reported.explained or reported.reason or "") if reported else ""
        if reported is not None and state is not None and state.waiting:
            if now - began > wait:
                return _waited(job_id, reported.reason or "", reason, wait)
            exam.say(f"job {job_id} waits: {reason}")
        elif reported is not None and state is not None and (state.active or state is JobState.UNKNOWN):
            started = started or now
            where = f"job {job_id} checks {reported.node}"
            exam.say(where if reported.node else "the scheduler does not answer")
            if now - started > SECONDS + _PATIENCE_SECONDS:
                return _Came(failed(f"job {job_id} did not answer in time", "look again"))
        else:
            ended = ended or now
            if now - ended > _LATE_SECONDS:
                return _without_answer(job, job_id, reported)


def _without_answer(job: NodeJob, job_id: str, ended: Job | None) -> _Came:
    """Judges a job that ended without an answer; after a success its files are out of sight."""
    where = (ended.node if ended else None) or "a node"
    if ended is None or ended.state is JobState.COMPLETED:
        root = job.folder.rpartition("/doctor/")[0]
        silent = f"the job ran on {where}, which does not see {root}"
        return _Came(passed(f"job {job_id} on {where}"), silent=silent)
    text = f"job {job_id} on {where} ended as {ended.state}: {ended.explained or ended.reason or ''}"
    return _Came(failed(text, "report the node and the job to the administrators"))


def _waited(job_id: str, reason: str, explained: str, wait: int) -> _Came:
    text = f"job {job_id} did not start within {wait} s: {explained}; it was cancelled"
    if _BUSY.fullmatch(reason):
        return _Came(warned(text, "clusterkit doctor --wait 1h, or try again later"))
    return _Came(failed(text, "correct the cause it names, then run doctor again"))


def _server() -> tuple[str, int]:
    """Returns W&B's host and port; the default one if the configured address is unusable."""
    try:
        address = urlsplit(server.base_url(os.environ, folders.home_or_root()))
    except WandbError:
        address = urlsplit(server.DEFAULT_URL)
    return address.hostname or "api.wandb.ai", address.port or (443 if address.scheme == "https" else 80)
