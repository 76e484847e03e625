"""The cluster's network: a bridge of its own, one cable to each node, and the faults a cable can have."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess

from tests.cluster.host import TestbedError


class Network:
    """A /24 on a bridge. The host is .1; nothing is routed, so a node's name lookups fail at once.

    Link names carry the cluster's name, so that several clusters can run side by side; the kernel allows 15
    characters.
    """

    def __init__(self, name: str) -> None:
        self.bridge = f"{name}br"
        self._name = name
        self._prefix = _free_prefix()

    def up(self) -> None:
        _ip("link", "add", "name", self.bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address(1)}/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")

    def address(self, host: int) -> str:
        return f"{self._prefix}.{host}"

    def cable(self, host: int) -> str:
        """The host's end of a node's cable; the node's end is eth0."""
        return f"{self._name}n{host}"

    def connect(self, host: int, pid: int) -> None:
        """Give the namespace of process `pid` an eth0.

        The hardware address is always the same: with a new one, the host's stale neighbour entry would hide a
        restarted node for many seconds.
        """
        cable, mac = self.cable(host), f"02:cc:00:00:00:{host:02x}"
        peer = ["peer", "name", "eth0", "address", mac, "netns", str(pid)]
        _ip("link", "add", "name", cable, "type", "veth", *peer)
        _ip("link", "set", cable, "master", self.bridge, "up")

    def disconnect(self, host: int) -> None:
        """Remove a cable; the kernel would do it too, some time after the node's last process."""
        subprocess.run(["ip", "link", "del", self.cable(host)], stderr=subprocess.DEVNULL)

    def cut(self, host: int) -> None:
        _ip("link", "set", self.cable(host), "down")

    def heal(self, host: int) -> None:
        _ip("link", "set", self.cable(host), "up")


def limit_argv(device: str, rate: str | None) -> list[str]:
    """The command that limits what one end of a cable sends, e.g. to "10mbit"; None lifts the limit."""
    if rate is None:
        return ["tc", "qdisc", "del", "dev", device, "root"]
    shape = ["tbf", "rate", rate, "burst", "64kb", "latency", "50ms"]
    return ["tc", "qdisc", "replace", "dev", device, "root", *shape]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


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
