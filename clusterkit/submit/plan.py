"""The plan of a submission, and the files written for it once the cluster's paths are known.

`resolve` and `resubmit` make a plan without a connection. After the login, `place` makes a run's run.json,
job script, request.json and ledger row.
"""

from __future__ import annotations

import platform
import posixpath
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterkit import __version__
from clusterkit.backends import backend_of
from clusterkit.backends.base import Continuation, JobResources, Kind, Parent
from clusterkit.backends.job_script import JobScript, render, render_node, render_others
from clusterkit.images.image import Image
from clusterkit.node import node_program
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.program import Program
from clusterkit.runs.sealing import Sealed, seal
from clusterkit.runs.secret_values import SecretValues
from clusterkit.runs.spec import RunSpec, ledger_row, snapshot_ids
from clusterkit.runs.submission import SubmissionRequest, job_name
from clusterkit.site import Layout
from clusterkit.snapshots import Allow, Snapshot

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.submit.group import GroupPart, JobBatch

PREVIOUS = "CLUSTERKIT_PREVIOUS_RUN_DIR"
"""Environment variable with the run directory of the previous pipeline stage."""


@dataclass(frozen=True)
class Materials:
    """A run's code, trainer and image, identified by content."""

    code: str
    """Id of the project's snapshot."""
    trainer: str
    """The trainer package's folder, relative to the snapshots."""
    facts: Mapping[str, Any]
    """The snapshot's description in run.json."""
    image: Image | None

    @classmethod
    def taken(cls, snapshot: Snapshot, image: Image | None) -> Materials:
        """Returns the materials for runs of the working tree."""
        return cls(
            snapshot.id, f"{snapshot.bundle.id}/bundle", {"id": snapshot.id, **snapshot.git.facts}, image
        )

    @classmethod
    def recorded(cls, document: Mapping[str, Any]) -> Materials:
        """Returns the materials of an earlier run from its run.json."""
        code, trainer = snapshot_ids(document)
        image = document.get("image")
        return cls(
            code,
            f"{trainer}/bundle",
            document["snapshot"],
            Image(str(image["digest"]), int(image["bytes"])) if image else None,
        )


@dataclass(frozen=True)
class GroupMember:
    """A run's position in its group."""

    index: int
    stage: int
    group: Mapping[str, Any]
    """`id`, `index` and `size`."""
    values: Mapping[str, str]
    """Its sweep values, by name."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables."""
    previous: str | None = None
    """Run id of the previous pipeline stage."""
    together: tuple[str, ...] = ()
    """Ids of the runs, including this one, that one process trains; empty for a run with its own process."""


class Alternative(NamedTuple):
    """One of several jobs of which the first to start takes a run."""

    gpu: str | None
    """The GPU type that it asks for."""
    options: tuple[str, ...]
    """The backend's options."""


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One submission of one run."""

    run_id: str
    name: str
    created: str
    """Time of the request; UTC, ISO 8601."""
    profile: Profile
    program: Program
    options: tuple[str, ...]
    """The backend's options, except those for continuation, dependencies and sharing."""
    others: tuple[Alternative, ...] = ()
    """Further jobs, of which the first to start takes the run."""
    goes_on: bool
    """Whether it continues past its time limit."""
    seed: int | None
    total_steps: int | None
    unplaced: tuple[str, ...] = ()
    """Names of values asked for, such as `seed`, that the program can only read from its environment."""
    verify_image: bool = False
    wandb: Mapping[str, Any] = field(default_factory=dict)
    project: str = ""
    member: GroupMember | None = None
    command: tuple[str, ...] | None = None
    """The arguments of `submit` that reproduce the run; None if none do."""
    number: int = 0
    """Number of the submission."""
    before: RunSpec | None = None
    """The run that is repeated or, from the second submission on, this run as first submitted."""

    @property
    def recipe(self) -> str:
        """Name of the recipe; "" if the run does not use the bundled trainer."""
        return str((self.program.recipe or {}).get("name", ""))

    @property
    def modified(self) -> tuple[str, ...]:
        """Names of modified recipe values."""
        return tuple((self.program.recipe or {}).get("modified", ()))

    @property
    def again(self) -> bool:
        """Whether it continues in an existing run directory."""
        return self.number > 0


