"""What comes before paramiko, whose import and a server's greeting both take time.

A host is connected to first, and paramiko is imported without what nobody here uses.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from clusterkit.transport.faults import UnreachableError
from clusterkit.transport.resolve import HostConfig


def dial(host: HostConfig) -> socket.socket:
    """A TCP connection to a host.

    Raises:
        UnreachableError: there is no such name, or nothing answers there.
    """
    try:
        return socket.create_connection((host.hostname, host.port), host.connect_timeout)
    except socket.gaierror as error:
        alias = f" (for {host.alias})" if host.alias != host.hostname else ""
        raise UnreachableError(
            f"the host name {host.hostname}{alias} cannot be resolved: {error.strerror}",
            hint="check the spelling, the ssh configuration and the network (is a VPN needed?)",
        ) from error
    except TimeoutError as error:
        raise UnreachableError(
            f"{host.alias} ({host.address}) does not answer: no connection within {host.connect_timeout:g} s",
            hint="check the network (is a VPN needed?) and the host's status page",
        ) from error
    except OSError as error:
        raise UnreachableError(
            f"{host.alias} ({host.address}) cannot be reached: {error.strerror or error}",
            hint="check the host, port and network (is a VPN needed? is the machine down?)",
        ) from error


@contextmanager
def without_invoke() -> Iterator[None]:
    """Import paramiko inside, and it takes half the time.

    Its reader of ssh_config imports `invoke`, and with it asyncio, unittest.mock and a YAML library, for the
    `Match exec` lines that only `ssh -G` reads here (see `resolve`). Paramiko itself does without where
    invoke is not installed, which is what it finds here.
    """
    if "paramiko" in sys.modules or "invoke" in sys.modules:
        yield
        return
    sys.modules["invoke"] = None  # type: ignore[assignment]  # the import system's own sign for "not there"
    try:
        yield
    finally:
        del sys.modules["invoke"]
