"""The plan of a submission, and the files written for it once the cluster's paths are known.

`resolve` and `resubmit` make a plan without a connection. After the login, `place` makes a run's run.json,
job script, request.json and ledger row.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from clusterkit.backends.base import backend_of
from clusterkit.backends.job_script import JobScript, render, render_node, render_others
from clusterkit.backends.jobs import Continuation, JobResources, Kind, Parent
from clusterkit.backends.submission import Submission
from clusterkit.images.architecture import fitting
from clusterkit.resources import NODE_PROGRAMS
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.program import PREVIOUS, Program, names_trainer
from clusterkit.runs.secret_values import Sealed, SecretValues, seal
from clusterkit.runs.spec import RunSpec, ledger_row
from clusterkit.site import Layout
from clusterkit.snapshots import Allow

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.submit.group import GroupPart, JobBatch
    from clusterkit.submit.materials import Materials


@dataclass(frozen=True)
class GroupMember:
    """A run's position in its group."""

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


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One submission of one run, before it has its place on the cluster."""

    profile: Profile
    program: Program
    member: GroupMember | None = None
    spec: RunSpec
    """The new run, or from the second submission on the run as first submitted."""
    submission: Submission
    """Without the options for continuation, dependencies and sharing."""
    others: tuple[Submission, ...] = ()
    """Further jobs, of which the first to start takes the run."""
    goes_on: bool
    """Whether it continues past its time limit."""
    unplaced: tuple[str, ...] = ()
    """Names of values asked for, such as `seed`, that the program can only read from its environment."""

    @property
    def requests(self) -> tuple[tuple[str, ...], ...]:
        """The options of each of its jobs."""
        return tuple(each.options for each in (self.submission, *self.others))

    @property
    def recipe(self) -> str:
        """Name of the recipe; "" if the run does not use the bundled trainer."""
        return str((self.program.recipe or {}).get("name", ""))

    @property
    def uses_trainer(self) -> bool:
        """Whether the program starts the bundled trainer."""
        return names_trainer(self.program.argv)

    @property
    def modified(self) -> tuple[str, ...]:
        """Names of modified recipe values."""
        return tuple((self.program.recipe or {}).get("modified", ()))


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
    submissions: tuple[Submission, ...]
    """The run's submission, or one for each job of which the first to start takes the run."""
    job: JobScript
    scripts: Mapping[str, str]
    """job.sh and the scripts that belong to it, by file name."""
    row: LedgerRun
    """The run's ledger row before it has a job."""
    sealed: Sealed | None = None
    """The program's secrets."""

    @property
    def submission(self) -> Submission:
        """The first submission."""
        return self.submissions[0]

    @property
    def folder(self) -> str:
        """The run directory, relative to the work root."""
        return f"runs/{self.spec.run_id}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The absolute paths of the run's image, snapshots and environment."""
        image = (self.job.image,) if self.job.image and self.job.image_digest else ()
        code = (posixpath.dirname(path) for path in (self.job.snapshot, *self.job.libraries))
        others = (path for path, *_ in self.job.other_images.values())
        return (*image, *others, *code, *self.job.environments)

    def files(self, submissions: Iterable[Submission]) -> dict[str, bytes | str]:
        """Returns the run's files by path in the work root, with these submissions' request.json."""
        files: dict[str, bytes | str] = {
            f"{self.folder}/{name}": text.encode("utf-8", "surrogateescape")
            for name, text in self.scripts.items()
        }
        if "node.sh" in self.scripts:
            files[f"{self.folder}/rendezvous.py"] = (NODE_PROGRAMS / "rendezvous.py").read_bytes()
        for each in submissions:
            files[f"{self.folder}/submissions/{each.number}/request.json"] = each.to_json()
        files |= self.sealed.files if self.sealed else {}
        if self.submission.number > 0:
            return files
        return {
            f"{self.folder}/run.json": self.spec.to_json(),
            f"{self.folder}/launch.py": (NODE_PROGRAMS / "launch.py").read_bytes(),
            f"{self.folder}/lib/clusterkit.py": (NODE_PROGRAMS / "log.py").read_bytes(),
            **files,
            f"{self.folder}/attempts/": "",
        }


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
    short: str = "",
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
        short: its short name.

    Raises:
        ConfigError: a value cannot be written in a job script.
        ImageError: nodes that the run may get cannot start its image.
    """
    member, run_id = planned.member, planned.spec.run_id
    run_dir, image = layout.run(run_id), materials.image
    if image:
        needed = fitting(image, cluster, planned.requests)
        image = needed if planned.submission.number == 0 else image  # run.json has named it since then
    argv, env = planned.program.placed(run_id, run_dir)
    if member:
        env |= member.env
        env |= {PREVIOUS: layout.run(member.previous)} if member.previous else {}
    template = planned.program.argv if planned.program.has_places else None
    spec = replace(
        planned.spec,
        argv=argv,
        env=env,
        workdir=f"{layout.snapshots}/{materials.code}/project",
        python_path=(f"{layout.snapshots}/{materials.trainer}",) if planned.uses_trainer else (),
        snapshot=materials.facts,
        image=image.facts(layout.images) if image else None,
        environment=_environment(materials, argv, layout),
        template=template if template != argv else None,
        short=short,
    )
    sealed = seal(secrets, run_id, alone=member is None)
    first = replace(
        planned.submission,
        until_done=continuation.way if continuation else None,
        part=part,
        in_one=max(1, len(member.together)) if member else 1,
        alternatives=len(planned.others) + 1 if planned.others else 0,
        seal=sealed.key if sealed else None,
    )
    if first.number > 0:
        before = planned.spec
        away = before.cluster != cluster.name
        first = replace(
            first,
            argv=argv if argv != before.argv else None,
            env=env if env != before.env else None,
            workdir=spec.workdir if away else None,
            python_path=spec.python_path if away else None,
        )
    goes_on = continuation.options if continuation else ()
    submissions = (
        replace(first, options=(*first.options, *goes_on)),
        *(
            replace(first, number=number, gpu=other.gpu, options=(*other.options, *goes_on))
            for number, other in enumerate(planned.others, 1)
        ),
    )
    row = ledger_row(asdict(spec), submissions[0], cluster=cluster.name, run_dir=run_dir)
    job = _job_script(planned, spec, submissions, sealed, cluster, layout, previous_there=previous_there)
    scripts = {"job.sh": render(job)}
    if planned.profile.nodes > 1:
        scripts["node.sh"] = render_node(job)
    if job.alternatives:
        scripts["others.sh"] = render_others(job)
    return PlacedRun(planned, spec, submissions, job, scripts, row, sealed)


def _environment(materials: Materials, argv: Sequence[str], layout: Layout) -> dict[str, Any] | None:
    """Returns the environment in run.json; None for the bundled trainer, which has its packages elsewhere."""
    environment = materials.environment
    if environment is None or list(argv[:3]) == ["python", "-m", "trainer"]:
        return None
    return {**environment.facts, "path": f"{layout.environments}/{environment.digest}"}


def _job_script(
    planned: PlannedRun,
    spec: RunSpec,
    submissions: tuple[Submission, ...],
    sealed: Sealed | None,
    cluster: Cluster,
    layout: Layout,
    *,
    previous_there: bool,
) -> JobScript:
    """Returns the values of a run's job script."""
    image, drawn = spec.stored_image, spec.versions.get("image")  # drawn from a registry
    together = planned.member.together if planned.member else ()
    meeting = None
    if planned.member and together and not backend_of(cluster).can.arrays:
        folder = f"{layout.root}/groups/{planned.member.group['id']}"
        meeting = f"{folder}/together-{together[0].rpartition('-')[2]}"
    previous = spec.env.get(PREVIOUS) if previous_there else None
    environment, program = (spec.environment or {}).get("path"), ""
    binds = [f"{path}:{path}:ro" for path in (*spec.python_path, previous) if path]
    if environment:
        from clusterkit.environments.store import program_path

        program = program_path(layout)
        binds += [f"{environment}:{environment}", f"{program}:{program}:ro"]
    return JobScript(
        run_id=spec.run_id,
        run_dir=layout.run(spec.run_id),
        submissions=submissions,
        cluster=cluster,
        profile=planned.profile,
        snapshot=spec.workdir,
        scratch_root=layout.scratch,
        cache_root=layout.cache,
        image=image.path(layout.images) if image else drawn,
        image_bytes=image.bytes if image else None,
        image_digest=image.digest if image else None,
        image_arch=image.arch if image else "",
        other_images={
            each.arch: (each.path(layout.images), each.bytes, each.digest)
            for each in (image.others if image else ())
        },
        environment=environment,
        environment_program=program,
        binds=(*cluster.binds, *binds),
        wandb_login=spec.env.get("WANDB_MODE") == "online",
        together=tuple(layout.run(each) for each in together),
        meeting=meeting,
        libraries=spec.python_path,
        secrets=f"{layout.root}/{sealed.folder}" if sealed else None,
        secret_names=sealed.names if sealed else (),
        tells=sealed.tells if sealed else False,
    )
