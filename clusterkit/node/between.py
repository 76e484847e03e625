"""Measures the network between two nodes, after `rendezvous.py`: prints one line of JSON on the second.

It is sent along with the job and run by the image's interpreter, so it uses only the standard library of
Python 3.8 and nothing of clusterkit.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time

_BYTES = 64 << 20
_PINGS = 20
_SECONDS = 20.0


def serve(address: str, port: int) -> None:
    """Answers pings, then swallows what is sent and says that all of it has come."""
    with socket.create_server((address, port)) as server:
        server.settimeout(_SECONDS)
        with server.accept()[0] as visitor:
            visitor.settimeout(_SECONDS)
            for _ in range(_PINGS):
                visitor.sendall(visitor.recv(1))
            left = _BYTES
            while left > 0:
                came = len(visitor.recv(min(left, 1 << 20)))
                if not came:
                    return
                left -= came
            visitor.sendall(b".")


def measure(address: str, port: int) -> dict[str, float]:
    """Returns the shortest round trip (seconds) and the speed of one connection (bytes per second)."""
    deadline = time.monotonic() + _SECONDS
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            connection = socket.create_connection((address, port), _SECONDS)
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens at {address}, port {port}")
        time.sleep(0.1)
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        for _ in range(_PINGS):
            began = time.perf_counter()
            connection.sendall(b".")
            connection.recv(1)
            trips.append(time.perf_counter() - began)
        began = time.perf_counter()
        block = bytes(1 << 20)
        for _ in range(_BYTES >> 20):
            connection.sendall(block)
        connection.recv(1)
        return {"seconds": min(trips), "bytes_per_second": _BYTES / (time.perf_counter() - began)}


def main() -> None:
    """Measures between nodes 0 and 1; others have nothing to do."""
    address, port, node = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), os.environ["NODE_RANK"]
    if node == "0":
        serve(address, port)
    elif node == "1":
        found = measure(address, port)
        print(json.dumps({**found, "address": address, "interface": os.environ["GLOO_SOCKET_IFNAME"]}))


if __name__ == "__main__":
    main()
