"""The test cluster with limits, partitions and nodes that give trouble, and a project that runs into it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.allowing import allow
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User

PARTITIONS = """
AccountingStorageEnforce=associations,limits,qos
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
Prolog=/etc/slurm/prolog
PartitionName=short    Nodes=a40n1  MaxTime=00:05:00 PriorityTier=10 PreemptMode=OFF
PartitionName=scavenge Nodes=a40n1  MaxTime=01:00:00 PriorityTier=1  PreemptMode=CANCEL
PartitionName=members  Nodes=a40n1  MaxTime=01:00:00 PriorityTier=10 PreemptMode=OFF AllowAccounts=closed
PartitionName=resting  Nodes=a40n1  MaxTime=01:00:00 State=DOWN
PartitionName=flaky    Nodes=a100n1 MaxTime=01:00:00
"""
FLAKY = """#!/bin/sh
test "$SLURM_JOB_PARTITION" != flaky || { echo "the GPU does not answer" >&2; exit 1; }
"""
ACCOUNTS = """
sacctmgr -i add account lab closed narrow
sacctmgr -i add user alice account=lab
sacctmgr -i add user alice account=narrow
sacctmgr -i add user bob account=lab
sacctmgr -i add qos small MaxWall=00:05:00 MaxTRESPerUser=cpu=2
sacctmgr -i modify user alice where account=lab set qos+=small
sacctmgr -i modify user alice where account=narrow set GrpTRES=cpu=1
scontrol reconfigure
"""

SETTINGS = """
[clusters.bare]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/bare"
container = "none"
account = "lab"
partition = "gpu-a40"

[clusters.narrow-scratch]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/bare"
container = "none"
account = "lab"
partition = "gpu-a40"
scratch = "/scratch/$USER"

[clusters.tiny]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/tiny"
image = "{tiny}"
account = "lab"
partition = "gpu-a40"

[clusters.bound]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/tiny"
image = "{tiny}"
account = "lab"
partition = "gpu-a40"
binds = ["/data/metaworld:/data"]

[clusters.modular]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/tiny"
image = "{tiny}"
account = "lab"
partition = "gpu-a40"
prelude = [
    'mkdir "$TMPDIR/bin" && ln -s /usr/bin/* "$TMPDIR/bin"',
    'rm "$TMPDIR/bin/apptainer" && PATH=$TMPDIR/bin  # as where nobody has loaded its module',
]

[clusters.cleaned]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/cleaned"
container = "none"
account = "lab"
partition = "gpu-a40"

[profiles.fault]
cpus = 1
memory = "60M"
time = "10m"
program = ["python", "fault.py"]

[profiles.misspelt]
extends = "fault"
program = ["trian.sh"]

"""

PROGRAM = Path(__file__).parent / "files" / "fault.py"


def make_trouble(cluster: Cluster) -> None:
    """Set limits and accounts, a prolog that fails, and small file systems."""
    config = cluster.site.slurm / "slurm.conf"
    text = config.read_text().replace(
        "DefaultTime=00:10:00", "DefaultTime=00:10:00 PriorityTier=10 PreemptMode=OFF"
    )
    config.write_text(text + PARTITIONS)
    prolog = cluster.site.slurm / "prolog"
    prolog.write_text(FLAKY)
    prolog.chmod(0o755)
    cluster.run("ctl", ["sh", "-ec", ACCOUNTS])
    for node in ("login", "a40n1"):
        small = "mkdir -p /scratch && mount -t tmpfs -o size=1m,mode=1777 scratch /scratch"
        cluster.run(node, ["sh", "-ec", small])
    cache = cluster.home / "cache"
    cache.mkdir()
    cluster.run("a40n1", ["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "home", "/home/alice/cache"])


def tiny_image(cluster: Cluster, target: Path) -> None:
    """An image with nothing in it, not even Python: 40 kB."""
    folders = "bin etc proc sys dev tmp home usr var/tmp share"
    build = f"cd $(mktemp -d) && mkdir -p {folders} && apptainer -q build /share/tiny.sif ."
    cluster.run("login", ["sh", "-ec", build], user="alice")
    target.write_bytes((cluster.share / "tiny.sif").read_bytes())


def troubled_user(home: Path, cluster: Cluster) -> User:
    """A person whose project runs into all of it."""
    tiny = home / "tiny.sif"
    user = User.settle(home, cluster, tiny)
    tiny_image(cluster, tiny)
    (user.folder / "fault.py").write_text(PROGRAM.read_text())
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write(SETTINGS.format(ssh_config=cluster.ssh_config, tiny=tiny))
    allow(user.folder)
    return user


def slow_submission(cluster: Cluster) -> None:
    """Let sbatch on the login node take its time, long enough for a laptop to die meanwhile."""
    script = '#!/bin/sh\nsleep 3\nexec /usr/bin/sbatch "$@"\n'
    write = f"printf %s '{script}' >/usr/local/bin/sbatch; chmod 755 /usr/local/bin/sbatch"
    cluster.run("login", ["sh", "-ec", write])


def quick_submission(cluster: Cluster) -> None:
    """As it was before."""
    cluster.run("login", ["rm", "/usr/local/bin/sbatch"])


def queue(cluster: Cluster) -> dict[str, tuple[str, str, str]]:
    """Job id, state and reason of all jobs by their names; asked beside sshd."""
    listed = cluster.run("ctl", ["squeue", "-h", "-t", "all", "-o", "%j|%i|%T|%r"], check=False)
    rows = (line.split("|", 3) for line in listed.stdout.splitlines())
    return {row[0]: (row[1], row[2], row[3]) for row in rows if len(row) == 4}


def sbatch(cluster: Cluster, *words: str, user: str = "alice") -> str:
    """Submit a job of somebody else's making; returns its id."""
    argv = ["sbatch", "--parsable", "-A", "lab", "-o", "/dev/null", *words]
    return cluster.run("login", argv, user=user).stdout.strip()


def spoil(image: Path, how: str) -> None:
    """Damage an image in the cluster's store: `missing`, `torn` or `flipped`."""
    image.chmod(0o600)
    if how == "missing":
        image.unlink()
    elif how == "torn":
        with image.open("r+b") as file:
            file.truncate(image.stat().st_size - 5000)
    else:
        content = bytearray(image.read_bytes())
        content[-4000:-3900] = bytes(100)
        image.write_bytes(content)
    subprocess.run(["sync"], check=True)
