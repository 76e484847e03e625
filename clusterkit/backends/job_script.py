"""Renders the job scripts of runs, job.sh, for every backend. Pure.

`templates/job.sh.j2` holds the script; every value is quoted with `shlex.quote`. The backend adds the lines
at the top.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from clusterkit.backends import jobs
from clusterkit.backends.base import Backend, architectures, backend_of, vendor
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.backends.submission import Submission, job_name
from clusterkit.errors import ConfigError
from clusterkit.exit_codes import REQUEUE_CODE
from clusterkit.folders import PARTIAL_DIR
from clusterkit.ownership import EXIT_CODE
from clusterkit.resources import TEMPLATES
from clusterkit.runtimes import BUILDER, NONE, Runtime

if TYPE_CHECKING:
    import jinja2

    from clusterkit.config.models import Cluster, Profile, Retry

_GPU_VARIABLES = {
    "nvidia": (
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "NVIDIA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
    ),
    # ROCR_VISIBLE_DEVICES numbers the GPUs anew, and HIP reads CUDA_VISIBLE_DEVICES, too: Slurm sets both to
    # the node's numbers, of which HIP would then find none.
    "amd": ("GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """The contents of a run's job script. All paths are absolute on the cluster.

    Raises:
        ConfigError: a value cannot be written in a job script (a relative path, a comma or colon in a path
            that the container mounts).
    """

    run_id: str
    run_dir: str
    submissions: tuple[Submission, ...]
    """The run's submission, or one for each of several jobs of which the first to start takes the run."""
    cluster: Cluster
    profile: Profile
    snapshot: str
    """The code, of which every run has a copy of its own as its working directory."""
    scratch_root: str
    """Each attempt creates `<run_id>-<attempt>` in it (0700) and removes it at its end."""
    cache_root: str
    """The container runtime's cache, kept between runs."""
    image: str | None = None
    """In the cluster's store, or of a registry; None for a program without a container."""
    image_bytes: int | None = None
    image_digest: str | None = None
    """SHA-256, with or without `sha256:`; compared with the image's name and run.json."""
    image_arch: str = ""
    """The architecture that it is for; empty if unknown."""
    other_images: Mapping[str, tuple[str, int, str]] = field(default_factory=dict)
    """The path, bytes and SHA-256 of the same image for other architectures."""
    environment: str | None = None
    """Folder of the Python environment in which the program runs; None without one."""
    environment_program: str = ""
    """The program that starts others in the environment, and builds it (templates/environment.sh)."""
    binds: tuple[str, ...] = ()
    """Additional mounts, `source[:target[:options]]` as the runtime takes them."""
    wandb_login: bool = False
    """Make the user's W&B login on the node, ~/.netrc, available in the container."""
    together: tuple[str, ...] = ()
    """Run directories, its own included, that one process trains."""
    meeting: str | None = None
    """Folder where they meet, unless their common job's script names another."""
    libraries: tuple[str, ...] = ()
    """Additional folders on the program's PYTHONPATH."""
    secrets: str | None = None
    """Folder with the program's encrypted secrets, removed when the run has ended; None without any."""
    secret_names: tuple[str, ...] = ()
    """Their environment variables."""
    tells: bool = False
    """Whether the job tells a webhook of its end, whose address is among the secrets."""

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.run_id):
            raise ConfigError(f"{self.run_id!r} is not a run id", hint="use only letters, digits and . _ -")
        for name in ("run_dir", "snapshot", "scratch_root", "cache_root"):
            _check_path(name, getattr(self, name), mounted=self.runtime.contained and name != "snapshot")
        mounts = (self.run_dir, self.scratch_root, *self.binds, *self.together, *self.environments)
        self.runtime.check_mounts(mounts)
        if self.image and not self.from_registry:
            _check_path("image", self.image, mounted=False)

    @property
    def submission(self) -> Submission:
        """The first submission."""
        return self.submissions[0]

    @property
    def job_name(self) -> str:
        """The name of its job."""
        return job_name(self.run_id, self.submission.number)

    @property
    def alternatives(self) -> tuple[tuple[str, ...], ...]:
        """The options of each of several jobs; empty for one job."""
        return tuple(each.options for each in self.submissions) if len(self.submissions) > 1 else ()

    @property
    def options(self) -> tuple[str, ...]:
        """The backend's options, or those that several jobs share; they may override those of clusterkit."""
        options, several = self.submission.options, self.alternatives
        return tuple(option for option in options if all(option in other for other in several))

    @property
    def nv(self) -> bool:
        """Whether the node's GPUs are available in the container."""
        return self.profile.gpu_count > 0

    @property
    def vendor(self) -> str:
        """Who made them."""
        return vendor(self.cluster, self.profile)

    @property
    def machines(self) -> tuple[str, ...]:
        """The architectures to which the job is bound; none where its nodes are known to have them."""
        known = [architectures(self.cluster, each.options) for each in self.submissions]
        own = {self.image_arch, *self.other_images} - {""}
        return () if all(each and each <= own for each in known) else tuple(sorted(own))

    @property
    def ranks_per_node(self) -> int:
        """Processes of the program on each node."""
        return max(self.profile.gpu_count, 1)

    @property
    def memory(self) -> int | None:
        """Memory of the job in bytes, where it may be tried again with more."""
        return self.backend.asked(self.submission.options).memory

    @property
    def memory_up_to(self) -> int | None:
        """Most memory in bytes with which it is tried again when it ran out; None: not at all."""
        retry = self._retry
        return retry.memory_up_to if retry else None

    @property
    def node_failures(self) -> int:
        """How often it is tried again after a node failure; its options must let the job be requeued."""
        retry = self._retry
        return retry.node_failures if retry and self.submission.until_done is None else 0

    @property
    def _retry(self) -> Retry | None:
        return self.profile.retry if self.backend.can.retries else None

    @property
    def environments(self) -> tuple[str, ...]:
        """The paths of its environment; none without one."""
        return (self.environment, self.environment_program) if self.environment else ()

    @property
    def backend(self) -> Backend:
        """The scheduler that starts it."""
        return backend_of(self.cluster)

    @property
    def runtime(self) -> Runtime:
        """What starts the program."""
        return self.cluster.runtime if self.image or not self.cluster.contained else NONE

    @property
    def from_registry(self) -> bool:
        """Whether each job takes the image from a registry."""
        registry = self.runtime.registry
        return bool(registry) and (self.image or "").startswith(registry)


