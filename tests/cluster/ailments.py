"""A site on which much is wrong, and a person with wrong settings: what `doctor` must find."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.allowing import allow
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.trouble import PROGRAM, tiny_image

NVIDIA_SMI = "#!/bin/sh\necho 'NVIDIA {name}, 46068 MiB, {driver}'\n"

SETTINGS = """
[clusters.site.sbatch]
account = "lab"

[clusters.site.gpus.h100]
partition = "gpu-a40"

[profiles.wrong-partition]
extends = "tiny"
sbatch = {{ partition = "gpu-a41" }}

[profiles.closed-partition]
extends = "tiny"
sbatch = {{ partition = "resting" }}

[profiles.wrong-account]
extends = "tiny"
sbatch = {{ account = "nobody" }}

[profiles.closed-account]
extends = "tiny"
sbatch = {{ partition = "members" }}

[profiles.wrong-qos]
extends = "tiny"
sbatch = {{ qos = "gold" }}

[profiles.wrong-gpu]
extends = "tiny"
gpu = "h100"

[profiles.too-many-gpus]
extends = "tiny"
gpus = 8

[profiles.too-long]
extends = "tiny"
sbatch = {{ partition = "short" }}

[profiles.too-much-memory]
extends = "tiny"
memory = "1T"

[profiles.too-many-cpus]
extends = "tiny"
cpus = 64

[profiles.unknown-gpu]
extends = "tiny"
gpu = "rtx4090"

[profiles.sick]
extends = "tiny-a100"
device = "auto"
env = {{ PYTHONPATH = "/stand-in" }}

[profiles.bare]
cpus = 1
memory = "500M"
time = "10m"
program = ["python", "fault.py"]

[clusters.forbidden]
host = "login"
ssh_config = "{ssh}"
root = "/forbidden/$USER"
container = "none"
account = "lab"

[clusters.cured]
host = "login"
ssh_config = "{ssh}"
root = "/share/$USER/cured"
container = "none"
account = "lab"
login_shell = true

[clusters.full]
host = "login"
ssh_config = "{ssh}"
root = "/scratch/work"
image = "{tiny}"
account = "lab"

[clusters.tiny]
host = "login"
ssh_config = "{ssh}"
root = "/share/$USER/tiny"
image = "{tiny}"
account = "lab"

[clusters.sick]
host = "login"
ssh_config = "{ssh}"
root = "/share/$USER/sick"
image_store = "{images}"
image = "{small}"
account = "lab"
scratch = "/fast/$USER"
binds = ["/data/metaworld:/data", "/share/stand-in:/stand-in"]
prelude = ["module load cuda"]
gpus = {{ a100 = {{ partition = "gpu-a100" }} }}

[clusters.no-runtime]
host = "login"
ssh_config = "{ssh}"
root = "/share/$USER/other"
image_store = "{images}"
image = "{small}"
prelude = [
    'mkdir "$TMPDIR/bin" && ln -s /usr/bin/* "$TMPDIR/bin"',
    'rm "$TMPDIR/bin/apptainer" && PATH=$TMPDIR/bin  # as where nobody has loaded its module',
]
account = "lab"
gpus = {{ a40 = {{ partition = "gpu-a40" }} }}

[clusters.own-disk]
host = "login"
ssh_config = "{ssh}"
root = "/tmp/work-$USER"
container = "none"
account = "lab"
"""

SICK_LAPTOP = """
[clusters.changed]
host = "login"
ssh_config = "{ssh}"
root = "/share/$USER/changed"
container = "none"

[clusters.nowhere]
host = "login.nowhere.invalid"
root = "/share/$USER/nowhere"
image = "{home}/no-such.sif"
"""

OLD_TORCH = """
__version__ = "2.9.0+cu128"
class version:
    cuda = "12.8"
def ones(*shape, device):
    raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).")
