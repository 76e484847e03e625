"""The wandb client, forked from a process that has imported it.

It works for a tenth of a second and imports for most of one, and the tests start it a hundred times. With
`variables` in the environment, `python -m wandb` is `path/wandb/__main__.py`: it hands folder, environment,
streams and whatever else is open to a process that forks the client, and ends when that ends. Killed, it
takes the client along. What a cold start is like, tests/wandb/test_releases.py shows.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.doubles.forked_wandb.path.wandb.link import ADDRESS, ask

_FOLDER = Path(__file__).parent


def variables() -> dict[str, str]:
    """For the environment of a process that starts `python -m wandb`."""
    if sys.platform != "linux":
        return {}
    before = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    return {ADDRESS: _parent(), "PYTHONPATH": os.pathsep.join([str(_FOLDER / "path"), *before])}


def run(code: str, *arguments: str, folder: Path, env: Mapping[str, str]) -> None:
    """Run a program that uses wandb, as `python -c code arguments` does.

    Raises:
        CalledProcessError: it failed.
    """
    argv = ["-c", code, *arguments]
    if sys.platform != "linux":
        subprocess.run([sys.executable, *argv], cwd=folder, env=env, check=True, capture_output=True)
        return
    with tempfile.TemporaryFile() as said, Path(os.devnull).open() as nothing:
        streams = [nothing.fileno(), said.fileno(), said.fileno()]
        returncode = ask(_parent(), argv, str(folder), env, streams)
        if returncode:
            said.seek(0)
            raise subprocess.CalledProcessError(returncode, argv, said.read())


@cache
def _parent() -> str:
    """Start the process that has imported wandb; it ends with this one. Returns its address."""
    ours, theirs = socket.socketpair()
    _OPEN.append(ours)
    address = str(Path(tempfile.mkdtemp()) / "wandb")
    with theirs, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        files = [listener.fileno(), theirs.fileno()]
        subprocess.Popen(
            [sys.executable, _FOLDER / "parent.py", *map(str, files), address],
            env={"PATH": os.environ["PATH"], "WANDB_ERROR_REPORTING": "false"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=files,
        )
    return address


_OPEN: list[socket.socket] = []
