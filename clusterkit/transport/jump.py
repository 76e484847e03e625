"""The road to a host: straight, through jump hosts inside one another, or through a ProxyCommand.

Each hop is resolved, checked and logged in to like any other host. Source: ssh_config(5),
ProxyJump and ProxyCommand.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko

from clusterkit.errors import TransportError
from clusterkit.transport.dial import Dialled, connect
from clusterkit.transport.faults import UnreachableError
from clusterkit.transport.known_hosts import HostKeyVerdict, read
from clusterkit.transport.login import login
from clusterkit.transport.questions import Ask
from clusterkit.transport.resolve import HostConfig, parse_destination, resolve
from clusterkit.transport.wire import Wire

_MAX_HOPS = 8
_STOP_SECONDS = 2.0


@dataclass
class Road:
    """An authenticated connection and everything it rides on."""

    wire: Wire
    host: HostConfig
    _closers: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Close the connection, then what carries it. Safe to call twice."""
        while self._closers:
            self._closers.pop()()


def travel(destination: str, *, ask: Ask, config: Path | None = None, dialled: Dialled | None = None) -> Road:
    """Log in to a host, by whatever road the user's ssh_config names.

    Args:
        destination: what one would type after `ssh`.
        ask: answers the questions.
        config: instead of the user's and the system's ssh_config.
        dialled: what `dial` has done of it already.

    Raises:
        TransportError: a hop cannot be resolved, reached or trusted, or refuses the login.
    """
    closers: list[Callable[[], None]] = []
    try:
        wire, host = _travel(destination, None, None, ask, config, None, closers, 0, dialled)
    except BaseException:
        while closers:
            closers.pop()()
        raise
    return Road(wire, host, closers)


def _travel(
    destination: str,
    user: str | None,
    port: int | None,
    ask: Ask,
    config: Path | None,
    over: Wire | None,
    closers: list[Callable[[], None]],
    depth: int,
    dialled: Dialled | None = None,
) -> tuple[Wire, HostConfig]:
    if depth > _MAX_HOPS:
        raise TransportError(
            f"the ProxyJump of {destination} leads in circles",
            hint="give the jump host a Host block of its own with `ProxyJump none`",
        )
    host = dialled.host if dialled else resolve(destination, config=config, user=user, port=port)
    if dialled and dialled.sock:
        closers.append(dialled.sock.close)
    verdict = HostKeyVerdict(host, read(host.known_hosts))
    if over is None:
        for hop in host.proxy_jump:
            # only the first hop may have jumps of its own; the later ones ride on the hop before
            step = parse_destination(hop)
            over, _ = _travel(step.host, step.user, step.port, ask, config, over, closers, depth + 1)
    sock = (dialled and dialled.sock) or _open(host, over, closers)
    wire = Wire(sock, host_key_algorithms=verdict.algorithms, timeout=host.connect_timeout)
    closers.append(wire.close)
    login(wire, host, verdict, ask)
    return wire, host


def _open(host: HostConfig, over: Wire | None, closers: list[Callable[[], None]]) -> Any:
    if over is not None:
        return _through(host, over)
    if host.proxy_command:
        sock, stop = _proxy(host.proxy_command)
        closers.append(stop)
        return sock
    return connect(host)


def _through(host: HostConfig, over: Wire) -> paramiko.Channel:
    try:
        return over.open_channel(
            "direct-tcpip", (host.hostname, host.port), ("127.0.0.1", 0), timeout=host.connect_timeout
        )
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise UnreachableError(
            f"the jump host cannot reach {host.alias} ({host.address}): {str(error) or type(error).__name__}",
            hint="check ProxyJump in the ssh configuration, and whether the jump host allows forwarding",
        ) from error


def _proxy(command: str) -> tuple[socket.socket, Callable[[], None]]:
    """Start a ProxyCommand as OpenSSH does: by the user's shell, on both ends of one socket.

    paramiko's own splits the command without a shell and notices its death only at a timeout.
    """
    ours, theirs = socket.socketpair()
    shell = os.environ.get("SHELL") or "/bin/sh"
    line = command if command.lstrip().startswith("exec ") else f"exec {command}"
    with contextlib.ExitStack() as failed:
        failed.callback(ours.close)
        with theirs:
            process = subprocess.Popen(
                [shell, "-c", line], stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True
            )
        failed.pop_all()

    def stop() -> None:
        ours.close()
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    return ours, stop
