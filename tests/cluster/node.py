"""One node: namespaces, a root file system over the shared one, and a first process that holds it all.

Killing that process is pulling the plug: the kernel ends every process, mount and network device of the node.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.host import NAMESPACES, TestbedError
from tests.cluster.janitor import start_time
from tests.cluster.rootfs import USERS
from tests.cluster.site import FILES

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The groups are joined before the namespaces are made, so that they are the root of what the node sees.
_JOIN = 'for group in $TESTBED_CGROUPS; do echo $$ >"$group/cgroup.procs" || exit 1; done; exec "$@"'


@dataclass(frozen=True)
class Role:
    """What a node is."""

    host: int
    """Last number of its address."""
    services: tuple[str, ...]
    """In the order in which they start."""
    gpus: int = 0


class Node:
    """A node that can be started, entered and killed, again and again; only its disk survives."""

    def __init__(self, name: str, role: Role, state: Path) -> None:
        self.name = name
        self.role = role
        self._state = state
        self._own = state / "nodes" / name
        self._process: subprocess.Popen[bytes] | None = None
        self._init = 0

    def start(self, rootfs: Path, address: str, groups: list[Path]) -> int:
        """Start the first process; it waits for `connect`. Returns the pid to kill when all is over."""
        for folder in ("upper", "work", "root", "testbed"):
            (self._own / folder).mkdir(parents=True, exist_ok=True)
        self._own.joinpath("testbed/ready").unlink(missing_ok=True)
        shutil.copy(FILES / "node-services.sh", self._own / "testbed")
        env = {
            "PATH": PATH,
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "TESTBED_STATE": str(self._state),
            "TESTBED_ROOTFS": str(rootfs),
            "TESTBED_NODE": self.name,
            "TESTBED_ADDRESS": address,
            "TESTBED_SERVICES": " ".join(self.role.services),
            "TESTBED_GPUS": " ".join(str(number) for number in range(self.role.gpus)),
            "TESTBED_CGROUPS": " ".join(str(group) for group in groups),
            "TESTBED_CONTROLLERS": " ".join(group.parts[-3] for group in groups),
        }
        unshare = ["unshare", *NAMESPACES, "--propagation", "private", "--fork", "--kill-child"]
        argv = ["sh", "-c", _JOIN, "sh", *unshare, "bash", str(FILES / "node-init.sh")]
        with self.log("boot").open("ab") as log:
            self._process = subprocess.Popen(
                argv, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        self._init = self._first_child(self._process)
        return self._process.pid

    @property
    def init(self) -> int:
        """Pid, seen from outside, of the node's first process."""
        return self._init

    def connected(self) -> None:
        """Tell the node that its cable is there."""
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(b"connected\n")
        self._process.stdin.close()

    def kill(self) -> None:
        """Pull the plug."""
        if self._process:
            self._process.kill()
            self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether its services have been started. Raises TestbedError when the node has died instead."""
        if not self.alive:
            raise TestbedError(f"node {self.name} died: {self.log('boot').read_text()[-500:]}")
        return self._own.joinpath("testbed/ready").exists()

    def log(self, service: str) -> Path:
        return self._own / "testbed" / f"{service}.log"

    def enter_argv(self, argv: list[str], *, user: str | None, host_network: bool) -> list[str]:
        """Argv that runs a command inside, as root or as a user of the cluster, with a clean environment."""
        flags = ["-m", "-u", "-i", "-p", *([] if host_network else ["-n"])]
        home = f"/home/{user}" if user else "/root"
        become = []
        if user:
            uid = str(USERS[user])
            become = ["setpriv", "--reuid", uid, "--regid", uid, "--init-groups"]
        clean = ["env", "-i", f"--chdir={home}", f"PATH={PATH}", "LANG=C.UTF-8", f"HOME={home}"]
        clean.append(f"USER={user or 'root'}")
        return ["nsenter", "-t", str(self._init), *flags, "--", *become, *clean, *argv]

    def _first_child(self, process: subprocess.Popen[bytes]) -> int:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None:
            if found := children.read_text().split():
                return int(found[0])
            time.sleep(0.005)
        raise TestbedError(f"node {self.name} did not start: {self.log('boot').read_text()[-500:]}")


def identity(pid: int) -> tuple[int, str]:
    """A process's pid and start time. Raises TestbedError when it has ended."""
    began = start_time(pid)
    if began is None:
        raise TestbedError(f"process {pid} of the test cluster ended at once")
    return pid, began
