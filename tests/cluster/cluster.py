"""A real little Slurm cluster on one machine, and everything a test may do to it.

    with Cluster() as cluster:
        cluster.run("login", ["sinfo"], user=cluster.user)
        subprocess.run(["ssh", "-F", cluster.ssh_config, "login", "sbatch", ...])
        cluster.kill_node("a40n1")

Four nodes run real sshd, munge, slurmctld, slurmd, slurmdbd with MariaDB, rsync and Apptainer in namespaces;
only the GPUs are made up. It takes about three seconds to start, needs root, and leaves nothing behind.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster import cgroups, janitor
from tests.cluster.host import TestbedError, last_line, prepare
from tests.cluster.network import Network, limit_argv
from tests.cluster.node import Node, Role, identity
from tests.cluster.rootfs import SUITE, rootfs
from tests.cluster.site import Site

ROLES = {
    "ctl": Role(10, ("munge", "database", "slurmdbd", "slurmctld")),
    "login": Role(11, ("munge", "sshd")),
    "a40n1": Role(21, ("munge", "sshd", "slurmd"), gpus=4),
    "a100n1": Role(22, ("munge", "sshd", "slurmd"), gpus=2),
}
START_SECONDS = 120.0
_numbers = itertools.count()


class Cluster:
    """The cluster, up between `with` and its end, and gone when this process ends in any way.

    Args:
        control_groups: False for a Slurm that sets no limits, as where there are no control groups.
        suite: Debian's release, and with it the version of Slurm.

    Raises:
        UnavailableError: this machine does not offer what it needs.
        TestbedError: it cannot be built or does not start.
    """

    user = "alice"
    """An ordinary user with a key for the login node."""

    def __init__(self, *, control_groups: bool = True, suite: str = SUITE) -> None:
        self.name = f"ck{os.getpid():x}{chr(ord('a') + next(_numbers) % 26)}"
        state = Path(tempfile.mkdtemp(prefix="clusterkit-testbed-"))
        self.site = Site(state)
        self._nodes = {name: Node(name, role, state) for name, role in ROLES.items()}
        self._network = Network(self.name)
        self._suite = suite
        self._cgroups = control_groups and cgroups.available()
        self._janitor = _hire()
        self._leave("tree", str(state))

    def __enter__(self) -> Self:
        try:
            self._up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def ssh_config(self) -> Path:
        """OpenSSH configuration with the hosts `login`, `a40n1`, ...; use it as `ssh -F`."""
        return self.site.ssh_config

    @property
    def share(self) -> Path:
        """The host's view of /share, a file system of all nodes that every user may write to."""
        return self.site.share

    @property
    def home(self) -> Path:
        """The host's view of the user's home."""
        return self.site.home / self.user

    def run(
        self,
        node: str,
        argv: list[str],
        *,
        user: str | None = None,
        check: bool = True,
        timeout: float = 120.0,
        host_network: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node, as root or as `user`; not a login, and not seen by sshd.

        `host_network` lends it this machine's network, for what must reach the internet.

        Raises:
            TestbedError: `check`, and the command failed.
        """
        inside = self._nodes[node].enter_argv(argv, user=user, host_network=host_network)
        done = subprocess.run(
            inside, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, cwd="/"
        )
        if check and done.returncode:
            raise TestbedError(f"{node}: {argv} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def log(self, node: str, service: str) -> str:
        """A service's log: munged, sshd, slurmctld, slurmd, slurmdbd, mariadbd, or the node's `boot`."""
        return self._nodes[node].log(service).read_text(errors="replace")

    def login_log(self) -> str:
        """What sshd on the login node has written."""
        return self.log("login", "sshd")

    def logins(self) -> int:
        """How many logins the login node has accepted so far."""
        return len(re.findall(r"^Accepted \w+ for ", self.login_log(), re.MULTILINE))

    def sent_bytes(self) -> int:
        """How many bytes this machine has sent to the nodes so far, packet headers included."""
        return int(Path("/sys/class/net", self._network.uplink, "statistics/tx_bytes").read_text())

    def cut(self, node: str) -> None:
        """Unplug a node's network cable."""
        self._network.cut(ROLES[node].host)

    def heal(self, node: str) -> None:
        """Plug the cable in again."""
        self._network.heal(ROLES[node].host)

    def rate(self, node: str, rate: str | None) -> None:
        """Limit a node's network in both directions, e.g. "100mbit"; None lifts the limit."""
        self._network.limit(ROLES[node].host, rate)
        self.run(node, limit_argv("eth0", rate), check=rate is not None)

    def kill_node(self, node: str) -> None:
        """Pull a node's plug."""
        self._nodes[node].kill()
        self._network.disconnect(ROLES[node].host)

    def start_node(self, node: str) -> None:
        """Start a node and wait for its services; Slurm may need some seconds more to take it back."""
        self._start(node)
        self._wait(f"node {node}", lambda: self._nodes[node].ready)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Commands that begin meanwhile give a silent controller up after 3 s, and not after 10."""
        conf = self.site.slurm / "slurm.conf"
        before = conf.read_text()
        conf.write_text(f"{before}MessageTimeout=3\n")
        try:
            yield
        finally:
            conf.write_text(before)

    @contextmanager
    def disk(self, node: str, name: str, size: str) -> Iterator[Path]:
        """A small disk, /share/NAME on one node, that outlives the node as a file server does.

        The node is restarted, here and at the end. Yields this machine's view of it.
        """
        folder = self.share / name
        folder.mkdir()
        self._leave("mount", str(folder))
        options = f"size={size},mode=1777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, name, str(folder)], check=True)
        try:
            self.kill_node(node)
            self.start_node(node)
            yield folder
        finally:
            self.kill_node(node)
            subprocess.run(["umount", str(folder)], check=True)
            folder.rmdir()
            self.start_node(node)

    def down(self) -> None:
        """Remove everything; safe to call twice. Raises TestbedError when something stays."""
        assert self._janitor.stdin
        self._janitor.stdin.close()
        failed = self._janitor.wait(janitor.PATIENCE_SECONDS * 4)
        for node in self._nodes.values():
            node.kill()
        self._network.down()
        if failed:
            raise TestbedError(f"the test cluster {self.name} has left something behind, see above")

    def _up(self) -> None:
        prepare(Path(tempfile.mkdtemp(dir=self.site.state)))
        self._rootfs = rootfs(self._suite)
        self._leave("link", self._network.uplink)
        self._network.up()
        addresses = {name: self._network.address(role.host) for name, role in ROLES.items()}
        self.site.write(self._rootfs, addresses, cgroups=self._cgroups)
        for top in cgroups.tops(self.name) if self._cgroups else ():
            self._leave("cgroup", str(top))
        for name in ROLES:
            self._start(name)
        self._wait("its services", lambda: all(node.ready for node in self._nodes.values()))
        self._wait("Slurm", self._slurm_is_idle)

    def _start(self, name: str) -> None:
        node = self._nodes[name]
        groups = cgroups.make(self.name, name) if self._cgroups else []
        pid = node.start(self._rootfs, self._network.address(node.role.host), groups)
        self._leave("process", *identity(pid))
        self._network.connect(node.role.host, node.init)
        node.connected()

    def _slurm_is_idle(self) -> bool:
        listed = self.run("ctl", ["sinfo", "-h", "-N", "-o", "%N %t"], check=False)
        return sorted(listed.stdout.split("\n")[:-1]) == ["a100n1 idle", "a40n1 idle"]

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if time.monotonic() > deadline:
                raise TestbedError(f"{what} of the test cluster did not come up:\n{self._last_words()}")
            time.sleep(0.05)

    def _last_words(self) -> str:
        logs = sorted(self.site.state.glob("nodes/*/testbed/*.log"))
        said = {f"{log.parts[-3]} {log.stem}": log.read_text(errors="replace") for log in logs}
        return "\n".join(f"{who}: {last_line(text)}" for who, text in said.items())

    def _leave(self, *duty: object) -> None:
        """Tell the janitor what to clean, before or as soon as it exists."""
        assert self._janitor.stdin
        self._janitor.stdin.write(json.dumps(duty).encode() + b"\n")
        self._janitor.stdin.flush()


def _hire() -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-I", str(Path(janitor.__file__))]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, cwd="/", start_new_session=True)
