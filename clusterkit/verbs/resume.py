"""resume: go on with a run that ended before it was done, as a new submission in the same run directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clusterkit import images
from clusterkit.config.placement import sbatch_options, warning
from clusterkit.errors import ConfigError, ImageError, RunError
from clusterkit.images import Image
from clusterkit.ledger import Ledger, LedgerRun
from clusterkit.plan import option_of, trains, with_hardware, with_option
from clusterkit.record import RunRecord, collect_script, parse_collect
from clusterkit.runspec import timestamp
from clusterkit.scheduler import JobState
from clusterkit.site import Site, open_site
from clusterkit.slurm.abilities import Choice
from clusterkit.slurm.script import JobScript, render
from clusterkit.state import RunState
from clusterkit.submission import request_json
from clusterkit.verbs.handover import Parcel, hand_over, job_name, settle
from clusterkit.verbs.status import query
from clusterkit.verbs.until_done import choose_way

if TYPE_CHECKING:
    from clusterkit.config.models import Profile
    from clusterkit.config.settings import Settings

_OF_THE_WAY = ("--requeue", "--array", "--dependency")
"""Options that belong to one submission and are chosen anew for the next."""


@dataclass(frozen=True)
class ResumeRequest:
    """What shall be different from the submission before; None leaves a thing as it was."""

    profile: Profile | None = None
    """Other resources; the recipe stays, and so does the number of environments."""
    cluster: str | None = None
    time: int | None = None
    """Time limit in seconds."""
    total_steps: int | None = None
    until_done: bool | None = None
    sbatch: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resumed:
    """A run the scheduler has accepted again."""

    run: LedgerRun
    job_id: str
    was: RunState
    checkpoint: str | None
    """Name of the newest checkpoint the last attempt has told of; None when it has to begin at the start."""
    choice: Choice | None


def resume(settings: Settings, request: ResumeRequest, ledger: Ledger, name: str) -> Resumed:
    """Submit a run again, over one login; it goes on from its newest good checkpoint.

    Raises:
        RunError: the run is unknown, may still run, is complete, or is not there any more.
        ConfigError: the request is wrong.
        ImageError: the cluster does not have its image any more.
        SchedulerError: the scheduler refused; the run is as it was.
        TransportError: the cluster cannot be reached.
    """
    (run,) = ledger.find([name])
    if request.cluster not in (None, run.cluster):
        raise RunError(
            f"{run.run_id} lies on {run.cluster}, and a run goes on where it lies, not on {request.cluster}",
            hint=f"`clusterkit resume {run.run_id}` goes on there, `clusterkit submit` begins elsewhere",
        )
    with open_site(settings.cluster(run.cluster)) as site:
        run, record, document = _look(site, ledger, run)
        (state,) = query(site.cluster, site.transport, [run])
        submission = record.submission
        before = dict((submission.request if submission else None) or {})
        argv = list(before.get("argv") or document["argv"])
        _check(run, state, request, argv)
        profile = request.profile or _recorded_profile(document)
        env = before.get("env")
        if request.profile:
            env = dict(env or document["env"])
            argv, env = with_hardware(argv, env, request.profile)
        if request.total_steps is not None:
            argv = with_option(argv, "--total-steps", str(request.total_steps))
        goes_on = bool(before.get("until_done")) if request.until_done is None else request.until_done
        options = _options(site, request, profile, before, goes_on, training=trains(argv))
        choice = choose_way(site, options) if goes_on else None
        options = (*options, *(choice.options if choice else ()))
        number = max((each.number for each in record.submissions), default=-1) + 1
        now = timestamp(datetime.now(UTC))
        job = _job(site, run, document, profile, options, choice, number)
        folder = f"runs/{run.run_id}"
        files: dict[str, bytes | str] = {
            f"{folder}/job.sh": render(job).encode(),
            f"{folder}/submissions/{number}/request.json": request_json(
                number,
                "resume",
                now,
                options,
                argv=argv if argv != list(document["argv"]) else None,
                env=env,
                until_done=choice.way if choice else None,
            ),
        }
        steps = option_of(argv, "--total-steps") if trains(argv) else None
        again = replace(
            run,
            profile=profile.name,
            job_id="",
            submission=number,
            until_done=choice.way if choice else "",
            total_steps=int(steps) if steps else run.total_steps,
            state=JobState.PENDING,
            last="",
        )
        site.transport.run(["rm", "-f", f"{run.run_dir}/stopped.json"])
        job_id = hand_over(site, ledger, Parcel((again,), folder, files, options, number))
    checkpoint = (record.heartbeat or {}).get("checkpoint")
    name_of = str(checkpoint).rpartition("/")[2] if checkpoint else None
    return Resumed(replace(again, job_id=job_id), job_id, state, name_of, choice)


def _look(site: Site, ledger: Ledger, run: LedgerRun) -> tuple[LedgerRun, RunRecord, dict[str, Any]]:
    """The run with its newest job, its records and its run.json.

    Raises:
        RunError: its run directory is gone.
    """
    if run.state == JobState.SUBMITTING:
        settle(site.cluster, site.transport, ledger, [run])
        run = ledger.get(run.run_id) or run
    answer = site.transport.run(["sh"], stdin=collect_script([run.run_dir]).encode()).text
    record = parse_collect(answer)[run.run_dir]
    done = site.transport.run(["cat", f"{run.run_dir}/run.json"], check=False)
    if not record.exists or done.returncode != 0:
        raise RunError(
            f"{run.run_id}: there is no run directory {run.run_dir} on {run.cluster}",
            hint="`clusterkit submit` starts a new run",
        )
    document: dict[str, Any] = json.loads(done.text)
    newest = record.submission
    if newest is not None and newest.number > run.submission and newest.job_id:
        run = replace(run, job_id=newest.job_id, submission=newest.number)  # of a chain
    return run, record, document


def _check(run: LedgerRun, state: RunState, request: ResumeRequest, argv: Sequence[str]) -> None:
    if state.state.active:
        raise RunError(
            f"{run.run_id} is {state.state}: it cannot be resumed while it may run",
            hint=f"`clusterkit cancel {run.run_id}` ends it first",
        )
    if state.state is JobState.UNKNOWN:
        raise RunError(
            f"{run.run_id}: it is not known whether it still runs ({state.why or 'no answer'})",
            hint="try again when `clusterkit status` knows",
        )
    if request.total_steps is not None and not trains(argv):
        raise ConfigError("--total-steps is for training, and this run has a program of its own")
    if state.state is JobState.COMPLETED:
        steps = int(option_of(argv, "--total-steps") or 0) if trains(argv) else 0
        if request.total_steps is None or request.total_steps <= steps:
            raise RunError(
                f"{run.run_id} is COMPLETED" + (f" with {steps:,} steps" if steps else ""),
                hint=f"`clusterkit resume {run.run_id} --total-steps N` trains on, to more steps"
                if steps
                else "`clusterkit submit` starts a new run",
            )


def _recorded_profile(document: Mapping[str, Any]) -> Profile:
    """The profile of run.json, which we have written and checked ourselves."""
    from clusterkit.config.models import Profile

    known = {name: value for name, value in document["profile"].items() if name in Profile.model_fields}
    return Profile.model_construct(**known)


def _options(
    site: Site,
    request: ResumeRequest,
    profile: Profile,
    before: Mapping[str, Any],
    goes_on: bool,
    *,
    training: bool,
) -> tuple[str, ...]:
    """The sbatch options: those of the submission before, but for what is asked to be different."""
    extra = list(request.sbatch)
    if request.profile is None and before.get("options"):
        kept = [str(each) for each in before["options"] if each.partition("=")[0] not in _OF_THE_WAY]
        changed = {each.partition("=")[0] for each in extra}
        if request.time is not None:
            changed |= {"--time", "--signal"}
        extra = [each for each in kept if each.partition("=")[0] not in changed] + extra
    if request.time is not None:
        profile = profile.model_copy(update={"time": request.time})
    signal = warning(profile, trains=training, until_done=goes_on)
    return sbatch_options(site.cluster, profile, defaults={"signal": signal} if signal else {}, extra=extra)


def _job(
    site: Site,
    run: LedgerRun,
    document: Mapping[str, Any],
    profile: Profile,
    options: tuple[str, ...],
    choice: Choice | None,
    number: int,
) -> JobScript:
    """The job script over the code and the image that the run began with.

    Raises:
        ImageError: the image is gone.
        RunError: the code is gone.
    """
    cluster = site.cluster
    code = str(document["workdir"]).removesuffix("/project")
    (bundle,) = document["python_path"]
    facts = document.get("image")
    image = Image(str(facts["digest"]), int(facts["bytes"])) if facts else None
    if image and not images.present(site, image):
        raise ImageError(
            f"{site.transport.where}: the image {image.digest[:12]} of the run is not there any more",
            hint="`clusterkit deploy --image FILE.sif` with the same file brings it back",
        )
    if site.transport.run(["test", "-d", document["workdir"]], check=False).returncode != 0:
        raise RunError(
            f"{run.run_id}: its code, {code}, is not there any more",
            hint="`clusterkit submit` starts a new run",
        )
    return JobScript(
        run_id=run.run_id,
        job_name=job_name(run.run_id, number),
        run_dir=run.run_dir,
        workdir=code,
        scratch_root=site.layout.scratch,
        cache_root=site.layout.cache,
        python=cluster.interpreter,
        options=options,
        container=cluster.container if image else "none",
        image=str(facts["path"]) if facts else None,
        image_bytes=image.bytes if image else None,
        image_digest=image.digest if image else None,
        binds=(*cluster.binds, f"{bundle}:{bundle}:ro"),
        nv=profile.gpu_count > 0,
        prelude=cluster.prelude,
        submission=number,
        until_done=choice.way if choice else None,
    )
