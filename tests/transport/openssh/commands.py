"""Commands as clusterkit runs them: connect, do something, close; here or in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

from clusterkit.transport.base import Transport
from clusterkit.transport.factory import connect
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.answers import Answers

COMMAND = """
import pathlib, sys
from clusterkit.transport.factory import connect
far = connect("node", ssh_config=pathlib.Path(sys.argv[1]))
print(far.run(["sh", "-c", sys.argv[2]]).text, end="")
print([name for name in ("paramiko", "cryptography") if name in sys.modules])
"""


def to(server: LoopbackSshd, keep: int | None = None, ask: Answers | None = None) -> Transport:
    return connect("node", ssh_config=server.ssh_config, keep=keep, ask=ask or Answers())


def says(transport: Transport) -> str:
    with closing(transport):
        return transport.run(["echo", "here"]).text


def elsewhere(server: LoopbackSshd, script: str = "echo here") -> subprocess.Popen[str]:
    """A command of its own process, with no terminal to ask on."""
    argv = [sys.executable, "-c", COMMAND, str(server.ssh_config), script]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
