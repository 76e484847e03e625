"""why: the one cause a run is as it is, the lines that show it, and what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from clusterkit.diagnosis import Diagnosis, Subject, diagnose, parse_evidence, why_script
from clusterkit.ledger import Ledger
from clusterkit.scheduler import JobState
from clusterkit.site import connected
from clusterkit.verbs.handover import settle

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

_SECONDS = 180.0
"""For all of it; each question has its own, shorter, limit on the cluster."""


def why(settings: Settings, ledger: Ledger, name: str) -> Diagnosis:
    """Why a run waits, failed or is silent; one login, one round trip, nothing is changed on the cluster.

    A run whose submission was interrupted is settled first, which takes another one.

    Raises:
        RunError: the name matches no run or several; or the answer was cut short.
        TransportError: the cluster cannot be reached.
    """
    return diagnose(parse_evidence(ask(settings, ledger, name)))


def ask(settings: Settings, ledger: Ledger, name: str) -> str:
    """What the cluster says about a run, as `parse_evidence` reads it.

    Raises:
        RunError: the name matches no run or several.
        TransportError: the cluster cannot be reached.
    """
    run = ledger.find_one(name)
    cluster = settings.cluster(run.cluster)
    with connected(cluster) as transport:
        if run.state == JobState.SUBMITTING:
            settle(cluster, transport, ledger, [run])
            run = ledger.get(run.run_id) or run
        subject = Subject(
            run.run_id,
            run.job_id,
            run.run_dir,
            scheduler=cluster.kind,
            shell=_shell(cluster),
            profile=run.profile,
            cluster=run.cluster,
        )
        script = why_script(subject).encode("utf-8", "surrogateescape")
        return transport.run(["sh"], stdin=script, timeout=_SECONDS).text


def _shell(cluster: Cluster) -> str:
    """How a person gets a command to the cluster: ssh with the same configuration."""
    if cluster.host is None:
        return ""
    config = ["-F", str(cluster.ssh_config)] if cluster.ssh_config else []
    return shlex.join(["ssh", *config, cluster.host])