@dataclass(frozen=True)
class PlannedGroup:
    """Runs submitted together, as tasks of job arrays or one by one."""

    id: str
    name: str
    created: datetime
    dealt: tuple[JobBatch, ...]
    at_once: int | None
    """Maximum number of tasks that run at a time; None for no limit."""
    pack: int = 1
    """Runs per job."""
    in_one: int = 1
    """Runs per training process."""
    then_always: bool = False
    """Whether a stage starts even if the previous one failed."""

    @property
    def jobs(self) -> int:
        """Number of tasks in all arrays."""
        return sum(len(batch.tasks) for batch in self.dealt)


@dataclass(frozen=True)
class After:
    """One `--after` value: a run or a group, and how it must end."""

    name: str
    kind: Kind = "ok"


@dataclass(frozen=True)
class Plan:
    """A run or a group to submit to one cluster."""

    cluster: Cluster
    runs: tuple[PlannedRun, ...]
    group: PlannedGroup | None = None
    after: tuple[After, ...] = ()
    """Dependencies of the first stage."""
    native: tuple[str, ...] = ()
    """Scheduler options from the command line."""
    allow_large: Allow | None = None
    """Decides whether files over the size limit may be sent; None refuses."""
    allow_unread: bool = False
    """Whether the runs may have values that do not reach their program."""

    def asked(self, batch: JobBatch) -> JobResources:
        """Returns the resources that each job of a batch requests."""
        return backend_of(self.cluster).asked(batch.options)

    @property
    def hours(self) -> tuple[float, float]:
        """Requested GPU hours and CPU hours: upper limits, not a forecast."""
        gpu = cpu = 0.0
        for batch in self.group.dealt if self.group else ():
            asked = self.asked(batch)
            for task in batch.tasks:
                profile = self.runs[task[0]].profile
                gpu += profile.nodes * profile.gpu_count * profile.time / 3600
                cpu += profile.nodes * (asked.cpus or profile.cpus) * profile.time / 3600
        return gpu, cpu


