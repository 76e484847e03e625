"""The files of a cluster: keys, homes, host names and the configuration of its services."""

from __future__ import annotations

import os
import shutil
import string
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.rootfs import USERS

FILES = Path(__file__).parent / "files"

_TRACKING = {  # with control groups (real memory limits and device rules), and without
    True: "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup",
    False: "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherParams=OverMemoryKill",
}


class Site:
    """A folder with everything the nodes of one cluster share.

    `layer` lies over the root file system of every node; `home` and `share` are the cluster's shared file
    systems; `slurm` is every node's /etc/slurm; `ssh` is for the laptop's side.
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self.layer = state / "layer"
        self.home = state / "home"
        self.share = state / "share"
        self.slurm = state / "slurm"
        self.ssh = state / "ssh"

    @property
    def ssh_config(self) -> Path:
        return self.ssh / "config"

    def write(self, rootfs: Path, addresses: Mapping[str, str], *, cgroups: bool) -> None:
        """Write all files for nodes at these addresses.

        Folders every user must be able to pass are 0755, whatever the umask of the tests is.
        """
        for folder in (self.state, self.layer, self.home, self.share, self.slurm, self.layer / "etc"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        self.share.chmod(0o1777)
        uids = _uids(rootfs)
        self._write_etc(addresses, uids["munge"])
        self._write_slurm(addresses, uids["slurm"], cgroups)
        self._write_keys(addresses)

    def _write_etc(self, addresses: Mapping[str, str], munge: int) -> None:
        etc = self.layer / "etc"
        hosts = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (etc / "hosts").write_text("\n".join(hosts) + "\n")
        shutil.copy("/etc/resolv.conf", etc / "resolv.conf")
        folder, key = etc / "munge", etc / "munge" / "munge.key"
        folder.mkdir(mode=0o700)
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for path in (folder, key):
            os.chown(path, munge, munge)

    def _write_slurm(self, addresses: Mapping[str, str], slurm: int, cgroups: bool) -> None:
        values = dict(addresses) | {
            "tracking": _TRACKING[cgroups],
            "plugin": "cgroup/v1" if cgroups else "disabled",
            "constrain": "yes" if cgroups else "no",
        }
        for name in ("slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf"):
            text = string.Template((FILES / name).read_text()).substitute(values)
            (self.slurm / name).write_text(text)
            (self.slurm / name).chmod(0o644)
        shutil.copy(FILES / "mail", self.slurm)
        (self.slurm / "mail").chmod(0o755)
        os.chown(self.slurm / "slurmdbd.conf", slurm, slurm)
        (self.slurm / "slurmdbd.conf").chmod(0o600)

    def _write_keys(self, addresses: Mapping[str, str]) -> None:
        """One host key for all nodes and one user key, with all parties knowing each other beforehand."""
        etc = self.layer / "etc/ssh"
        etc.mkdir()
        shutil.copy(FILES / "sshd_config", etc)
        self.ssh.mkdir(mode=0o700)
        host_key, user_key = etc / "ssh_host_ed25519_key", self.ssh / "id_ed25519"
        for key in (host_key, user_key):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True
            )
        host_public = host_key.with_suffix(".pub").read_text().strip()
        known = "".join(f"{name},{address} {host_public}\n" for name, address in addresses.items())
        (self.ssh / "known_hosts").write_text(known)
        self.ssh_config.write_text(
            f"Host {' '.join(addresses)}\n  User alice\n  IdentityFile {user_key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.ssh / 'known_hosts'}\n  StrictHostKeyChecking yes\n  BatchMode yes\n"
            + "".join(f"Host {name}\n  HostName {address}\n" for name, address in addresses.items())
        )
        for user, uid in USERS.items():
            self._write_home(self.home / user, uid, user_key, known)

    def _write_home(self, home: Path, uid: int, user_key: Path, known: str) -> None:
        dot_ssh = home / ".ssh"
        dot_ssh.mkdir(parents=True)
        shutil.copy(user_key.with_suffix(".pub"), dot_ssh / "authorized_keys")
        shutil.copy(user_key, dot_ssh)  # so that users can go on from node to node
        (dot_ssh / "known_hosts").write_text(known)
        for path in (home, dot_ssh):
            path.chmod(0o700)
        for path in (home, dot_ssh, *dot_ssh.iterdir()):
            os.chown(path, uid, uid)


def _uids(rootfs: Path) -> dict[str, int]:
    entries = (line.split(":") for line in (rootfs / "etc/passwd").read_text().splitlines())
    return {name: int(uid) for name, _, uid, *_ in entries}