def passed_on(backend: Backend, maker: str) -> tuple[str, ...]:
    """Returns variables of the node that a program in a container may need and `--cleanenv` would drop."""
    return (*_GPU_VARIABLES[maker], *backend.variables)


def render(job: JobScript) -> str:
    """Returns the text of job.sh: bash 4, ASCII except for the values.

    Raises:
        ConfigError: an option cannot be written into a script.
    """
    warning = job.backend.held_back(job.options)
    template = templates().get_template("job.sh.j2")
    return _rendered(template, job, directives=_directives(job), warning=warning)


def render_node(job: JobScript) -> str:
    """Returns the text of node.sh, which starts the program on one of several nodes."""
    return _rendered(templates().get_template("node.sh.j2"), job)


def render_environment(job: JobScript) -> str:
    """Returns the text of a script that only builds a job's environment; its run directory is any folder."""
    frame = "build-environment.sh.j2"
    return _rendered(starting(job.runtime), job, directives=_directives(job), frame=frame)


def _directives(job: JobScript) -> Sequence[str]:
    return job.backend.directives(job.options, job_name=job.job_name, folder=job.run_dir, log=SCHEDULER_LOG)


def render_others(job: JobScript) -> str:
    """Returns the text of others.sh: submits the other jobs, of which the first to start takes the run."""
    return _rendered(templates().get_template("submit-others.sh.j2"), job)


def _rendered(
    template: jinja2.Template, job: JobScript, frame: str = "program.sh.j2", **values: object
) -> str:
    several = (option for options in job.alternatives for option in options)
    return template.render(
        job=job,
        prelude=prelude(job.cluster.prelude),
        runtime=job.runtime,
        program=starting(job.runtime),
        frame=frame,
        builder=BUILDER,
        image_file=job.runtime.contained and not job.from_registry,
        names=jobs,
        partial=PARTIAL_DIR,
        digest=(job.image_digest or "").removeprefix("sha256:"),
        passthrough=passed_on(job.backend, job.vendor),
        requeue_code=REQUEUE_CODE,
        unsafe_code=EXIT_CODE,
        mails=job.backend.mails((*job.options, *several)),
        **values,
    )


def prelude(lines: Sequence[str]) -> str:
    """Returns the site's own shell lines, `prelude` of a cluster, for a script that `bash -p` starts.

    `templates/prelude.sh` holds the one way to run them, and what it gives back.
    """
    functions = (TEMPLATES / "prelude.sh").read_text(encoding="utf-8")
    # Indented, as others look for lines of job.sh that begin with a name. One setting may hold several lines.
    parts = "".join(f"  {shlex.quote(part)}\n" for line in lines for part in line.split("\n"))
    return f"{functions}\nprelude_lines=(\n{parts})\n"


@cache
def starting(runtime: Runtime) -> jinja2.Template:
    """The template of what starts a program, which extends the value `frame`."""
    return templates().from_string(runtime.template.read_text())


@cache
def templates() -> jinja2.Environment:
    """Returns the templates of texts, compiled once: job scripts and an export's README."""
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - no HTML; in scripts values pass the sh filter
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # `${#name}` is a length in bash
        comment_end_string="##}",
    )
    environment.filters["sh"] = shlex.quote
    return environment


def _check_path(name: str, path: str, *, mounted: bool) -> None:
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{name} must be an absolute path, not {path!r}")
    if mounted and (bad := re.search(r"[,:\n]", path)):
        raise ConfigError(
            f"{name} {path!r} contains {bad[0]!r}, which a container mount cannot contain",
            hint="choose another root for this cluster",
        )
