"""doctor on compute nodes: one short job for each different request, whose answer comes through a file."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clusterkit import account
from clusterkit.backends.slurm.explain import explain, sbatch_error
from clusterkit.checkup import Place, Result, Verdict, container, laptop, named, node
from clusterkit.checkup.answer import Answer, parse
from clusterkit.checkup.applies import trains, wants_gpu
from clusterkit.checkup.check import failed, passed, skipped, warned
from clusterkit.checkup.login import Login
from clusterkit.checkup.node import Node
from clusterkit.checkup.node_script import (
    ANSWER,
    SECONDS,
    NodeJob,
    inside_program,
    inside_request,
    job_options,
    node_script,
)
from clusterkit.commands.doctor_site import layout_of
from clusterkit.commands.examination import Examination
from clusterkit.errors import ClusterkitError, WandbError
from clusterkit.runs.submission import bundle
from clusterkit.site import scheduler_of
from clusterkit.wandb import credentials

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

_TINY = {"cpus": 2, "memory": 4 << 30, "gpus": 1}
"""What the job asks for at most, so that it starts soon."""
_LOOK_SECONDS = 8
_PATIENCE_SECONDS = 90.0
"""How long after its time limit a job may still be ending."""
_LATE_SECONDS = 15.0
"""How much later than the end of the job its answer may show on a shared file system."""
_BUSY = re.compile(
    r"Resources|Priority|None|BeginTime|Licenses|Prolog|.*Limit.*|QOS.*|Assoc.*|", re.IGNORECASE
)
"""Reasons to wait that say nothing against the request."""
_UNPACK = """
umask 077
mkdir -p "$1" && tar -xf - -C "$1" || exit 1
find "${1%/*}" -mindepth 1 -maxdepth 1 -mmin +60 -exec rm -rf {} + 2>/dev/null  # of one that was killed
exit 0
"""
_REMOVE = 'rm -rf -- "$1"; rmdir -- "${1%/*}" "${1%/*/*}" 2>/dev/null'
"""Also the work root, where nothing else is in it."""

# $1 folder, $2 job id, $3 seconds. The answer, of a job that was killed what there is of it; or else what
# squeue says, after at most so many seconds.
LOOK = r"""
end=$(($(date +%s) + $3))
while [ "$(date +%s)" -lt "$end" ]; do
  ls "$1" >/dev/null
  [ ! -f "$1/answer" ] || { echo "seen $(date +%s)"; cat "$1/answer"; exit 0; }
  state="$2|SILENT||"
  if jobs=$(squeue -h -t all -u "$(id -un)" -o '%i|%T|%r|%N' 2>/dev/null </dev/null); then
    state=$(printf '%s\n' "$jobs" | grep "^$2|")
    case $state in
      *'|PENDING|'* | *'|RUNNING|'* | *'|CONFIGURING|'* | *'|COMPLETING|'*) ;;
      *) if mv "$1/answer.part" "$1/answer" 2>/dev/null; then continue; else break; fi ;;
    esac
  fi
  sleep 1
done
echo "state $state"
"""


@dataclass(frozen=True)
class _Came:
    """What came of a job."""

    verdict: Verdict
    """Of the job itself."""
    answer: Answer | None = None
    seen: float = 0.0
    """The login node's clock when the answer was seen."""
    silent: str = ""
    """Why it ran and there is no answer."""


def examine_nodes(exam: Examination, wait: int) -> Iterator[Result]:
    """The checks of node and container for every profile; profiles with one request share a job.

    Args:
        exam: the examination, with what the login node said.
        wait: seconds to wait for a job's start.
    """
    done: dict[tuple[str, ...], _Came] = {}
    for profile in exam.profiles:
        name = profile.name
        because = exam.sheet.because(named("job"), name)
        seen, prepared = exam.login, exam.prepared.get(name)
        if because or seen is None or prepared is None:
            for place in (Place.NODE, Place.CONTAINER):
                yield from exam.leave_out(place, skipped(because or "the profile does not fit"), profile)
            continue
        options = _options(exam, profile)
        env = {name: text for name, text in prepared.spec.env.items() if prepared.spec.run_id not in text}
        key = (*options, repr(sorted(env.items())))
        came = done.get(key) or _run(exam, profile, seen, options, wait)
        done[key] = came
        yield from _judge(exam, profile, came)


