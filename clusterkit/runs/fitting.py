"""Checks, before a submission, that a run fits a machine that has no queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.errors import SchedulerError
from clusterkit.hardware import Hardware, HardwareNeed, Shortage, memory_of, shortages
from clusterkit.probes import ask
from clusterkit.probes.framing import shell_path
from clusterkit.runs.program import option_of, trains
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings

_SECONDS = 60.0
_NAMED = 3
"""Maximum number of profiles in a hint."""
_FIRST = ("local-demo", "check")
"""Shipped profiles that run nearly everywhere."""


def hardware_of(cluster: Cluster) -> Hardware | None:
    """Returns the hardware of a machine that starts jobs at once; None for a cluster with a queue."""
    probe = backend_of(cluster).machine(shell_path(cluster.scratch_root))
    if probe is None:
        return None
    with connected(cluster) as transport:
        return ask(transport, probe, timeout=_SECONDS).of(probe)


def wants_gpu(cluster: Cluster, profile: Profile) -> bool:
    """Returns whether a run needs a GPU; on a machine without allocations the profile's `device` decides."""
    return profile.device == "cuda" if not backend_of(cluster).can.queue else profile.gpu_count > 0


def need_of(cluster: Cluster, profile: Profile, argv: Sequence[str] = ()) -> HardwareNeed:
    """Returns the hardware that a run of a profile needs.

    Args:
        cluster: the target.
        profile: the run's profile.
        argv: the run's program; the bundled trainer's `--device` overrides the profile's device.
    """
    device = option_of(argv, "--device") if trains(argv) else None
    needs_gpu = wants_gpu(
        cluster, profile if device is None else profile.model_copy(update={"device": device})
    )
    table = cluster.gpus.get(profile.gpu or "")
    return HardwareNeed(
        cpus=profile.cpus,
        memory=profile.memory,
        gpus=max(profile.gpu_count, 1) if needs_gpu else profile.gpu_count,
        gpu=profile.gpu or "",
        gpu_memory=(table.memory if table else None) or memory_of(profile.gpu or ""),
        without_gpu=not needs_gpu,
        scratch=profile.scratch,
    )


def check_fit(
    settings: Settings, cluster: Cluster, wanted: Iterable[tuple[Profile, Sequence[str]]]
) -> tuple[str, ...]:
    """Checks that runs can work on a cluster.

    Args:
        settings: the project's settings, for the hint.
        cluster: the target.
        wanted: the profile and argv of each run.

    Returns:
        Descriptions of requested hardware that the machine lacks, for runs that can start anyway.

    Raises:
        SchedulerError: a run can never work on the cluster; the hint names profiles that can.
        TransportError: the machine did not answer.
    """
    has = hardware_of(cluster)
    if has is None:
        return ()
    warnings: dict[str, None] = {}
    for profile, argv in wanted:
        found = shortages(has, need_of(cluster, profile, argv))
        if found and found[0].never:
            raise SchedulerError(
                f"{profile.name} can never run on {cluster.name}: {found[0]} ({has.words})",
                hint=another(settings, cluster, has),
            )
        warnings |= dict.fromkeys(f"{profile.name}: {one}" for one in found)
    return tuple(warnings)


def lacks(
    cluster: Cluster, profile: Profile, argv: Sequence[str], has: Hardware | None
) -> tuple[Shortage, ...]:
    """Returns the requested hardware that the machine lacks; empty for a cluster with a queue."""
    return () if has is None else shortages(has, need_of(cluster, profile, argv))


def another(settings: Settings, cluster: Cluster, has: Hardware) -> str:
    """Returns the hint for a run that can never work on a cluster."""
    names = [*(name for name in _FIRST if name in settings.profiles), *settings.profiles]
    missing = {
        name: shortages(has, need_of(cluster, settings.profiles[name])) for name in dict.fromkeys(names)
    }
    fitting = [name for name, found in missing.items() if not any(one.never for one in found)]
    fitting.sort(key=lambda name: len(missing[name]))
    elsewhere = [name for name, one in settings.clusters.items() if backend_of(one).can.queue]
    here = f"`--profile {' or '.join(fitting[:_NAMED])}` runs here" if fitting else ""
    there = f"`--cluster {' or '.join(elsewhere[:_NAMED])}` may have it"
    return "; ".join(filter(None, (here, there if elsewhere else "`clusterkit init HOST` adds a cluster")))
