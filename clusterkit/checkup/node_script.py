"""Renders the job that examines a compute node and its container. Pure.

It answers through a file in the work root, which also proves that the node sees the work root.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
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
# The answer gets its name at the end, or when something ends the script before that.
_BEGIN = r"""
set -u
umask 077
if [ ! -d "$folder" ]; then exit 0; fi
exec >>"$folder/answer.part" 2>>"$folder/errors"
made='' work=''
leave() {
  [ -z "$work" ] || rm -rf -- "$work"
  [ -z "$made" ] || rmdir -- "$made" 2>/dev/null
  mv -f -- "$folder/answer.part" "$folder/answer"
}
trap leave EXIT
trap 'exit 1' TERM INT
ck_part about printf '%s\n' "host $(uname -n)" "now $(date +%s)" "token $(cat "$folder/token")" \
  "scratch $scratch_root"
"""

# As the job script of a run looks, with this node's own disks.
_OWNERS = r"""
ck_owners() {
  own_check "$folder" ${image:+"$image"} "$scratch_root/"
  set -- "$?"
  printf '%s' "$own_faults"
  return "$1"
}
ck_own owners ck_owners
"""

# $work is where the rest is tried even if the scratch root is of no use.
_SCRATCH = r"""
[ -d "$scratch_root" ] || made=$scratch_root
try_scratch() {
  [ "$ck_status" -eq 0 ] || return 1
  mkdir -p -- "$scratch_root" && own_must=yes && own_check "$scratch_root/" &&
    mkdir -- "$scratch_root/$name" &&
    head -c BYTES /dev/zero >"$scratch_root/$name/probe" || return 1
  rm -f -- "$scratch_root/$name/probe"
  df -Pk "$scratch_root/$name" | tail -n 1
}
ck_own scratch try_scratch
if [ "$ck_status" -eq 0 ]; then
  work=$scratch_root/$name
else
  rm -rf -- "$scratch_root/$name"
  work=$(mktemp -d)
fi
mkdir -- "$work/tmp" "$work/home" "$work/runtime"
export TMPDIR="$work/tmp" UNPACKED
ck_part shm df -Pk /dev/shm
"""

# Every line that fails is told with its status. Where they end their shell, a run would end, too.
_PRELUDE = r"""
run_prelude "$work/prelude" >>"$folder/errors" 2>>"$folder/prelude"
ck_part prelude-said sh -c 'tail -c 4000 "$1" | tail -n 3' sh "$folder/prelude"
tell_prelude() {
  local fault
  for fault in ${prelude_fails[@]+"${prelude_fails[@]}"}; do printf '%s\n' "$(told_fault "$fault")"; done
  printf '%s\n' "$prelude_end"
  [ -z "$prelude_end" ]
}
ck_own prelude tell_prelude
[ -z "$prelude_end" ] || exit 1
"""

_BINDS = r"""
missing='' binds=()
for bind in BINDS; do
  if [ -e "${bind%%:*}" ]; then binds+=("$bind"); else missing="$missing${bind%%:*}
"; fi
done
ck_part binds printf '%s' "$missing"
"""

_GPU = r"""
ck_own devices ls /dev
passed_value CUDA_VISIBLE_DEVICES
ck_part visible printf '%s\n' "$value"
ck_own mps become $ck_limit "$BASH" -p -c 'command -v nvidia-cuda-mps-control'
ck_own nvidia-smi become $ck_limit nvidia-smi --format=csv,noheader \
  --query-gpu=name,memory.total,driver_version
"""

_INTERNET = r"""
ck_part internet timeout 5 bash -c ': </dev/tcp/$1/$2' bash HOST PORT
"""

# As node.sh of a run: on each node, in its own container, whose image was found above.
_NODES = r"""
mkdir -- "$folder/ranks"
limit=${ck_limit:+timeout 60}
try_nodes() {
  become $limit srun --quiet --input=none --cpu-bind=none --kill-on-bad-exit=1 bash -c '
    for pair in NODE="$SLURM_NODEID" NODE_NAME="$SLURMD_NODENAME" NODES=COUNT RANKS=COUNT INTERFACE; do
      export "CLUSTERKIT_$pair" "PREFIXENV_CLUSTERKIT_$pair"
    done
    exec "$@"' bash RUNTIME"$python" "$folder/rendezvous.py" "$folder/ranks" \
    "$python" "$folder/between.py" 2>&1
}
ck_own nodes try_nodes
"""


@dataclass(frozen=True)
class NodeJob:
    """One such job. All paths are absolute on the cluster."""

    cluster: Cluster
    folder: str
    """Its folder in the work root."""
    name: str
    scratch_root: str
    image: str | None
    nv: bool
    """Make the node's GPUs available in the container."""
    options: tuple[str, ...] = ()
    """The job's options."""
    server: tuple[str, int] = ("pypi.org", 443)
    """Host and port to test the internet connection with."""
    nodes: int = 1
    """Nodes of the job; more than one try to reach each other."""


def node_script(job: NodeJob) -> str:
    """Returns the job's text: bash 4."""
    cluster = job.cluster
    values = {
        "folder": job.folder,
        "name": job.name,
        "scratch_root": job.scratch_root,
        "python": cluster.interpreter,
        "runtime": cluster.container,
        "image": job.image or "",
    }
    host, port = job.server
    backend = backend_of(cluster)
    head = backend.directives(job.options, job_name=job.name, folder="/", log=SCHEDULER_LOG)
    lines = ["#!/bin/bash -p", *head]
    lines += [f"{key}={shlex.quote(value)}" for key, value in values.items()]
    lines += [FUNCTIONS, _BEGIN, ownership.fragment(cluster.trust, cluster.group), _OWNERS]
    unpacked = " ".join(f'{name}="{path}"' for name, path in BUILDER.temporary("$work/runtime").items())
    lines += [_SCRATCH.replace("BYTES", str(_PROBE_BYTES)).replace("UNPACKED", unpacked)]
    lines += [prelude(cluster.prelude), _PRELUDE]
    lines.append(_BINDS.replace("BINDS", shlex.join(map(cluster.runtime.mount, cluster.binds))))
    if job.nv:
        lines.append(_GPU)
    lines.append(_INTERNET.replace("HOST", shlex.quote(host)).replace("PORT", str(port)))
    lines.append(
        starting(cluster.runtime).render(
            frame="examine.sh.j2",
            runtime=cluster.runtime,
            job={"nv": job.nv, "binds": (), "from_registry": cluster.registry_image},
            passthrough=passed_on(backend),
            registry_image=cluster.registry_image,
        )
    )
    if job.nodes > 1:
        lines.append(_nodes(job))
    return "\n".join([*lines, "ck_part clock date +%s", END])


def _nodes(job: NodeJob) -> str:
    cluster = job.cluster
    values = {
        "COUNT": str(job.nodes),
        "RUNTIME": cluster.runtime.on_nodes,
        " INTERFACE;": f" INTERFACE={cluster.interface};" if cluster.interface else ";",
        "PREFIX": cluster.container.upper(),
    }
    text = _NODES
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def inside_request(env: Mapping[str, str]) -> bytes:
    """Returns its input: the environment of the run's program."""
    return json.dumps({"env": dict(env)}).encode()
