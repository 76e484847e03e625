"""A second cluster that spells everything differently, to be met by a command that has never seen it.

GPUs have no types, no partition is the default one, jobs need an account and the user's own will not do
everywhere, only a login shell has Slurm on PATH, and Apptainer is called Singularity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.site import Site

_SLURM = "/opt/site/slurm/bin"
_HIDE_SLURM = f"""
mkdir -p {_SLURM}
for name in sbatch squeue sinfo scontrol sacct sacctmgr sshare scancel srun salloc; do
    mv /usr/bin/$name {_SLURM}/
done
echo 'echo "Welcome, the site is fine"; PATH=$PATH:{_SLURM}' >/etc/profile.d/site.sh
"""
_CALL_IT_SINGULARITY = "rm -f /usr/bin/singularity && mv /usr/bin/apptainer /usr/bin/singularity"
_ACCOUNTS = """
until sacctmgr -n show cluster | grep -q testbed; do sleep 0.2; done
sacctmgr -i add account guests,project Description=x Organization=x
sacctmgr -i add user alice Account=guests DefaultAccount=guests
sacctmgr -i add user alice Account=project
"""


class OtherSite(Site):
    """The same files with another configuration of Slurm."""

    def write(self, rootfs: Path, addresses: Mapping[str, str], *, cgroups: bool) -> None:
        """Write all files, then spell Slurm's differently."""
        super().write(rootfs, addresses, cgroups=cgroups)
        self._edit(
            "slurm.conf",
            {
                "Gres=gpu:a40:4 ": "Gres=gpu:4 Feature=skylake,gpu_a40 ",
                "Gres=gpu:a100:2": "Gres=gpu:2",
                ",gres/gpu:a40,gres/gpu:a100": "",
                "PartitionName=gpu-a40  Nodes=a40n1  Default=YES": "PartitionName=deep Nodes=a40n1 ",
                "PartitionName=gpu-a100 ": "PartitionName=tesla-a100 AllowAccounts=project ",
                "ClusterName=testbed": "ClusterName=testbed\nAccountingStorageEnforce=associations,limits",
            },
        )
        self._edit("gres.conf", {" Type=a40": "", " Type=a100": ""})

    def _edit(self, name: str, changes: Mapping[str, str]) -> None:
        file = self.slurm / name
        text = file.read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        file.write_text(text)


@contextmanager
def other_cluster() -> Iterator[Cluster]:
    """The cluster, up and with its accounts."""
    cluster = Cluster()
    cluster.site = OtherSite(cluster.site.state)
    with cluster:
        cluster.run("ctl", ["sh", "-ec", _ACCOUNTS])
        cluster.run("login", ["sh", "-ec", _HIDE_SLURM])
        for node in ("login", "a40n1", "a100n1"):
            cluster.run(node, ["sh", "-ec", _CALL_IT_SINGULARITY])
        yield cluster
