"""why: the one cause a run is as it is, the lines that show it, and what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from clusterkit.diagnosis import Diagnosis, Subject, diagnose, parse_evidence, why_script
from clusterkit.ledger import LedgerRun
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

_SECONDS = 180.0
"""For all of it; each question has its own, shorter, limit on the cluster."""


def why(settings: Settings, run: LedgerRun) -> Diagnosis:
    """Why a run waits, failed or is silent; one login, one round trip, nothing is changed.

    Raises:
        RunError: the answer was cut short.
        TransportError: the cluster cannot be reached.
    """
    return diagnose(parse_evidence(ask(settings, run)))


def ask(settings: Settings, run: LedgerRun) -> str:
    """What the cluster says about a run, as `parse_evidence` reads it.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    cluster = settings.cluster(run.cluster)
    subject = Subject(
        run.run_id,
        run.job_id,
        run.run_dir,
        scheduler=cluster.kind,
        shell=_shell(cluster),
        profile=run.profile,
    )
    with connected(cluster) as transport:
        script = why_script(subject).encode("utf-8", "surrogateescape")
        return transport.run(["sh"], stdin=script, timeout=_SECONDS).text


def _shell(cluster: Cluster) -> str:
    """How a person gets a command to the cluster: ssh with the same configuration."""
    if cluster.host is None:
        return ""
    config = ["-F", str(cluster.ssh_config)] if cluster.ssh_config else []
    return shlex.join(["ssh", *config, cluster.host])
