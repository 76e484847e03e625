"""The cluster's network: a switch of its own, one cable to each node, and the faults a cable can have."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess

from tests.cluster.host import TestbedError


class Network:
    """A /24 with a switch, a cable to each node and one to this machine, which is .1.

    The switch is a bridge in a network namespace of its own: packet filters of this machine do not reach it.
    A process that ends with this one holds it, and the kernel then removes it with all its cables. Nothing
    is routed, so a node's name lookups fail at once.
    """

    def __init__(self, name: str) -> None:
        self.uplink = f"{name}h"
        """This machine's end of its cable."""
        self._prefix = ""
        self._switch: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """Start the switch and connect this machine."""
        self._prefix = _free_prefix()
        hold = ["unshare", "--net", "sh", "-c", "echo up; exec cat"]
        env = os.environ | {"TESTBED_UPLINK": self.uplink}
        self._switch = subprocess.Popen(
            hold, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True
        )
        assert self._switch.stdout
        if self._switch.stdout.readline() != b"up\n":
            raise TestbedError("the switch of the test cluster's network did not start")
        self._inside("ip", "link", "add", "name", "switch", "type", "bridge")
        self._inside("ip", "link", "set", "switch", "up")
        _run(
            "ip",
            "link",
            "add",
            "name",
            self.uplink,
            "type",
            "veth",
            "peer",
            "name",
            "host",
            "netns",
            self._pid,
        )
        self._inside("ip", "link", "set", "host", "master", "switch", "up")
        _run("ip", "addr", "add", f"{self.address(1)}/24", "dev", self.uplink)
        _run("ip", "link", "set", self.uplink, "up")

    def address(self, host: int) -> str:
        return f"{self._prefix}.{host}"

    def connect(self, host: int, pid: int) -> None:
        """Give the namespace of process `pid` an eth0.

        The hardware address is always the same: with a new one, stale neighbour entries would hide a
        restarted node for many seconds.
        """
        peer = ["peer", "name", "eth0", "address", f"02:cc:00:00:00:{host:02x}", "netns", str(pid)]
        self._inside("ip", "link", "add", "name", _cable(host), "type", "veth", *peer)
        self._inside("ip", "link", "set", _cable(host), "master", "switch", "up")

    def disconnect(self, host: int) -> None:
        """Remove a dead node's cable; the kernel may have done it already, or be about to."""
        self._inside("ip", "link", "del", _cable(host), check=False)

    def cut(self, host: int) -> None:
        self._inside("ip", "link", "set", _cable(host), "down")

    def heal(self, host: int) -> None:
        self._inside("ip", "link", "set", _cable(host), "up")

    def limit(self, host: int, rate: str | None) -> None:
        """Limit what flows towards a node; its own end is limited inside it."""
        self._inside(*limit_argv(_cable(host), rate), check=rate is not None)

    def down(self) -> None:
        """End the switch, and with it the network."""
        if self._switch:
            self._switch.communicate()

    @property
    def _pid(self) -> str:
        assert self._switch
        return str(self._switch.pid)

    def _inside(self, *argv: str, check: bool = True) -> None:
        _run("nsenter", "-t", self._pid, "-n", *argv, check=check)


def limit_argv(device: str, rate: str | None) -> list[str]:
    """The command that limits what one end of a cable sends, e.g. to "10mbit"; None lifts the limit."""
    if rate is None:
        return ["tc", "qdisc", "del", "dev", device, "root"]
    shape = ["tbf", "rate", rate, "burst", "64kb", "latency", "50ms"]
    return ["tc", "qdisc", "replace", "dev", device, "root", *shape]


def _cable(host: int) -> str:
    """The switch's end of a node's cable; the node's end is eth0."""
    return f"node{host}"


def _run(*argv: str, check: bool = True) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if check and done.returncode:
        raise TestbedError(f"{' '.join(argv)}: {done.stderr.strip()}")


def _free_prefix() -> str:
    """Three numbers of a private /24 that nothing on this machine uses or routes, begun at the process id."""
    routes = subprocess.run(
        ["ip", "-j", "-4", "route", "show", "table", "all"], capture_output=True, check=True
    )
    used = []
    for route in json.loads(routes.stdout):
        if route["dst"] != "default":
            used.append(ipaddress.ip_network(route["dst"], strict=False))
    for offset in range(1 << 15):
        number = (os.getpid() + offset) % (1 << 15)
        prefix = f"10.{64 + number // 256}.{number % 256}"
        candidate = ipaddress.ip_network(f"{prefix}.0/24")
        if not any(candidate.overlaps(network) for network in used):
            return prefix
    raise TestbedError("no free 10.x.y.0/24 network on this machine")
