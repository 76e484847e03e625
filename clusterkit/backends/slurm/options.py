"""The options of jobs: made from a profile (the hardware) and a cluster (its spelling), and read. Pure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clusterkit.backends.base import Backend, gpu_of, within_max_time, within_runtime
from clusterkit.backends.jobs import EarlySignal, JobResources
from clusterkit.backends.slurm.request import asks_for_requeue, read
from clusterkit.config.options import long_name, parse_options, refuse_secrets, rivals
from clusterkit.errors import ConfigError
from clusterkit.units import parse_size
from clusterkit.untrusted import ordinal

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile

Value = str | int | bool

_OF_ONE_SUBMISSION = ("--requeue", "--array", "--dependency", "--kill-on-invalid-dep")
"""Options that are chosen anew for each submission."""
_OF_THE_PACK = ("--cpus-per-task", "--mem")
"""Options requested for all runs of a shared job."""
_GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task")
_OF_THE_TIME = ("--time", "--signal")
_OF_ONE_RUN = (
    "--requeue",
    "--signal",
    "--error",
    "--array",
    "--begin",
    "--dependency",
    "--hold",
    "--mail-type",
    "--mail-user",
)
"""Options of a run that its short job omits."""
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(=.*)?", re.DOTALL)


class SlurmOptions(Backend):
    """The methods of Slurm's backend that make and read job options."""

    def options(
        self, cluster: Cluster, profile: Profile, *, signal: EarlySignal | None, extra: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Returns options of sbatch."""
        return sbatch_options(cluster, profile, signal=signal, extra=extra)

    def carried_over(self, options: Sequence[str], *, time: bool, packed: bool) -> list[str]:
        """Returns all but the options chosen anew for each submission."""
        left = {*_OF_ONE_SUBMISSION, *(_OF_THE_PACK if packed else ()), *(() if time else _OF_THE_TIME)}
        return [
            option for option in options if option.partition("=")[0] not in left or asks_for_requeue([option])
        ]

    def brief(self, options: Sequence[str], seconds: int) -> tuple[str, ...]:
        """Leaves out log, mail and second starts."""
        own = (
            "--job-name=clusterkit-doctor",
            "--output=/dev/null",
            "--chdir=/",
            "--no-requeue",
            f"--time={slurm_time(seconds)}",
        )
        left = {*_OF_ONE_RUN, *(option.partition("=")[0] for option in own)}
        return (*(option for option in options if option.partition("=")[0] not in left), *own)

    def packed(self, options: Sequence[str], runs: int, given: Sequence[str]) -> tuple[str, ...]:
        """Processors and memory for all runs.

        >>> SlurmOptions().packed(["--cpus-per-task=2", "--mem=4G", "--gres=gpu:1"], 3, ())
        ('--cpus-per-task=6', '--mem=12G', '--gres=gpu:1')
        """
        shared, named = [], self.names(given)
        for option in options:
            name, _, value = option.removeprefix("--").partition("=")
            if name == "cpus-per-task" and name not in named and value.isdigit():
                value = str(int(value) * runs)
            elif name == "mem" and name not in named and value != "0":
                with contextlib.suppress(ValueError):  # the site's own spelling stays as it is
                    value = slurm_memory(parse_size(value if value[-1:].isalpha() else f"{value}M") * runs)
            shared.append(f"--{name}={value}" if value else option)
        return tuple(shared)

    def asked(self, options: Sequence[str]) -> JobResources:
        """Reads `--cpus-per-task`, `--mem`, `--time` and `--partition`."""
        request, given = read(options), dict(option.partition("=")[::2] for option in options)
        queues = tuple(filter(None, given.get("--partition", "").split(",")))
        cpus = ordinal(given.get("--cpus-per-task", ""))
        return JobResources(cpus, request.memory, request.seconds, queues)

    def directives(self, options: Sequence[str], *, job_name: str, folder: str, log: str) -> list[str]:
        """Returns #SBATCH lines: clusterkit's own defaults, then the given options."""
        # In a file name pattern of sbatch `%` starts a field and a backslash switches fields off.
        path = f"{folder}/".replace("%", "%%")
        own = [f"--job-name={job_name}", f"--output={path}{log}", "--open-mode=append", f"--chdir={folder}"]
        given = {option.partition("=")[0] for option in options}
        unset = (each for each in own if each.partition("=")[0] not in given)
        return [directive(option) for option in (*unset, *options)]

    def requeued(self, options: Sequence[str]) -> tuple[str, ...]:
        """Adds `--requeue`, which counts whatever the site's JobRequeue says (man slurm.conf)."""
        if "--no-requeue" in options:
            raise ConfigError(
                "retry.node_failures contradicts the sbatch option no-requeue", hint="remove one of them"
            )
        if asks_for_requeue(options):
            return tuple(options)
        return (*(option for option in options if option != "--requeue"), "--requeue")

    def mailed(self, options: Sequence[str], address: str, *, only_failures: bool) -> tuple[str, ...]:
        """Adds `--mail-user` and `--mail-type`, unless one of them is set already.

        A time limit or too little memory is a failure to Slurm; a requeue is neither END nor FAIL, and of a
        job array they mean the whole.
        """
        if any(option.startswith("--mail-") for option in options):
            return tuple(options)
        types = "FAIL" if only_failures else "END,FAIL"
        return (*options, f"--mail-user={address}", f"--mail-type={types}")

    def mails(self, options: Sequence[str]) -> bool:
        """Returns whether there is a `--mail-type`."""
        return any(option.startswith("--mail-type=") for option in options)

    def signalled(self, options: Sequence[str]) -> bool:
        """Returns whether there is a `--signal`."""
        return any(option.startswith("--signal=") for option in options)

    def held_back(self, options: Sequence[str]) -> EarlySignal | None:
        """Returns the signal of `--signal`, which Slurm may send up to a minute early (man sbatch)."""
        signals = [option.partition("=")[2] for option in options if option.startswith("--signal=")]
        match = re.fullmatch(r"R?B:(?:SIG)?(USR1|USR2|TERM|INT)@(\d{1,5})", signals[-1]) if signals else None
        return EarlySignal(match[1], int(match[2])) if match else None


def sbatch_options(
    cluster: Cluster,
    profile: Profile,
    *,
    signal: EarlySignal | None = None,
    extra: Sequence[str] = (),
) -> tuple[str, ...]:
    """Returns the options of a job, each "--name=value" or "--flag", in a stable order.

    Precedence, weakest first: the profile's resources, the cluster's partition, account, qos and constraint,
    and the signal; the `sbatch` tables of the cluster, of the GPU type and of the profile; the command line.
    In a table, false removes an option and true makes it a flag.

    Args:
        cluster: the target.
        profile: the resources.
        signal: sent to the job script before the time limit.
        extra: options of the command line, e.g. ``["--qos=high", "--exclusive"]``.

    Raises:
        ConfigError: the cluster lacks the GPU or the time, or an option is reserved for clusterkit, is not an
            sbatch option, or exposes a secret.
    """
    within_max_time(cluster, profile)
    within_runtime(cluster, profile)
    options: dict[str, Value] = {"nodes": profile.nodes, "ntasks": profile.nodes}
    if profile.nodes > 1:
        options["ntasks-per-node"] = 1
    options["cpus-per-task"] = profile.cpus
    if profile.memory is not None:
        options["mem"] = slurm_memory(profile.memory)
    options["time"] = slurm_time(profile.time)
    options |= site_options(cluster, profile)
    if signal is not None:
        options["signal"] = f"B:{signal.name}@{signal.seconds}"
    gpu = cluster.gpus.get(profile.gpu or "")
    for table in (cluster.sbatch, gpu.sbatch if gpu else {}, profile.sbatch, parse_options(extra)):
        for written, value in table.items():
            name = long_name(written)
            if value is False:
                options.pop(name, None)
                continue
            for rival in (*rivals(name), *_other_gpu_requests(name, value, options)):
                options.pop(rival, None)
            options[name] = value
    nodes, tasks = (ordinal(str(options.get(name))) for name in ("nodes", "ntasks"))
    if nodes is not None and tasks is not None and tasks < nodes:
        options["ntasks"] = nodes  # fewer are refused by Slurm 26.05
    rendered = _rendered(options)
    refuse_secrets(rendered)
    return rendered


def _other_gpu_requests(name: str, value: Value, options: Mapping[str, Value]) -> tuple[str, ...]:
    """Returns the other ways to ask for GPUs beside this one: Slurm 26.05 refuses both together."""
    if name == "gres" and _gpus_of_gres(value):
        return _GPU_OPTIONS
    return ("gres",) if name in _GPU_OPTIONS and _gpus_of_gres(options.get("gres", "")) else ()


def _gpus_of_gres(value: Value) -> bool:
    return re.match(r"(gres[/:])?gpu\b", str(value)) is not None


def site_options(cluster: Cluster, profile: Profile) -> dict[str, Value]:
    """Returns the GPU request, partition, account, qos and constraint, by long name.

    Raises:
        ConfigError: the cluster has no such GPU; the hint lists those it has.
    """
    options: dict[str, Value] = {}
    gpu = gpu_of(cluster, profile)
    if gpu is not None:
        name, _, value = gpu.request.format(type=profile.gpu, count=profile.gpus).partition("=")
        if name == "--gpus" and profile.nodes > 1:  # those of the whole job, not spread evenly
            name = "--gpus-per-node"
        options[name.removeprefix("--")] = value
    for name in ("partition", "account", "qos", "constraint"):
        value = (getattr(gpu, name) if gpu else None) or getattr(cluster, name)
        if value is not None:
            options[name] = value
    return options


def directive(option: str) -> str:
    """Returns one #SBATCH line, quoted for sbatch: blanks, quotes, `#` and backslashes need a backslash.

    Raises:
        ConfigError: it is not an option, or contains a line break, which sbatch cannot read.
    """
    if not _OPTION.fullmatch(option):
        raise ConfigError(f"{option!r} is not an sbatch option", hint="write --name=value or --flag")
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", option):
        raise ConfigError(f"the sbatch option {option!r} contains a control character")
    return "#SBATCH " + re.sub(r"""([\s'"#\\])""", r"\\\1", option)


def _rendered(options: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items())


def slurm_time(seconds: int) -> str:
    """Returns Slurm's "[D-]HH:MM:SS", rounded up to whole minutes, Slurm's resolution (sbatch --time)."""
    minutes = -(-seconds // 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{f'{day}-' if day else ''}{hour:02}:{minute:02}:00"


def slurm_memory(size: int) -> str:
    """Returns Slurm's memory text, rounded up to whole MiB, e.g. "64G" or "1536M" (sbatch --mem)."""
    mebibytes = -(-size // 2**20)
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"
