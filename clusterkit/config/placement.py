"""Joins a profile (what hardware) with a cluster (where, and how it is spelled) into sbatch options. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterkit.config.exposure import HINT, assigned_secret
from clusterkit.config.layers import nearest
from clusterkit.config.models import Cluster, Profile
from clusterkit.config.options import long_name, rivals
from clusterkit.errors import ConfigError
from clusterkit.units import format_duration, slurm_memory, slurm_time

Value = str | int | bool

_SHORTEST_WARNED = 600
"""Seconds; Slurm may send the signal a minute early, which a very short run has no time for."""


@dataclass(frozen=True)
class GpuPlacement:
    """Where a profile's GPU is on a cluster."""

    partition: str | None
    options: tuple[str, ...]
    """All that the GPU adds to sbatch, as "--name=value", the partition included."""


def resolve_gpu(cluster: Cluster, profile: Profile) -> GpuPlacement:
    """How the cluster spells the profile's GPU, its partition and what goes with it.

    A local cluster without a table of GPUs takes any type: there the hardware is simply what is there.

    Raises:
        ConfigError: the cluster has no such GPU; the hint lists those it has.
    """
    options = _site_options(cluster, profile)
    partition = options.get("partition")
    return GpuPlacement(str(partition) if partition else None, _rendered(options))


def sbatch_options(
    cluster: Cluster,
    profile: Profile,
    *,
    defaults: Mapping[str, Value] | None = None,
    extra: Sequence[str] = (),
) -> tuple[str, ...]:
    """The options of a job, each "--name=value" or "--flag", in a stable order.

    Precedence, weakest first: what the profile's resources and the cluster's partition, account, qos and
    constraint ask for, `defaults`; the tables `sbatch` of the cluster, of the GPU type, of the profile;
    the command line. A table's false removes an option, its true makes a flag.

    Args:
        cluster: where.
        profile: what.
        defaults: run-specific options by long name, e.g. ``{"signal": "B:USR1@120"}``.
        extra: options of the command line, e.g. ``["--qos=high", "--exclusive"]``.

    Raises:
        ConfigError: the cluster lacks the GPU or the time, an option is one clusterkit sets itself, or is
            not an sbatch option, or gives a secret away.
    """
    if cluster.max_time is not None and profile.time > cluster.max_time:
        raise ConfigError(
            f"profile {profile.name} asks for {format_duration(profile.time)} and cluster {cluster.name} "
            f"allows {format_duration(cluster.max_time)} (clusters.{cluster.name}.max_time)",
            hint="give the run less time, or choose another cluster",
        )
    options: dict[str, Value] = {"nodes": 1, "ntasks": 1, "cpus-per-task": profile.cpus}
    if profile.memory is not None:
        options["mem"] = slurm_memory(profile.memory)
    options["time"] = slurm_time(profile.time)
    options |= _site_options(cluster, profile)
    options |= defaults or {}
    gpu = cluster.gpus.get(profile.gpu or "")
    for table in (cluster.sbatch, gpu.sbatch if gpu else {}, profile.sbatch, _parse_options(extra)):
        for written, value in table.items():
            name = long_name(written)
            if value is False:
                options.pop(name, None)
                continue
            for rival in rivals(name):
                options.pop(rival, None)
            options[name] = value
    rendered = _rendered(options)
    for option in rendered:
        name = option.partition("=")[0]
        if secret := assigned_secret(option.removeprefix(name).removeprefix("=")):
            raise ConfigError(
                f"{name}: {secret} looks like a secret, and Slurm shows the options of a job to others",
                hint=HINT,
            )
    return rendered


def warning(profile: Profile, *, trains: bool, until_done: bool) -> str | None:
    """The signal before the time limit, as sbatch's --signal wants it; None for none.

    Args:
        profile: of the run.
        trains: the program is the bundled trainer, which checkpoints on SIGUSR1; another program may not
            know the signal and would die of it.
        until_done: the run goes on past its limit.
    """
    name = profile.signal
    if name is None and trains and (until_done or profile.time >= _SHORTEST_WARNED):
        name = "USR1"
    if name is None or name == "none":
        return None
    limit = -(-profile.time // 60) * 60  # as Slurm rounds it
    return f"B:{name}@{min(profile.signal_before, limit // 5)}"


def _site_options(cluster: Cluster, profile: Profile) -> dict[str, Value]:
    """The GPU request, partition, account, qos and constraint."""
    options: dict[str, Value] = {}
    gpu = None
    if profile.gpu is not None and (cluster.kind == "slurm" or cluster.gpus):
        gpu = cluster.gpus.get(profile.gpu)
        if gpu is None:
            raise ConfigError(
                f"profile {profile.name} needs GPU {profile.gpu!r}, which cluster {cluster.name} lacks",
                hint=f"{nearest(profile.gpu, cluster.gpus)}; "
                f"or add [clusters.{cluster.name}.gpus.{profile.gpu}] if it is there",
            )
        name, _, value = gpu.request.format(type=profile.gpu, count=profile.gpus).partition("=")
        options[name.removeprefix("--")] = value
    for name in ("partition", "account", "qos", "constraint"):
        value = (getattr(gpu, name) if gpu else None) or getattr(cluster, name)
        if value is not None:
            options[name] = value
    return options


def _parse_options(texts: Sequence[str]) -> dict[str, Value]:
    """The table of "--name=value" and "--flag" texts.

    Raises:
        ConfigError: a text is not of that form, or not an option one may set.
    """
    table: dict[str, Value] = {}
    for text in texts:
        written, equals, value = text.partition("=")
        if not written.startswith("--") or (equals and not value) or not text.isprintable():
            raise ConfigError(
                f"{text!r} is not an sbatch option", hint="write --name=value, or --name for a flag"
            )
        try:
            table[long_name(written)] = value if equals else True
        except ValueError as error:
            raise ConfigError(f"command line: {error}", hint="leave it out") from None
    return table


def _rendered(options: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items())