"""


def healthy(home: Path, cluster: Cluster, image: Path, small: Path) -> User:
    """A person on a site with nothing wrong, who has more settings than are good, and both images there."""
    user = User.settle(home, cluster, image)
    for each in (image, small):
        user.has_image(each)
    shutil.copy(PROGRAM, user.folder)
    (user.folder / "requirements.txt").write_text("mujoco\ntorch\nwandb\n")
    tiny = home / "tiny.sif"
    tiny_image(cluster, tiny)
    site_images = f"/share/alice/{home.name}/images"
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write(SETTINGS.format(ssh=cluster.ssh_config, tiny=tiny, small=small, images=site_images))
    allow(user.folder)
    for node, name in (("a40n1", "A40"), ("a100n1", "A100")):
        tell_of_gpus(cluster, node, name, "570.86.15")
    return user


def tell_of_gpus(cluster: Cluster, node: str, name: str, driver: str) -> None:
    """Put a stand-in for nvidia-smi on a node; an empty name takes it away."""
    path = "/usr/local/bin/nvidia-smi"
    write = f'rm -f {path}; test -z "$1" || {{ printf %s "$1" >{path}; chmod 755 {path}; }}'
    text = NVIDIA_SMI.format(name=name, driver=driver) if name else ""
    cluster.run(node, ["sh", "-ec", write, "sh", text])


def sick_laptop(home: Path, user: User) -> User:
    """A project whose ledger is garbage, and hosts that are not what they were."""
    folder = home / "sick"
    (folder / ".clusterkit").mkdir(parents=True)
    (folder / ".clusterkit/ledger.sqlite3").write_bytes(b"SQLite format 3\0" + bytes(4000))
    key = home / "id_ed25519"
    shutil.copy(user.cluster.ssh_config.parent / "id_ed25519", key)
    key.chmod(0o644)
    known = home / "known_hosts"
    lines = (user.cluster.ssh_config.parent / "known_hosts").read_text().splitlines()
    changed = [line.rpartition(" ")[0] + " " + _other_key(line.split()[-1]) for line in lines]
    known.write_text("\n".join(changed) + "\n")
    text = user.cluster.ssh_config.read_text()
    for name, path in (("id_ed25519", key), ("known_hosts", known)):
        text = text.replace(str(user.cluster.ssh_config.parent / name), str(path))
    config = home / "ssh_config"
    config.write_text(text)
    (folder / "clusterkit.toml").write_text(SICK_LAPTOP.format(ssh=config, home=home))
    return User(folder, user.cluster)


def _other_key(key: str) -> str:
    """A key of the same kind: the last bytes are the key itself."""
    return key[:-8] + ("AAAAAAAA" if not key.endswith("AAAAAAAA") else "BBBBBBBB")


@contextmanager
def sick_login(cluster: Cluster) -> Iterator[None]:
    """The login node talks too much, has no rsync, is ten minutes ahead, and its small disk is full."""
    bashrc = cluster.home / ".bashrc"
    before = bashrc.read_text() if bashrc.exists() else None
    bashrc.write_text(f"echo Welcome to the cluster\n{before or ''}")
    cluster.run("login", ["sh", "-ec", f"mv /usr/bin/rsync /root/rsync\n{_CLOCK}"])
    cluster.run("login", ["dd", "if=/dev/zero", "of=/scratch/filler", "bs=1k", "count=2000"], check=False)
    try:
        yield
    finally:
        mend = "mv /root/rsync /usr/bin/rsync; rm /usr/local/bin/date /scratch/filler"
        cluster.run("login", ["sh", "-ec", mend])
        bashrc.unlink() if before is None else bashrc.write_text(before)


_CLOCK = """
printf '%s\\n' '#!/bin/sh' 'exec /usr/bin/date -d "10 minutes" "$@"' >/usr/local/bin/date
chmod 755 /usr/local/bin/date
"""


@contextmanager
def modules_only(cluster: Cluster) -> Iterator[None]:
    """Slurm is only on a login shell's PATH."""
    tools = "sbatch squeue scancel sinfo scontrol sacct"
    hide = f"mkdir -p /opt/slurm/bin; cd /usr/bin; mv {tools} /opt/slurm/bin"
    tell = "echo 'PATH=/opt/slurm/bin:$PATH' >/etc/profile.d/slurm.sh"
    cluster.run("login", ["sh", "-ec", f"{hide}; {tell}"])
    try:
        yield
    finally:
        cluster.run("login", ["sh", "-ec", "mv /opt/slurm/bin/* /usr/bin; rm /etc/profile.d/slurm.sh"])


@contextmanager
def sick_node(cluster: Cluster) -> Iterator[None]:
    """The node with A100s has an old driver, hardly any shared memory and a clock of its own."""
    torch = cluster.share / "stand-in/torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text(OLD_TORCH)
    tell_of_gpus(cluster, "a100n1", "A100", "470.57.02")
    cluster.run("a100n1", ["sh", "-ec", f"mount -o remount,size=1m /dev/shm\n{_CLOCK}"])
    try:
        yield
    finally:
        mend = "mount -o remount,size=1g /dev/shm; rm /usr/local/bin/date"
        cluster.run("a100n1", ["sh", "-ec", mend])
        tell_of_gpus(cluster, "a100n1", "A100", "570.86.15")