def _judge(exam: Examination, profile: Profile, came: _Came) -> Iterator[Result]:
    if exam.cluster.kind == "slurm":
        yield from exam.make(Place.NODE, {"job": lambda _: came.verdict}, None, profile)
        if came.answer is None and not came.silent:
            judged = skipped("the job did not run")
            yield from exam.leave_out(Place.NODE, judged, profile, but=("job",))
            yield from exam.leave_out(Place.CONTAINER, judged, profile)
            return
        yield from exam.make(Place.NODE, {"root-shared": lambda _: _shared(exam, came)}, None, profile)
    elif came.answer is None:
        yield from exam.make(Place.NODE, {"scratch": lambda _: came.verdict}, None, profile)
        judged = skipped("the script gave no answer")
        yield from exam.leave_out(Place.NODE, judged, profile, but=("scratch",))
        yield from exam.leave_out(Place.CONTAINER, judged, profile)
        return
    server, _ = _server()
    evidence = Node(
        cluster=exam.cluster,
        profile=profile,
        answer=came.answer or parse(""),
        image=exam.image,
        seen=came.seen,
        trains=trains(exam.settings.project, profile),
        online=exam.settings.project.wandb.mode == "online",
        server=server,
    )
    for place, judges in ((Place.NODE, node.JUDGES), (Place.CONTAINER, container.JUDGES)):
        yield from exam.make(place, node.as_far_as_it_came(judges), evidence, profile)


def _shared(exam: Examination, came: _Came) -> Verdict:
    if came.answer is None:
        return failed(came.silent, f"set `root` of [clusters.{exam.cluster.name}] to a folder that nodes see")
    return passed(f"{came.answer['about'].value('host')} sees it")


def _options(exam: Examination, profile: Profile) -> tuple[str, ...]:
    from clusterkit.config.placement import sbatch_options

    changes: dict[str, object] = {"time": SECONDS, "cpus": min(profile.cpus, _TINY["cpus"])}
    changes["gpus"] = min(profile.gpus, _TINY["gpus"])
    if profile.memory is not None:
        changes["memory"] = min(profile.memory, _TINY["memory"])
    return job_options(sbatch_options(exam.cluster, profile.model_copy(update=changes)))


def _run(exam: Examination, profile: Profile, seen: Login, options: tuple[str, ...], wait: int) -> _Came:
    """Send the job's folder, run it, and remove the folder again."""
    transport, layout = exam.transport, layout_of(seen)
    assert transport is not None
    token = secrets.token_hex(6)
    folder = f"{layout.root}/doctor/{token}"
    job = NodeJob(
        cluster=exam.cluster,
        folder=folder,
        name=f"doctor-{token}",
        scratch_root=layout.scratch,
        image=exam.image.path(layout.images) if exam.image else None,
        nv=wants_gpu(exam.cluster, profile),
        options=options,
        server=_server(),
    )
    request = inside_request(exam.prepared[profile.name].spec.env)
    files: dict[str, bytes | str] = {
        "job.sh": node_script(job).encode("utf-8", "surrogateescape"),
        "inside.py": inside_program(),
        "inside.json": request,
        "token": token.encode(),
    }
    try:
        with ExitStack() as stack:
            transport.run(["sh", "-c", _UNPACK, "sh", folder], stdin=bundle(files))
            stack.callback(transport.run, ["sh", "-c", _REMOVE, "sh", folder], check=False)
            if exam.cluster.kind == "local":
                exam.say("looking around here")
                transport.run(["bash", f"{folder}/job.sh"], timeout=SECONDS * 2.0, check=False)
                return _Came(
                    passed(""), parse(transport.read(f"{folder}/{ANSWER}").decode("utf-8", "replace"))
                )
            return _submit(exam, job, wait, stack)
    except ClusterkitError as error:
        return _Came(laptop.fault(error), silent=error.cause if exam.cluster.kind == "local" else "")


