"""Joins a profile (what hardware) with a cluster (where, and how it is spelled) into sbatch options. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterkit.config.layers import nearest
from clusterkit.config.models import Cluster, Profile
from clusterkit.errors import ConfigError
from clusterkit.units import format_duration, slurm_memory, slurm_time

Value = str | int | bool

_LONG_NAME = re.compile(r"[a-z][a-z0-9-]*")
_SHORT = {
    "A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "H": "hold", "J": "job-name",
    "L": "licenses", "M": "clusters", "N": "nodes", "S": "core-spec", "W": "wait", "a": "array", "b": "begin",
    "c": "cpus-per-task", "d": "dependency", "e": "error", "i": "input", "m": "distribution", "n": "ntasks",
    "o": "output", "p": "partition", "q": "qos", "s": "oversubscribe", "t": "time", "w": "nodelist",
    "x": "exclude",
}  # fmt: skip
"""sbatch's one-letter options (man sbatch)."""
_RIVALS = (("mem", "mem-per-cpu", "mem-per-gpu"), ("requeue", "no-requeue"))
"""Options of which sbatch takes only one; the last one set wins."""
_PROTECTED = {
    "job-name": "clusterkit names the job after the run",
    "output": "the log lies in the run directory, where `logs` and `sync-results` look",
    "error": "the log lies in the run directory, where `logs` and `sync-results` look",
    "open-mode": "a requeued run appends to its log",
    "chdir": "the job starts in its run directory",
    "wrap": "the job script is clusterkit's own",
    "array": "one run is one job; submit one run per seed",
    "parsable": "clusterkit reads the job id from sbatch's answer",
    "quiet": "clusterkit reads the job id from sbatch's answer",
    "wait": "submit does not wait for the job; see `clusterkit status --watch`",
    "test-only": "nothing would be submitted; see `clusterkit submit --dry-run`",
}


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
            not an sbatch option.
    """
    if cluster.max_time is not None and profile.time > cluster.max_time:
        raise ConfigError(
            f"profile {profile.name} asks for {format_duration(profile.time)} and cluster {cluster.name} "
            f"allows {format_duration(cluster.max_time)} (clusters.{cluster.name}.max_time)",
            hint="Give the run less time, or choose another cluster.",
        )
    options: dict[str, Value] = {"nodes": 1, "ntasks": 1, "cpus-per-task": profile.cpus}
    if profile.memory is not None:
        options["mem"] = slurm_memory(profile.memory)
    options["time"] = slurm_time(profile.time)
    options |= _site_options(cluster, profile)
    options |= defaults or {}
    gpu = cluster.gpus.get(profile.gpu or "")
    tables = [(f"clusters.{cluster.name}.sbatch", cluster.sbatch)]
    if gpu is not None:
        tables.append((f"clusters.{cluster.name}.gpus.{profile.gpu}.sbatch", gpu.sbatch))
    tables.append((f"profiles.{profile.name}.sbatch", profile.sbatch))
    tables.append(("command line", dict(_parse_option(text) for text in extra)))
    for where, table in tables:
        for written, value in table.items():
            name = _long_name(written, where)
            if value is False:
                options.pop(name, None)
                continue
            for rival in next((group for group in _RIVALS if name in group), ()):
                if rival != name:
                    options.pop(rival, None)
            options[name] = value
    return _rendered(options)


def _site_options(cluster: Cluster, profile: Profile) -> dict[str, Value]:
    """The GPU request, partition, account, qos and constraint."""
    options: dict[str, Value] = {}
    gpu = None
    if profile.gpu is not None and (cluster.kind == "slurm" or cluster.gpus):
        gpu = cluster.gpus.get(profile.gpu)
        if gpu is None:
            raise ConfigError(
                f"profile {profile.name} needs GPU {profile.gpu!r}, which cluster {cluster.name} lacks",
                hint=f"{nearest(profile.gpu, cluster.gpus)} "
                f"Add [clusters.{cluster.name}.gpus.{profile.gpu}] if it is there.",
            )
        name, _, value = gpu.request.format(type=profile.gpu, count=profile.gpus).partition("=")
        options[name.removeprefix("--")] = value
    for name in ("partition", "account", "qos", "constraint"):
        value = (getattr(gpu, name) if gpu else None) or getattr(cluster, name)
        if value is not None:
            options[name] = value
    return options


def _parse_option(text: str) -> tuple[str, Value]:
    """The name and value of "--name=value" or "--flag".

    Raises:
        ConfigError: it is not of that form.
    """
    name, equals, value = text.partition("=")
    if not name.startswith("--") or (equals and not value) or any(ord(char) < 32 for char in text):
        raise ConfigError(
            f"{text!r} is not an sbatch option", hint="Write --name=value, or --name for a flag."
        )
    return name, value if equals else True


def _long_name(written: str, where: str) -> str:
    """An option's long name without dashes in front; accepts "mail_user", "--mail-user" and "p"."""
    name = written.lstrip("-")
    name = _SHORT.get(name, name.replace("_", "-"))
    if not _LONG_NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: {written!r} is not an sbatch option", hint='Write its long name, e.g. "mail-user".'
        )
    if reason := _PROTECTED.get(name):
        raise ConfigError(f"{where}: --{name} cannot be set: {reason}", hint=f"Remove {written}.")
    return name


def _rendered(options: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items())
