"""A real ssh-agent that alone has a key: no file of it is left, as with a key that lives in a token."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

_START_SECONDS = 10.0


class KeyAgent:
    """Runs while the context lasts; its keys are gone afterwards."""

    def __enter__(self) -> KeyAgent:
        self._folder = tempfile.TemporaryDirectory(prefix="agent-")  # a test's own is too long for a socket
        self.socket = Path(self._folder.name) / "socket"
        self._process = subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(self.socket)],
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
    def line(self) -> str:
        """A line of ssh_config that names it, whatever the environment says."""
        return f"IdentityAgent {self.socket}"

    def take(self, key: Path) -> None:
        """Take a key over: the private file is deleted, the public one stays."""
        environment = {**os.environ, "SSH_AUTH_SOCK": str(self.socket)}
        subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True, stdin=subprocess.DEVNULL)
        key.unlink()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()