def _submit(exam: Examination, job: NodeJob, wait: int, stack: ExitStack) -> _Came:
    """Submit, wait for the answer, and leave no job behind."""
    transport, scheduler = exam.transport, scheduler_of(exam.cluster)
    assert transport is not None
    argv = scheduler.submit_argv(
        f"{job.folder}/job.sh", run_dir=job.folder, job_name=job.name, options=job.options
    )
    done = transport.run(argv, check=False)
    if done.returncode != 0:
        return _Came(failed(done.reason, sbatch_error(done.error_text) or "see `submit` above"))
    job_id = scheduler.parse_submit(done.text)
    stack.callback(transport.run, scheduler.cancel_argv([job_id]), check=False)
    began = time.monotonic()
    started, ended = 0.0, 0.0
    look = ["sh", "-c", LOOK, "sh", job.folder, job_id.partition(";")[0], str(_LOOK_SECONDS)]
    while True:
        text = transport.run(look, timeout=120.0, check=False).text
        first, _, rest = text.partition("\n")
        if first.startswith("seen "):
            answer, took = parse(rest), time.monotonic() - began
            told = f"job {job_id} on {answer['about'].value('host')}, {took:.0f} s in all"
            return _Came(passed(told), answer, float(first.split()[1]))
        _, state, reason, where = (*first.removeprefix("state ").split("|"), "", "", "", "")[:4]
        now = time.monotonic()
        if state == "PENDING":
            if now - began > wait:
                return _waited(job_id, reason, wait)
            exam.say(f"job {job_id} waits: {explain(reason) or reason}")
        elif state in ("RUNNING", "CONFIGURING", "COMPLETING", "SILENT"):
            started = started or now
            exam.say(f"job {job_id} looks around on {where}" if where else "squeue does not answer")
            if now - started > SECONDS + _PATIENCE_SECONDS:
                return _Came(failed(f"job {job_id} gave no answer in time", "look again"))
        else:
            ended = ended or now
            if now - ended > _LATE_SECONDS:
                return _without_answer(job, job_id, state, reason, where)
            time.sleep(1)


def _without_answer(job: NodeJob, job_id: str, state: str, reason: str, where: str) -> _Came:
    """It has ended: well, then nobody here sees what it wrote."""
    told = f"job {job_id} on {where or 'a node'}"
    if state in ("", "COMPLETED"):
        root = job.folder.rpartition("/doctor/")[0]
        return _Came(passed(told), silent=f"the job ran on {where or 'a node'}, which does not see {root}")
    cure = "tell the administrators the node and the job"
    return _Came(failed(f"{told} ended as {state}: {explain(reason) or reason}", cure))


def _waited(job_id: str, reason: str, wait: int) -> _Came:
    text = f"job {job_id} did not start within {wait} s: {explain(reason) or reason}; it was cancelled"
    if _BUSY.fullmatch(reason):
        return _Came(warned(text, "clusterkit doctor --wait 1h, or look again later"))
    return _Came(failed(text, "correct what the reason names, then run doctor again"))


def _server() -> tuple[str, int]:
    """W&B's host and port, or the usual one where its address is not to be had."""
    try:
        address = urlsplit(credentials.base_url(os.environ, account.home_or_root()))
    except WandbError:
        address = urlsplit(credentials.DEFAULT_URL)
    return address.hostname or "api.wandb.ai", address.port or (443 if address.scheme == "https" else 80)
