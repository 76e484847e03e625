"""How the threads that PyTorch computes with on the CPU wait for one another: in a loop, or asleep."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import time
from pathlib import Path

import torch

from trainer.machine.processors import usable_processors

SCHEDSTAT = Path("/proc/self/schedstat")
_LOOK_SECONDS = 0.5
_CROWDED = 0.15
"""Threads kept waiting for a processor, on average, from which it is crowded: 0.00 to 0.08 where nothing else
runs on two processors, 0.42 to 0.46 beside one busy program."""
_PARALLEL = 2**17
"""Numbers in a tensor for which PyTorch wakes all its threads, however few of them it then needs."""


def sleep_when_crowded() -> None:
    """Lets PyTorch's threads sleep while they wait, whenever other programs want this process's processors.

    libgomp's threads wait for one another in a loop for some milliseconds before they sleep. Alone that is
    the fastest way; beside another program it takes the processor from the very thread that is waited for.
    libgomp waits briefly only while it has more threads than there are processors (its manual,
    GOMP_SPINCOUNT), and knows of no other process. So a thread looks how long ours are kept waiting for a
    processor (the kernel's scheduler/sched-stats), and while that is long it adds as many idle threads as
    libgomp needs to wait briefly.

    What is computed stays the same. Nothing happens where the environment says how to wait, where Linux does
    not tell, or with one thread only.
    """
    said = os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
    if torch.get_num_threads() > 1 and not said and SCHEDSTAT.exists():
        _watcher()


class IdleTeams:
    """Teams of libgomp's threads that do nothing but count, held by sleeping threads of our own."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def hold(self, wanted: bool) -> None:
        """Makes the teams if they are wanted and not there; ends them if they are there and not wanted."""
        if wanted and not self._threads:
            self._over.clear()
            size = torch.get_num_threads() - 1  # beside the thread that holds it, which counts too
            teams = -(-usable_processors() // size) if size else 0  # one thread waits for no other
            self._threads = [
                threading.Thread(target=self._idle, name="idle team", daemon=True) for _ in range(teams)
            ]
            for thread in self._threads:
                thread.start()
        elif not wanted:
            self._over.set()
            while self._threads:
                self._threads.pop().join()

    def _idle(self) -> None:
        # PyTorch reads the environment when a thread first computes, and crashes where another thread changes
        # it meanwhile (getenv(3), attributes). This call reads it under the interpreter's lock, under which
        # Python changes it.
        torch.get_num_threads()
        _compute()
        self._over.wait()


class Watcher:
    """Looks for crowding from a thread of its own, and holds idle teams meanwhile."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="crowding", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the thread and those it has made; an interpreter that ended before them would abort."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        teams = IdleTeams()
        before, at = waited(), time.monotonic()
        while not self._over.wait(_LOOK_SECONDS):
            total, now = waited(), time.monotonic()
            teams.hold((total - before) / (now - at) > _CROWDED)
            before, at = total, now
        teams.hold(False)


def _compute() -> None:
    """Computes with all threads."""
    torch.zeros(_PARALLEL).add_(1.0)


def waited() -> float:
    """Returns the seconds that this process's threads have been kept waiting for a processor, all together.

    Those of threads that have ended are not in it.
    """
    nanoseconds = 0
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
            nanoseconds += int((thread / "schedstat").read_text().split()[1])
    return nanoseconds / 1e9


@functools.cache
def _watcher() -> Watcher:
    _compute()  # what a process's first product reads of the environment, this thread shall read
    watcher = Watcher()
    atexit.register(watcher.end)
    return watcher
