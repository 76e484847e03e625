"""A second sshd on a node of the cluster, which wants a key and a one-time code that works once."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cached_property
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.doubles.code_sshd import METHODS, Codes, pam_service, users_file
from tests.needs import pam_module

PORT = 2222
_START = """
set -e
mkdir -p /run/sshd
cp "$1/pam_oath.so" "$1"/liboath.so.* /usr/lib/
cp "$1/pam" /etc/pam.d/sshd
exec /usr/sbin/sshd -f "$1/sshd_config" -E "$1/log"
"""


class CodeGate:
    """Starts in the constructor and lives as long as its node; `codes` is the user's token."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.node, self.codes, self._cluster = node, Codes(), cluster
        module = pam_module("pam_oath.so")
        assert module
        files, inside = cluster.share / f"gate-{node}", f"/share/gate-{node}"
        files.mkdir(mode=0o700)
        shutil.copy(module, files)
        shutil.copy(_library(module), files)
        (files / "users").write_text(users_file(cluster.user))
        (files / "users").chmod(0o600)
        (files / "pam").write_text(pam_service(f"{inside}/users", module="/usr/lib/pam_oath.so"))
        (files / "sshd_config").write_text("\n".join([f"Port {PORT}", *METHODS, *_LINES]) + "\n")
        self._log = files / "log"
        cluster.run(node, ["sh", "-c", _START, "sh", inside])

    def logins(self) -> int:
        """How many logins it has accepted."""
        return len(re.findall(r"^Accepted \S+ for ", self._log.read_text(errors="replace"), re.MULTILINE))

    @property
    def address(self) -> str:
        """The node's, by which OpenSSH's questions call it."""
        found = re.search(r"^hostname (\S+)$", self._resolved, re.MULTILINE)
        assert found
        return found[1]

    @cached_property
    def _resolved(self) -> str:
        name = ["ssh", "-G", "-F", str(self._cluster.ssh_config), self.node]
        return subprocess.run(name, capture_output=True, text=True, check=True).stdout

    def host_block(self, alias: str, *lines: str) -> str:
        """A Host block that logs in here; what is not said here comes from the cluster's own ssh_config."""
        user_files = re.findall(r"^(identityfile|userknownhostsfile) (\S+)$", self._resolved, re.MULTILINE)
        options = [
            f"HostName {self.address}",
            f"Port {PORT}",
            f"User {self._cluster.user}",
            "IdentitiesOnly yes",
        ]
        options += [f"{key} {value}" for key, value in user_files]
        return f"Host {alias}\n" + "".join(f"  {line}\n" for line in (*lines, *options))


_LINES = (
    "HostKey /etc/ssh/ssh_host_ed25519_key",
    "PasswordAuthentication no",
    "PermitRootLogin no",
    "PerSourcePenalties no",
    "UseDNS no",
    "PidFile none",
    "PrintMotd no",
    "LogLevel VERBOSE",
)


def _library(module: Path) -> Path:
    """The shared library that the module needs and a node may lack."""
    needed = subprocess.run(["ldd", module], capture_output=True, text=True, check=True).stdout
    found = re.search(r"=> (\S*/liboath\.so\.\d+)", needed)
    assert found, needed
    return Path(found[1])
