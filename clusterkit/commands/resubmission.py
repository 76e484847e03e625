"""The new submission of a run that has ended: as the one before, but for what is asked to be different."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clusterkit import images
from clusterkit.backends.base import JobState
from clusterkit.backends.slurm.abilities import Choice
from clusterkit.backends.slurm.script import JobScript, render
from clusterkit.commands.handover import Parcel, job_name
from clusterkit.commands.prepare import PREVIOUS
from clusterkit.commands.until_done import choose_way
from clusterkit.config.placement import sbatch_options, warning
from clusterkit.errors import ImageError, RunError
from clusterkit.images import Image
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.program import TOTAL_STEPS, filled, option_of, trains, with_hardware, with_steps
from clusterkit.runs.record import RunRecord
from clusterkit.runs.spec import timestamp
from clusterkit.runs.state import RunState
from clusterkit.runs.submission import request_json
from clusterkit.site import Site

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

_OF_THE_WAY = (
    *("--requeue", "--array", "--dependency", "--kill-on-invalid-dep"),
    *("--after", "--after-task"),  # of this machine's scheduler
)
"""Options that belong to one submission and are chosen anew for the next."""
_OF_THE_PACK = ("--cpus-per-task", "--mem")
"""Options that were asked for all runs of a shared job."""


@dataclass(frozen=True)
class ResumeRequest:
    """What shall be different from the submission before; None leaves a thing as it was."""

    profile: Profile | None = None
    """Other resources; the recipe stays, and so does the number of environments."""
    cluster: str | None = None
    """Where to go on; the run moves there."""
    time: int | None = None
    """Time limit in seconds."""
    total_steps: int | None = None
    until_done: bool | None = None
    sbatch: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    """A run as it lies."""

    run: LedgerRun
    """With its newest job."""
    state: RunState
    record: RunRecord
    document: Mapping[str, Any]
    """run.json"""

    @property
    def before(self) -> Mapping[str, Any]:
        """request.json of the newest submission; one that was refused has left the run as it was."""
        return self.record.request

    @property
    def argv(self) -> list[str]:
        """Of that submission."""
        return list(self.before.get("argv") or self.document["argv"])

    @property
    def env(self) -> dict[str, str]:
        """Likewise, of the program."""
        return dict(self.before.get("env") or self.document["env"])


def plan(
    site: Site, ended: Ended, request: ResumeRequest, *, check: bool = True
) -> tuple[LedgerRun, Parcel, Choice | None]:
    """The submission: as the one before, but for what is asked to be different."""
    run, before, document = ended.run, ended.before, ended.document
    argv, env = ended.argv, ended.env
    profile = request.profile or recorded_profile(document)
    if request.profile:
        argv, env = with_hardware(argv, env, request.profile)
    template = document.get("template")
    if request.total_steps is not None:
        argv, env = with_steps(argv, env, template, request.total_steps)
    run_dir = site.layout.run(run.run_id)
    env = {name: moved(value, run.run_dir, run_dir) for name, value in env.items()}
    if template:
        argv = list(filled(template, env, run.run_id, run_dir))
    away = site.cluster.name != document["cluster"]
    goes_on = bool(before.get("until_done")) if request.until_done is None else request.until_done
    same_place = site.cluster.name == run.cluster
    options = options_of(site, request, profile, before if same_place else {}, goes_on, training=trains(argv))
    choice = choose_way(site, options) if goes_on else None
    options = (*options, *(choice.options if choice else ()))
    number = max((each.number for each in ended.record.submissions), default=-1) + 1
    run = replace(run, cluster=site.cluster.name, run_dir=run_dir)
    job = job_of(site, run, document, env, profile, options, choice, number, check=check and same_place)
    way = choice.way if choice else None
    wanted = request_json(
        number,
        "resume",
        timestamp(datetime.now(UTC)),
        options,
        argv=argv if argv != list(document["argv"]) else None,
        env=env if env != document["env"] else None,
        until_done=way,
        workdir=f"{job.workdir}/project" if away else None,
        python_path=[bundle_of(site, document)] if away else None,
    )
    steps = option_of(argv, "--total-steps") if trains(argv) else env.get(TOTAL_STEPS)
    again = replace(
        run,
        profile=profile.name,
        job_id="",
        submission=number,
        until_done=way or "",
        total_steps=int(steps) if steps else run.total_steps,
        state=JobState.PENDING,
        last="",
    )
    folder = f"runs/{run.run_id}"
    files: dict[str, bytes | str] = {
        f"{folder}/job.sh": render(job).encode(),
        f"{folder}/submissions/{number}/request.json": wanted,
    }
    return again, Parcel((again,), folder, files, options, number), choice


def moved(value: str, old: str, new: str) -> str:
    """A path in, or of, the folder `old` as it is in `new`; any other text as it is."""
    return new + value[len(old) :] if value == old or value.startswith(f"{old}/") else value


def recorded_profile(document: Mapping[str, Any]) -> Profile:
    """The profile of a run.json, which we have written and checked ourselves."""
    from clusterkit.config.models import Profile

    known = {name: value for name, value in document["profile"].items() if name in Profile.model_fields}
    return Profile.model_construct(**known)


def options_of(
    site: Site,
    request: ResumeRequest,
    profile: Profile,
    before: Mapping[str, Any],
    goes_on: bool,
    *,
    training: bool,
) -> tuple[str, ...]:
    """The sbatch options: those of the submission before, but for what is asked to be different.

    Args:
        site: where the job shall run.
        request: what is asked.
        profile: its resources.
        before: request.json of the submission before; empty when it was made for another cluster.
        goes_on: whether it goes on past its time limit.
        training: whether it runs the bundled trainer.
    """
    extra = list(request.sbatch)
    if request.profile is None and before.get("options"):
        left = (*_OF_THE_WAY, *(_OF_THE_PACK if int(before.get("pack") or 1) > 1 else ()))
        kept = [str(each) for each in before["options"] if each.partition("=")[0] not in left]
        changed = {each.partition("=")[0] for each in extra}
        if request.time is not None:
            changed |= {"--time", "--signal"}
        extra = [each for each in kept if each.partition("=")[0] not in changed] + extra
    if request.time is not None:
        profile = profile.model_copy(update={"time": request.time})
    signal = warning(profile, trains=training, until_done=goes_on)
    return sbatch_options(site.cluster, profile, defaults={"signal": signal} if signal else {}, extra=extra)


def job_of(
    site: Site,
    run: LedgerRun,
    document: Mapping[str, Any],
    env: Mapping[str, str],
    profile: Profile,
    options: tuple[str, ...],
    choice: Choice | None,
    number: int,
    *,
    check: bool,
) -> JobScript:
    """The job script over the code and the image that a run began with.

    Args:
        site: where it shall run.
        run: which, with its run directory there.
        document: run.json of the run that the code and the image are of.
        env: of the program.
        profile: its resources.
        options: of sbatch.
        choice: how it goes on past its time limit.
        number: of the submission.
        check: make sure that the code is there.

    Raises:
        ImageError: the image is gone.
        RunError: the code is gone.
    """
    cluster = site.cluster
    code = f"{site.layout.snapshots}/{posixpath.basename(posixpath.dirname(document['workdir']))}"
    bundle = bundle_of(site, document)
    facts = document.get("image")
    image = Image(str(facts["digest"]), int(facts["bytes"])) if facts else None
    if image and not images.present(site, image):
        raise ImageError(
            f"{site.transport.where}: the image {image.digest[:12]} of the run is not there any more",
            hint="`clusterkit deploy --image FILE.sif` with the same file brings it back",
        )
    if check and site.transport.run(["test", "-d", code], check=False).returncode != 0:
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
        image=image.path(site.layout.images) if image else None,
        image_bytes=image.bytes if image else None,
        image_digest=image.digest if image else None,
        binds=(*cluster.binds, f"{bundle}:{bundle}:ro", *_stage_before(site, env)),
        nv=profile.gpu_count > 0,
        wandb_login=env.get("WANDB_MODE") == "online",
        prelude=cluster.prelude,
        submission=number,
        until_done=choice.way if choice else None,
        libraries=(bundle,),
        trust=cluster.trust,
        group=cluster.group,
    )


def _stage_before(site: Site, env: Mapping[str, str]) -> tuple[str, ...]:
    """The mount of the run directory of a pipeline's stage before, where it is there."""
    before = env.get(PREVIOUS, "")
    if before != site.layout.run(posixpath.basename(before)):  # only a run directory is shown to a program
        return ()
    there = site.transport.run(["test", "-d", before], check=False).returncode == 0
    return (f"{before}:{before}:ro",) if there else ()


def bundle_of(site: Site, document: Mapping[str, Any]) -> str:
    """Where the trainer of a run lies, for its PYTHONPATH."""
    (bundle,) = document["python_path"]
    return f"{site.layout.snapshots}/{'/'.join(bundle.split('/')[-2:])}"