@dataclass(frozen=True)
class PlacedRun:
    """A run with all of its files."""

    planned: PlannedRun
    spec: RunSpec
    """The run's description, written as run.json for a new run."""
    job: JobScript
    script: str
    node_script: str
    """Starts the program on each of several nodes; empty for a run on one."""
    others_script: str
    """Submits the jobs beside the first one; empty for a run with one job."""
    row: LedgerRun
    """The run's ledger row before it has a job."""
    sealed: Sealed | None = None
    """The program's secrets."""

    @property
    def folder(self) -> str:
        """The run directory, relative to the work root."""
        return f"runs/{self.spec.run_id}"

    @property
    def options(self) -> tuple[str, ...]:
        """The backend's options of the run's job; of several, those of the first."""
        return self.job.alternatives[0] if self.job.alternatives else self.job.options

    @property
    def needs(self) -> tuple[str, ...]:
        """The absolute paths of the run's image and snapshots."""
        code = (self.job.snapshot, *self.job.libraries)
        image = (self.job.image,) if self.job.image and self.job.image_digest else ()
        return (*image, *(posixpath.dirname(path) for path in code))

    def files(self) -> dict[str, bytes | str]:
        """Returns the run's files by path in the work root, without those of its submission."""
        text = self.script.encode("utf-8", "surrogateescape")
        script: dict[str, bytes | str] = {f"{self.folder}/job.sh": text}
        if self.node_script:
            script[f"{self.folder}/node.sh"] = self.node_script.encode("utf-8", "surrogateescape")
            script[f"{self.folder}/rendezvous.py"] = node_program("rendezvous.py")
        for number, options in enumerate(self.job.alternatives):
            request = self.request(options, number=number)
            script[f"{self.folder}/submissions/{number}/request.json"] = request
        if self.others_script:
            script[f"{self.folder}/others.sh"] = self.others_script.encode("utf-8", "surrogateescape")
        script |= self.sealed.files if self.sealed else {}
        if self.planned.again:
            return {**script}
        return {
            f"{self.folder}/run.json": self.spec.to_json(),
            f"{self.folder}/launch.py": node_program("launch.py"),
            **script,
            f"{self.folder}/attempts/": "",
        }

    def request(
        self,
        options: tuple[str, ...],
        *,
        number: int | None = None,
        task: int | None = None,
        pack: int = 1,
        fed: bool = False,
    ) -> bytes:
        """Returns request.json of the run's submission.

        Args:
            options: the options given to the scheduler.
            number: of the submission, where a run has several at once; otherwise the planned one.
            task: the run's index in its job array, if any.
            pack: number of runs that share the job.
            fed: whether jobs of its group submit it.
        """
        planned, spec = self.planned, self.spec
        gpus = (planned.profile.gpu, *(other.gpu for other in planned.others))
        before = planned.before if planned.again else None
        away = before is not None and before.cluster != self.row.cluster
        return SubmissionRequest(
            planned.number if number is None else number,
            "resume" if planned.again else "first",
            planned.created,
            options,
            argv=spec.argv if before and spec.argv != before.argv else None,
            env=spec.env if before and spec.env != before.env else None,
            task=task,
            until_done=self.job.until_done,
            workdir=spec.workdir if away else None,
            python_path=spec.python_path if away else None,
            part=self.row.part,
            pack=pack,
            in_one=max(1, len(planned.member.together)) if planned.member else 1,
            command=planned.command,
            verify_image=planned.verify_image,
            fed=fed,
            alternatives=len(self.job.alternatives),
            gpu=gpus[number] if number is not None and self.job.alternatives else gpus[0],
            seal=self.sealed.key if self.sealed else None,
        ).to_json()


@dataclass(frozen=True)
class Ready:
    """A plan with all its files, for one cluster."""

    plan: Plan
    placed: tuple[PlacedRun, ...]
    split: tuple[GroupPart, ...]
    """The group's submissions."""
    after: tuple[Parent, ...]
    """The first stage's dependencies."""
    continuation: Continuation | None
    """How the runs continue past their time limits."""
    fed: bool = False
    """Whether the group's own jobs submit all parts but the first."""


