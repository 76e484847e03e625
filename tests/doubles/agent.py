"""A real ssh-agent that alone has a key: no file of it is left, as with a key that lives in a token."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

_START_SECONDS = 10.0


class KeyAgent:
    """Runs while the context lasts; its keys are gone afterwards."""

    def __enter__(self) -> KeyAgent:
        self._folder = tempfile.TemporaryDirectory(prefix="agent-")  # a test's own is too long for a socket
        self.socket = Path(self._folder.name) / "socket"
        nobody = {"SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "force"}
        self._process = subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(self.socket)],
            env={**os.environ, **nobody},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self.socket.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._end()
                raise RuntimeError("ssh-agent did not start")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def environment(self) -> Mapping[str, str]:
        """What to add to the environment of a client that looks at `SSH_AUTH_SOCK`."""
        return {"SSH_AUTH_SOCK": str(self.socket)}

    @property
    def line(self) -> str:
        """A line of ssh_config that names it, whatever the environment says."""
        return f"IdentityAgent {self.socket}"

    def take(self, key: Path, *, confirmed: bool = True) -> None:
        """Take a key over: the private file is deleted, the public one stays.

        Unless `confirmed`, it signs only what somebody agrees to, and nobody ever does.
        """
        argv = ["ssh-add", "-q", *([] if confirmed else ["-c"]), str(key)]
        subprocess.run(argv, env={**os.environ, **self.environment}, check=True, stdin=subprocess.DEVNULL)
        key.unlink()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()
