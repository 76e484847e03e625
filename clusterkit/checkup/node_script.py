"""Renders the job that examines a compute node and its container. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit import ownership
from clusterkit.backends.base import backend_of
from clusterkit.backends.checks import END
from clusterkit.backends.job_script import passed_on, prelude, starting
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.probes import FUNCTIONS
from clusterkit.runtimes import BUILDER

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

SECONDS = 120
"""Time limit of the job."""
_PROBE_BYTES = 1 << 20


@dataclass(frozen=True)
class NodeJob:
    """One such job. All paths are absolute on the cluster."""

    cluster: Cluster
    folder: str
    """Its folder in the work root."""
    name: str
    scratch_root: str
    images: Mapping[str, str]
    """The path of the image in the store for each architecture."""
    nv: bool
    """Make the node's GPUs available in the container."""
    vendor: str = "nvidia"
    """Who made them."""
    options: tuple[str, ...] = ()
    """The job's options."""
    server: tuple[str, int] = ("pypi.org", 443)
    """Host and port to test the internet connection with."""
    nodes: int = 1
    """Nodes of the job; more than one try to reach each other."""


def node_script(job: NodeJob) -> str:
    """Returns the job's text: bash 4."""
    cluster, backend = job.cluster, backend_of(job.cluster)
    host, port = job.server
    return starting(cluster.runtime).render(
        frame="examine.sh.j2",
        directives=backend.directives(job.options, job_name=job.name, folder="/", log=SCHEDULER_LOG),
        folder=job.folder,
        name=job.name,
        scratch_root=job.scratch_root,
        image=next(iter(job.images.values()), ""),
        images=job.images,
        cluster=cluster,
        runtime=cluster.runtime,
        functions=FUNCTIONS,
        ownership=ownership.fragment(cluster.trust, cluster.group),
        probe_bytes=_PROBE_BYTES,
        unpacked=" ".join(f'{name}="{path}"' for name, path in BUILDER.temporary("$work/runtime").items()),
        prelude=prelude(cluster.prelude),
        mounts=shlex.join(map(cluster.runtime.mount, cluster.binds)),
        host=host,
        port=port,
        job={
            "nv": job.nv,
            "vendor": job.vendor,
            "binds": (),
            "from_registry": cluster.registry_image,
        },
        passthrough=passed_on(backend, job.vendor),
        registry_image=cluster.registry_image,
        nodes=job.nodes,
        end=END,
    )


def inside_request(env: Mapping[str, str], tests: Sequence[str]) -> bytes:
    """Returns its input: the environment of the run's program, and the tests to make."""
    return json.dumps({"env": dict(env), "tests": tests}).encode()
