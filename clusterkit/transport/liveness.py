"""Notices a dead link. TCP alone may take a quarter of an hour; nobody waits that long.

paramiko's keepalive sends and never waits for an answer, so it finds nothing. Here a probe that
every SSH server answers goes out regularly, and any sign of life counts as an answer.
"""

from __future__ import annotations

import threading
import time

import paramiko

PROBE_SECONDS = 5.0
DEAD_SECONDS = 20.0
_LOOK_SECONDS = 0.05


class Liveness:
    """Watches one connection, and closes it once it is dead, so that all who wait on it wake up."""

    def __init__(
        self,
        wire: paramiko.Transport,
        *,
        probe_seconds: float = PROBE_SECONDS,
        dead_seconds: float = DEAD_SECONDS,
    ) -> None:
        self._wire = wire
        self._probe_seconds = probe_seconds
        self._dead_seconds = dead_seconds
        self._heard = time.monotonic()
        self._stop = threading.Event()
        self._due = threading.Event()
        self._answered = threading.Event()
        self.why: str | None = None
        """Why the connection was given up, once it was."""
        for work in (self._probe, self._watch):  # global_request has no time limit: it needs its own thread
            threading.Thread(target=work, name=f"clusterkit-{work.__name__}", daemon=True).start()

    def heard(self) -> None:
        """Data moved. A saturated link delays probes, and is not dead."""
        self._heard = time.monotonic()

    def answers(self, seconds: float) -> bool:
        """Whether there is a sign of life within so many seconds from now."""
        asked = time.monotonic()
        self._answered.clear()
        self._due.set()
        while self._heard < asked and self._wire.is_active() and time.monotonic() - asked < seconds:
            self._answered.wait(_LOOK_SECONDS)
        return self._heard >= asked

    def pace(self, probe_seconds: float) -> None:
        """Probe more or less often from now on."""
        self.heard()  # what was silence at the old pace may be too long for the new one
        self._probe_seconds = probe_seconds
        self._due.set()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._due.set()

    def _probe(self) -> None:
        while self._wire.is_active():
            self._due.wait(self._probe_seconds)
            self._due.clear()
            if self._stop.is_set():
                return
            try:
                self._wire.global_request("keepalive@openssh.com", wait=True)
            except (paramiko.SSHException, OSError, EOFError):
                return  # the wire is down, which every user of it sees by itself
            if self._wire.is_active():  # a refusal is an answer too
                self.heard()
                self._answered.set()

    def _watch(self) -> None:
        while not self._stop.wait(min(1.0, self._dead_seconds / 4)) and self._wire.is_active():
            silence = time.monotonic() - self._heard
            if silence > self._probe_seconds + self._dead_seconds:
                self.why = f"no answer for {silence:.0f} s"
                self._wire.close()
