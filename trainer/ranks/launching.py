"""Starts the ranks of a run on this node, one process each, and ends as they end.

torchrun does the same but for what a run under a scheduler needs: it dies of SIGUSR1 unless it is told of it,
and it ends with 1 whatever its processes end with.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from trainer.preemption import EXIT_INTERRUPTED, EXIT_REQUEUE
from trainer.ranks.place import PARENT, RankPlace, python

_ORDERLY = (0, EXIT_REQUEUE, EXIT_INTERRUPTED)
_PATIENCE = 50.0
"""Seconds the others get to notice by themselves that a rank has failed, and to say so."""
_LAST_WORDS = 5.0
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


def launch(argv: Sequence[str], place: RankPlace) -> int:
    """Runs `python -m trainer train` with these arguments in a process for each rank; returns the exit code.

    Signals go on to every rank. When one fails the others are ended too, within a minute.

    Args:
        argv: the arguments.
        place: the node's first rank, and how many there are here and on all nodes.

    Returns:
        That of the rank that failed, 128 and the signal's number if one was killed; else that of the first.
    """
    ranks: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for process in ranks:
            _signal(process, number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        shared = _environment(place)
        for local in range(place.local_size):
            own = {"RANK": str(place.rank + local), "LOCAL_RANK": str(local)}
            # a session of its own: Ctrl-C in a terminal goes to all of a group, and would come twice
            process = subprocess.Popen(
                [*python(), "-m", "trainer", "train", *argv],
                env={**os.environ, **shared, **own},
                start_new_session=True,
            )
            ranks.append(process)
            for number in list(received):
                _signal(process, number)
        return _wait(ranks, place)
    finally:
        for process in ranks:
            _signal(process, signal.SIGKILL)
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment(place: RankPlace) -> dict[str, str]:
    shared = {
        "WORLD_SIZE": str(place.size),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        PARENT: str(os.getpid()),
    }
    if place.local_size < place.size:  # those on other nodes are met where the environment says
        return shared
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {**shared, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if sys.platform == "linux":  # else it asks for the address of the host's name, which may have none
        variables["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    return variables


def _wait(ranks: Sequence[subprocess.Popen[bytes]], place: RankPlace) -> int:
    """Waits for all, or for the first that fails and then for the others as long as that may take."""
    hung: list[int] = []
    while None in [process.poll() for process in ranks]:  # of all: each poll notes an end
        if any(process.returncode not in (None, *_ORDERLY) for process in ranks):
            hung = _end(ranks)
        time.sleep(0.05)
    codes = [process.returncode for rank, process in enumerate(ranks) if rank not in hung]
    failed = [code for code in codes if code not in _ORDERLY]
    for rank, process in enumerate(ranks):
        if process.returncode < 0:
            why = ", for it did not end by itself" if rank in hung else ""
            name = signal.Signals(-process.returncode).name
            sys.stderr.write(f"trainer: rank {place.rank + rank} of {place.size} was ended by {name}{why}\n")
    if not failed:
        return codes[0]
    # the others end with 1 for its sake, so any other code is its own
    telling = next((code for code in failed if code != 1), 1)
    return 128 - telling if telling < 0 else telling


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Gives the ranks time to end by themselves; returns those that had to be killed."""
    for patience, number in ((_PATIENCE, signal.SIGTERM), (_LAST_WORDS, signal.SIGKILL)):
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(process.poll() is None for process in ranks):
            time.sleep(0.05)
        running = [rank for rank, process in enumerate(ranks) if process.poll() is None]
        for rank in running:
            _signal(ranks[rank], number)
    return running


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
