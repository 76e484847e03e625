"""Lets the nodes of a run find each other, then starts a program: `python rendezvous.py FOLDER COMMAND...`.

Every node runs it inside the container, so what it reaches is what the program will reach. The first node
writes its addresses into FOLDER, which all nodes share, and the others connect to each. The program starts
only when all can reach the first, with the variables of torchrun and torch.distributed (`meet`). A meeting
that cannot work ends in half a minute, with its cause.

It is copied into the run directory and run by the image's interpreter, so it uses only the standard library
of Python 3.8 and nothing of clusterkit. Linux only: SIOCGIFADDR names the interfaces (man 7 netdevice).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

_SIOCGIFADDR = 0x8915
_STARTING = 300.0
"""Seconds for all nodes to come so far: a container may start slowly on one."""
_REACHING = 20.0
"""Seconds for a node that has come so far to reach the first one."""
_CONNECTING = 3.0
"""Seconds for one attempt."""
_ADDRESSES = "node-0.json"
EXIT_APART = 69
"""Exit code where the nodes cannot meet (EX_UNAVAILABLE of sysexits.h)."""


class ApartError(Exception):
    """The nodes cannot reach each other."""


def interfaces(wanted: str | None) -> dict[str, str]:
    """Returns the IPv4 address of each interface but the loopback, that of the host's name first.

    Args:
        wanted: the only interface to use; None for any.

    Raises:
        ApartError: there is none, or not the wanted one.
    """
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found[name] = socket.inet_ntoa(answer[20:24])
    usable = {name: address for name, address in found.items() if not address.startswith("127.")}
    if wanted is not None:
        if wanted not in found:
            has = ", ".join(sorted(usable)) or "none with an IPv4 address"
            raise ApartError(f"there is no network interface {wanted} here; there are: {has}")
        return {wanted: found[wanted]}
    if not usable:
        raise ApartError("there is no network interface with an IPv4 address here but the loopback")
    own = ""
    with contextlib.suppress(OSError):
        own = socket.gethostbyname(socket.gethostname())
    return dict(sorted(usable.items(), key=lambda each: each[1] != own))


def meet(folder: str, node: int, name: str, nodes: int, wanted: str | None, per_node: int) -> dict[str, str]:
    """Waits until all nodes can reach the first one; returns the variables by which a program finds it.

    They describe one process on each node: torch.distributed's `env://` variables, and torchrun's own
    (`PET_...`), which starts `per_node` processes.

    Args:
        folder: shared by the nodes, empty at first.
        node: the number of this one.
        name: its name, for messages.
        nodes: how many there are.
        wanted: the network interface to use; None for any.
        per_node: processes of the program on each node.

    Raises:
        ApartError: they cannot meet.
    """
    own = interfaces(wanted)
    address, port, interface = (
        _host(folder, name, nodes, own) if node == 0 else _visit(folder, node, name, own)
    )
    shared = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    torchrun = {"NNODES": nodes, "NODE_RANK": node, "NPROC_PER_NODE": per_node, **shared}
    return {
        **shared,
        **{f"PET_{key}": str(value) for key, value in torchrun.items()},
        "NNODES": str(nodes),
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
        "RANK": str(node),
        "WORLD_SIZE": str(nodes),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        # gloo would take the address of the host's name, which on some machines is the loopback
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
    }


def _host(folder: str, name: str, nodes: int, own: dict[str, str]) -> tuple[str, int, str]:
    """Receives all other nodes; returns an address that all reach, a free port and the interface."""
    key = secrets.token_hex(16)
    guests: dict[int, tuple[socket.socket, list[str], str]] = {}
    with contextlib.ExitStack() as open_connections:
        listener = open_connections.enter_context(socket.socket())
        listener.bind(("", 0))
        listener.listen(64)
        port = listener.getsockname()[1]
        told = {"name": name, "addresses": list(own.values()), "port": port, "key": key}
        _write(folder, _ADDRESSES, told)
        begun = time.monotonic()
        seen: dict[int, float] = {}
        while len(guests) < nodes - 1:
            ready, _, _ = select.select([listener], [], [], 0.2)
            if ready:
                visitor = open_connections.enter_context(listener.accept()[0])
                with contextlib.suppress(OSError, ValueError):  # anybody may knock
                    said = _exchange(visitor, key)
                    if said["reached"]:
                        guests[int(said["node"])] = visitor, said["reached"], str(said["name"])
            now = time.monotonic()
            late = [each for each in _late(folder, seen, now) if each[0] not in guests]
            if late:
                where = ", ".join(f"{address} ({each})" for each, address in own.items())
                raise ApartError(f"node {late[0][1]} did not reach {name} at {where}, port {port}")
            if now - begun > _STARTING:
                absent = nodes - 1 - len(guests)
                raise ApartError(f"after {_STARTING:.0f} s {absent} of {nodes} nodes have not started")
        common = [each for each in own.values() if all(each in reached for _, reached, _ in guests.values())]
        if not common:
            reached = "; ".join(f"{who} reaches {', '.join(there)}" for _, there, who in guests.values())
            raise ApartError(f"no address of {name} is reached by all nodes: {reached}")
        listener.close()  # before any node is told: the program may want the very same port
        with socket.socket() as free:
            free.bind((common[0], 0))
            chosen = free.getsockname()[1]
        for visitor, _, _ in guests.values():
            _say(visitor, {"address": common[0], "port": chosen})
            visitor.settimeout(_CONNECTING)
            with contextlib.suppress(OSError):
                visitor.recv(1)  # it closes first, so that no port of ours stays in TIME_WAIT
    return common[0], chosen, next(which for which, address in own.items() if address == common[0])


def _late(folder: str, seen: dict[int, float], now: float) -> list[tuple[int, str]]:
    """Returns the nodes that came long enough ago to have connected; notes in `seen` when each came."""
    others = [(there, str(written["name"])) for there, written in _present(folder) if there]
    return [each for each in others if now - seen.setdefault(each[0], now) > _REACHING + 2 * _CONNECTING]


def _visit(folder: str, node: int, name: str, own: dict[str, str]) -> tuple[str, int, str]:
    """Connects to the first node; returns what it has chosen, and the interface that leads there."""
    _write(folder, f"node-{node}.json", {"name": name})
    host = _wait_for_host(folder)
    deadline = time.monotonic() + _REACHING
    while True:
        reached, why = [], ""
        for address in host["addresses"]:
            try:
                with _connected(address, host, own) as connection:
                    _exchange_as_guest(connection, host, {"node": node, "name": name, "reached": []})
                reached.append(address)
            except (OSError, ValueError) as error:
                why = why or f"{address}: {getattr(error, 'strerror', None) or error}"
        if reached:
            break
        if time.monotonic() > deadline:
            through = ", ".join(own)
            raise ApartError(
                f"node {name} cannot reach {host['name']} through {through}: port {host['port']} of {why}"
            )
        time.sleep(0.5)
    with _connected(reached[0], host, own) as connection:
        _exchange_as_guest(connection, host, {"node": node, "name": name, "reached": reached})
        connection.settimeout(_STARTING)
        chosen = _hear(connection)
        here = connection.getsockname()[0]
    return str(chosen["address"]), int(chosen["port"]), next(which for which, it in own.items() if it == here)


@contextlib.contextmanager
def _connected(address: str, host: dict[str, Any], own: dict[str, str]) -> Iterator[socket.socket]:
    """A connection to one of the first node's addresses.

    Raises:
        OSError: there is none, or it leads through another interface.
    """
    with socket.create_connection((address, host["port"]), _CONNECTING) as connection:
        here = connection.getsockname()[0]
        if here not in own.values():
            raise OSError(f"the way there leads through {here}, another interface")
        yield connection


def _wait_for_host(folder: str) -> dict[str, Any]:
    deadline = time.monotonic() + _STARTING
    while time.monotonic() < deadline:
        for there, written in _present(folder):
            if there == 0:
                return written
        time.sleep(0.1)
    raise ApartError(f"after {_STARTING:.0f} s the first node had not started the program")


def _present(folder: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """What the nodes that have come so far have written; a listing asks the file server anew."""
    for entry in os.listdir(folder):
        if entry.startswith("node-") and entry.endswith(".json"):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, entry)) as file:
                yield int(entry[5:-5]), json.load(file)


def _write(folder: str, entry: str, content: dict[str, Any]) -> None:
    hidden = os.path.join(folder, "." + entry)
    with open(hidden, "w") as file:
        json.dump(content, file)
    os.replace(hidden, os.path.join(folder, entry))


def _exchange(visitor: socket.socket, key: str) -> dict[str, Any]:
    """Hears who a visitor is, and answers one that knows the key."""
    visitor.settimeout(_CONNECTING)
    said = _hear(visitor)
    if not secrets.compare_digest(str(said["key"]), key):
        raise ValueError("a stranger")
    _say(visitor, {"key": key[::-1]})
    return said


def _exchange_as_guest(connection: socket.socket, host: dict[str, Any], said: dict[str, Any]) -> None:
    """Says who this node is, and makes sure that the first node answers, and nobody else."""
    _say(connection, {**said, "key": host["key"]})
    if _hear(connection).get("key") != host["key"][::-1]:
        raise ValueError("somebody else answers there")


def _say(connection: socket.socket, content: dict[str, Any]) -> None:
    connection.sendall(json.dumps(content).encode() + b"\n")


def _hear(connection: socket.socket) -> dict[str, Any]:
    """Reads one line. Raises ValueError if it is none, OSError if the connection fails."""
    heard = b""
    while not heard.endswith(b"\n") and len(heard) < 65536:
        piece = connection.recv(1)  # what comes after the line is the next one's
        if not piece:
            raise ValueError("the connection was closed")
        heard += piece
    found = json.loads(heard)
    if not isinstance(found, dict):
        raise ValueError("not an answer of a node")
    return found


def main(arguments: list[str]) -> NoReturn:
    """Becomes the command once the nodes have met. Exits with 69 where they cannot."""
    folder, *command = arguments
    scratch = os.environ.get("CLUSTERKIT_SCRATCH")
    if scratch:  # job.sh must not say that the container did not start
        with contextlib.suppress(OSError), open(os.path.join(scratch, "launched"), "a"):
            pass
    node, nodes, ranks = (int(os.environ[f"CLUSTERKIT_{key}"]) for key in ("NODE", "NODES", "RANKS"))
    name = os.environ.get("CLUSTERKIT_NODE_NAME", socket.gethostname())
    try:
        found = meet(folder, node, name, nodes, os.environ.get("CLUSTERKIT_INTERFACE"), ranks // nodes)
    except (ApartError, OSError, ValueError) as error:
        print(f"[clusterkit] the nodes cannot meet: on {name}, {error}", file=sys.stderr, flush=True)
        raise SystemExit(EXIT_APART) from None
    if node == 0:
        way = f"{found['MASTER_ADDR']}, port {found['MASTER_PORT']}, through {found['GLOO_SOCKET_IFNAME']}"
        print(f"[clusterkit] {nodes} nodes have met at {way}", flush=True)
    os.execvpe(command[0], command, {**os.environ, **found})


if __name__ == "__main__":
    main(sys.argv[1:])
