"""The process of a local job: starts job.sh, forwards signals, enforces the time limit, cleans up.

It leads the job's session. job.sh writes the job's outcome to the run directory. A job that may be requeued
is restarted with a new time limit whenever job.sh ends with the code that requests it.

A second process, the keeper, ends the job when the supervisor is killed. If both are, what is left of the job
still counts as the job: `processes.family` finds it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from clusterkit.backends.local.processes import (
    MARK,
    adopt_orphans,
    family,
    job_id,
    kill_family,
    reap_orphans,
    send,
)
from clusterkit.exit_codes import REQUEUE_CODE

GRACE_SECONDS = 10.0
"""Seconds between SIGTERM and SIGKILL."""
CLEAN_UP_SECONDS = 10.0
"""Seconds for job.sh to write its record and remove its scratch folder after the program was killed."""
_KEEPER = f"""
read -r _
echo "[clusterkit] the supervisor of job ${MARK} was killed, so the job is ended"
exec "$@"
"""
"""sh script that waits for the end of its standard input, whose other end the supervisor holds."""
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)


class Supervisor:
    """One running job.

    Args:
        script: absolute path of job.sh.
        time_limit: seconds until SIGTERM; None for no limit.
        notice: a signal to send once, and the seconds before the limit (sbatch --signal).
        grace: seconds between SIGTERM and SIGKILL.
        requeue: restart it when it asks for that.
    """

    def __init__(
        self,
        script: str,
        *,
        time_limit: float | None = None,
        notice: tuple[signal.Signals, float] | None = None,
        grace: float = GRACE_SECONDS,
        requeue: bool = False,
    ) -> None:
        self._script, self._time_limit, self._notice, self._grace = script, time_limit, notice, grace
        self._requeue = requeue
        self._due: list[tuple[float, signal.Signals]] = []
        """Signals to send and when (monotonic seconds); SIGKILL goes to all remaining processes."""
        self._id = job_id(os.getpid()) or str(os.getpid())
        self._tie = os.pipe()
        """No other process holds its second end, so the first tells when this one is gone."""
        self._keeper = self._start_keeper()
        self._job = self._start(restarts=0)

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        stop = [sys.executable, "-P", "-m", "clusterkit.backends.local.stop", self._id]
        return subprocess.Popen(
            ["sh", "-c", _KEEPER, "sh", *stop], stdin=self._tie[0], env={**os.environ, MARK: self._id}
        )

    def _start(self, restarts: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, MARK: self._id}
        if self._requeue:
            environment["CLUSTERKIT_RESTARTS"] = str(restarts)
        self._due.clear()
        if self._time_limit is not None:
            environment["CLUSTERKIT_DEADLINE"] = str(int(time.time() + self._time_limit))
            self._plan_stop(time.monotonic() + self._time_limit)
            if self._notice is not None:
                number, before = self._notice
                self._due.append((time.monotonic() + max(0.0, self._time_limit - before), number))
        # It inherits the lock of the array's slot, which is free again when nothing of the job lives.
        return subprocess.Popen(
            ["bash", "-p", self._script], stdin=subprocess.DEVNULL, env=environment, close_fds=False
        )

    def run(self, signals: int) -> int:
        """Runs until the job has ended and none of its processes is left.

        Args:
            signals: file descriptor on which arriving signals can be read, one byte each.

        Returns:
            job.sh's exit code.
        """
        for restarts in itertools.count(1):
            while self._job.poll() is None:
                self._obey(_arrived(signals, self._pause()))
                self._send_due()
                reap_orphans([self._job, self._keeper])
            kill_family(self._id)
            self._obey(_arrived(signals, 0.0))  # a cancel that came when the job had just ended
            if not self._requeue or self._job.returncode != REQUEUE_CODE:
                break
            self._keeper = self._start_keeper()
            self._job = self._start(restarts)
        return self._job.returncode

    def _plan_stop(self, moment: float) -> None:
        """Plans SIGTERM, and SIGKILL after the grace; an earlier planned stop stays."""
        self._due += [(moment, signal.SIGTERM), (moment + self._grace, signal.SIGKILL)]

    def _obey(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGTERM:
                self._requeue = False
                self._plan_stop(time.monotonic())
            elif number in _FORWARDED:
                self._send(signal.Signals(number))

    def _pause(self) -> float | None:
        """Returns seconds until the next signal is due; None without one."""
        return max(0.0, min(self._due)[0] - time.monotonic()) if self._due else None

    def _send_due(self) -> None:
        now = time.monotonic()
        for moment, number in sorted(self._due):
            if moment <= now:
                self._due.remove((moment, number))
                self._send(number)

    def _send(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            # job.sh goes last, so that it can still write the exit record and remove the scratch folder;
            # so only those are killed who live now, not the tools it then starts.
            send(family(self._id) - {self._job.pid, self._keeper.pid}, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._job.wait(CLEAN_UP_SECONDS)
            self._job.kill()
        elif self._job.poll() is None:
            self._job.send_signal(number)
            if number == signal.SIGTERM:  # one that was stopped obeys when it is continued, as in Slurm
                send(family(self._id), signal.SIGCONT)


def _arrived(signals: int, timeout: float | None) -> bytes:
    """Signals that have arrived or arrive within a time."""
    ready, _, _ = select.select([signals], [], [], timeout)
    return os.read(signals, 512) if ready else b""


@contextlib.contextmanager
def incoming_signals() -> Iterator[int]:
    """Yields a file descriptor from which arriving signals are read, one byte each, without polling."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGCHLD, *_FORWARDED):
        signal.signal(number, lambda *_: None)  # the wake-up descriptor tells the loop
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    previous = signal.set_wakeup_fd(writer)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(previous)
        os.close(reader)
        os.close(writer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line: `python -m ...supervisor [--time-limit S] [--notice NAME@S] SCRIPT`."""
    parser = argparse.ArgumentParser(prog="clusterkit.backends.local.supervisor")
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--notice", metavar="NAME@SECONDS")
    parser.add_argument("--grace", type=float, default=GRACE_SECONDS)
    parser.add_argument("--requeue", action="store_true")
    parser.add_argument("script")
    options = parser.parse_args(arguments)
    notice = None
    if options.notice:
        name, _, seconds = options.notice.partition("@")
        notice = (signal.Signals[f"SIG{name}"], float(seconds))
    adopt_orphans()
    with incoming_signals() as signals:
        job = Supervisor(
            options.script,
            time_limit=options.time_limit,
            notice=notice,
            grace=options.grace,
            requeue=options.requeue,
        )
        return job.run(signals)


if __name__ == "__main__":
    sys.exit(main())
