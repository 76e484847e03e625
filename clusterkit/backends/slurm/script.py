"""Renders job.sh, the one job script of a run, for Slurm and the local scheduler. Pure: text out of values.

`templates/job.sh.j2` holds the script; every value enters it through `shlex.quote`. Under the local scheduler
the `#SBATCH` lines are comments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from clusterkit.backends.slurm.abilities import Way
from clusterkit.errors import ConfigError
from clusterkit.exit_codes import REQUEUE_CODE
from clusterkit.ownership import EXIT_CODE
from clusterkit.resources import resource

if TYPE_CHECKING:
    import jinja2

PASSTHROUGH = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_END_TIME",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_RESTART_COUNT",
    "SLURMD_NODENAME",
)
"""Variables of the node that a program in a container may need; `--cleanenv` would drop them."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(=.*)?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """Everything the job script of one run says. All paths are absolute paths of the cluster.

    Raises:
        ConfigError: a value cannot be said in a job script (a line break in an option, a relative path, a
            comma or colon in a path the container mounts).
    """

    run_id: str
    job_name: str
    run_dir: str
    workdir: str
    """The code: read-only inside a container."""
    scratch_root: str
    """Each attempt makes `<run_id>-<attempt>` here (0700) and removes it when it ends."""
    cache_root: str
    """Keeps the container runtime's cache from run to run."""
    python: str = "python3"
    """Interpreter that runs launch.py: of the image, or of the node without a container."""
    options: tuple[str, ...] = ()
    """sbatch options, `--name=value` or `--flag`; they may override those that clusterkit sets."""
    container: Literal["apptainer", "singularity", "none"] = "none"
    image: str | None = None
    image_bytes: int | None = None
    image_digest: str | None = None
    """SHA-256, with or without `sha256:`; compared with the image's name and with run.json."""
    verify_image: bool = False
    """Read all of the image before each start, and compare its SHA-256."""
    binds: tuple[str, ...] = ()
    """More mounts, `source[:target[:options]]` as the runtime takes them."""
    nv: bool = False
    """Show the node's GPUs to the container."""
    wandb_login: bool = False
    """Show the program in a container the W&B login, ~/.netrc, that the user has on the node."""
    prelude: tuple[str, ...] = ()
    """Lines of the user's own shell code, run on the node before the container (`module load apptainer`)."""
    passthrough: tuple[str, ...] = PASSTHROUGH
    submission: int = 0
    """Number of the submission this script belongs to."""
    until_done: Way | None = None
    """How it goes on past its time limit; the options must fit (`slurm.abilities.choose`)."""
    together: tuple[str, ...] = ()
    """Run directories of those that one process trains, its own among them."""
    meeting: str | None = None
    """Folder where they meet, unless the script of their common job names another."""
    libraries: tuple[str, ...] = ()
    """Other folders with code of the program, on its PYTHONPATH."""
    trust: tuple[str, ...] = ()
    """Users who may own, and groups who may write to, the folders of the run."""
    group: str | None = None
    """One more such group."""

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.run_id):
            raise ConfigError(f"{self.run_id!r} is no run id", hint="letters, digits and . _ - only")
        for name in ("run_dir", "workdir", "scratch_root", "cache_root"):
            _check_path(name, getattr(self, name), mounted=self.container != "none")
        for variable in self.passthrough:
            if not _NAME.fullmatch(variable):
                raise ConfigError(f"{variable!r} is no name of an environment variable")
        if self.container != "none":
            if not self.image:
                raise ConfigError(f"{self.container} needs an image", hint='or set container = "none"')
            _check_path("image", self.image, mounted=False)


def render(job: JobScript) -> str:
    """The text of job.sh: valid bash 4, ASCII but for the values.

    Raises:
        ConfigError: an option cannot be written as an #SBATCH line.
    """
    return (
        templates()
        .get_template("job.sh.j2")
        .render(
            job=job,
            directives=[directive(option) for option in _options(job)],
            contained=job.container != "none",
            prefix=job.container.upper(),
            digest=(job.image_digest or "").removeprefix("sha256:"),
            requeue_code=REQUEUE_CODE,
            warning=_warning(job.options),
            unsafe_code=EXIT_CODE,
        )
    )


def _warning(options: Sequence[str]) -> tuple[str, int] | None:
    """Name of the signal before the time limit, and how many seconds before it; None without one."""
    told = [option.partition("=")[2] for option in options if option.startswith("--signal=")]
    match = re.fullmatch(r"R?B:(?:SIG)?(USR1|USR2|TERM|INT)@(\d{1,5})", told[-1]) if told else None
    return (match[1], int(match[2])) if match else None


@cache
def templates() -> jinja2.Environment:
    """The templates of job scripts, compiled once."""
    import jinja2

    environment = jinja2.Environment(  # noqa: S701 - shell text, not HTML; values pass the sh filter
        loader=jinja2.FileSystemLoader(resource("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # `${#name}` is a length in bash
        comment_end_string="##}",
    )
    environment.filters["sh"] = shlex.quote
    return environment


def directive(option: str) -> str:
    """One #SBATCH line, quoted the way sbatch reads it: blanks, quotes, `#` and backslashes need a backslash.

    Raises:
        ConfigError: it is no option, or holds a line break, which sbatch cannot read.
    """
    if not _OPTION.fullmatch(option):
        raise ConfigError(f"{option!r} is no sbatch option", hint="write --name=value or --flag")
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", option):
        raise ConfigError(f"the sbatch option {option!r} holds a control character")
    return "#SBATCH " + re.sub(r"""([\s'"#\\])""", r"\\\1", option)


def _options(job: JobScript) -> Sequence[str]:
    """Our own options where the user gives none of that name, then the user's in their order."""
    # In a file name pattern of sbatch `%` starts a field and a backslash switches fields off.
    log = f"{job.run_dir}/slurm.log".replace("%", "%%")
    own = [
        f"--job-name={job.job_name}",
        f"--output={log}",
        "--open-mode=append",
        f"--chdir={job.run_dir}",
    ]
    given = {option.partition("=")[0] for option in job.options}
    return [option for option in own if option.partition("=")[0] not in given] + list(job.options)


def _check_path(name: str, path: str, *, mounted: bool) -> None:
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{name} must be an absolute path, not {path!r}")
    if mounted and (bad := re.search(r"[,:\n]", path)):
        raise ConfigError(
            f"{name} {path!r} holds {bad[0]!r}, which a container mount cannot name",
            hint="choose another root for this cluster",
        )