def place(
    planned: PlannedRun,
    materials: Materials,
    cluster: Cluster,
    layout: Layout,
    continuation: Continuation | None,
    secrets: SecretValues,
    *,
    part: int = 0,
    previous_there: bool = True,
) -> PlacedRun:
    """Makes the files and the ledger row of a run.

    Args:
        planned: the run.
        materials: the run's code and image.
        cluster: the target.
        layout: the cluster's paths.
        continuation: how the run continues past its time limit; None if it does not.
        secrets: the program's.
        part: number of the submission within the group.
        previous_there: whether the previous stage's run directory exists, or will exist, on the cluster.

    Raises:
        ConfigError: a value cannot be written in a job script.
    """
    member, backend = planned.member, backend_of(cluster)
    run_dir, code = layout.run(planned.run_id), f"{layout.snapshots}/{materials.code}"
    trainer, image = f"{layout.snapshots}/{materials.trainer}", materials.image
    argv, env = planned.program.placed(planned.run_id, run_dir)
    if member:
        env |= member.env
        env |= {PREVIOUS: layout.run(member.previous)} if member.previous else {}
    goes_on = continuation.options if continuation else ()
    options = (*planned.options, *goes_on)
    alternatives = tuple((*other.options, *goes_on) for other in planned.others)
    if alternatives:
        alternatives = (options, *alternatives)
    template = planned.program.argv if planned.program.has_places else None
    values: dict[str, Any] = {
        "profile": planned.profile.model_dump(mode="json", warnings=False),
        "argv": argv,
        "env": env,
        "workdir": f"{code}/project",
        "python_path": (trainer,),
        "total_steps": planned.total_steps,
    }
    if planned.again and planned.before is not None:
        spec = replace(planned.before, **values)
    else:
        spec = RunSpec(
            run_id=planned.run_id,
            name=planned.name,
            created=planned.created,
            cluster=cluster.name,
            recipe=planned.program.recipe,
            snapshot=materials.facts,
            image={**asdict(image), "path": image.path(layout.images)} if image else None,
            seed=planned.seed,
            time_limit_seconds=planned.profile.time,
            wandb={"run_id": planned.run_id, **planned.wandb},
            versions=_versions(cluster),
            project=planned.project,
            group=member.group if member else None,
            sweep=member.values if member else planned.before.sweep if planned.before else None,
            template=template if template != argv else None,
            rerun_of=planned.before.run_id if planned.before else None,
            **values,
        )
    previous = env.get(PREVIOUS, "") if previous_there else ""
    mounts = [f"{path}:{path}:ro" for path in (trainer, previous) if path]
    together = member.together if member else ()
    drawn = spec.versions.get("image")  # from a registry
    retry = planned.profile.retry if backend.can.retries else None
    sealed = seal(secrets, planned.run_id, alone=member is None)
    job = JobScript(
        run_id=planned.run_id,
        job_name=job_name(planned.run_id, planned.number),
        run_dir=run_dir,
        snapshot=f"{code}/project",
        scratch_root=layout.scratch,
        cache_root=layout.cache,
        python=cluster.interpreter,
        options=tuple(each for each in options if all(each in one for one in alternatives)),
        alternatives=alternatives,
        container=cluster.container if image or drawn else "none",
        image=image.path(layout.images) if image else drawn,
        image_bytes=image.bytes if image else None,
        image_digest=image.digest if image else None,
        verify_image=planned.verify_image,
        binds=(*cluster.binds, *mounts),
        nv=planned.profile.gpu_count > 0,
        wandb_login=env.get("WANDB_MODE") == "online",
        prelude=cluster.prelude,
        strict_prelude=cluster.strict_prelude,
        submission=planned.number,
        until_done=continuation.way if continuation else None,
        memory=backend.asked(options).memory,
        memory_up_to=retry.memory_up_to if retry else None,
        node_failures=retry.node_failures if retry and continuation is None else 0,
        together=tuple(layout.run(one) for one in together),
        meeting=_meeting(layout, member) if member and together and not backend.can.arrays else None,
        libraries=(trainer,),
        trust=cluster.trust,
        group=cluster.group,
        nodes=planned.profile.nodes,
        ranks_per_node=max(planned.profile.gpu_count, 1),
        interface=cluster.interface,
        secrets=f"{layout.root}/{sealed.folder}" if sealed else None,
        secret_names=sealed.names if sealed else (),
        tells=sealed.tells if sealed else False,
    )
    row = replace(
        ledger_row(asdict(spec), cluster=cluster.name, run_dir=run_dir),
        submission=planned.number,
        until_done=continuation.way if continuation else "",
        part=part,
    )
    node_script = render_node(job, backend) if job.nodes > 1 else ""
    others_script = render_others(job, backend) if alternatives else ""
    return PlacedRun(planned, spec, job, render(job, backend), node_script, others_script, row, sealed)


def _versions(cluster: Cluster) -> dict[str, str]:
    """Returns what made a run, as far as its other facts do not say it."""
    found = {"clusterkit": __version__, "python": platform.python_version()}
    return found | ({"image": cluster.registry_image} if cluster.registry_image else {})


def _meeting(layout: Layout, member: GroupMember) -> str:
    """Returns the folder where runs that one process trains meet, for a backend without job arrays."""
    return f"{layout.root}/groups/{member.group['id']}/together-{member.together[0].rpartition('-')[2]}"
