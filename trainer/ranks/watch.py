"""Notices that another rank is gone, whatever its end: a failure, `kill -9`, a lost node.

A rank that waits for one that is gone would wait for ever, on a GPU deep in a kernel. So each counts up a
number in the ranks' common store from a thread, and looks at those of the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time

from torch.distributed import Store  # type: ignore[attr-defined]

from trainer.ranks.place import PARENT, RankPlace

_INTERVAL = 1.0
_MOST_MISSED = 30
"""Looks in a row that may find nothing new of a rank. Looks and not seconds: a job that its scheduler
suspends and lets go on must find itself well."""
_GRACE = 10.0
"""Seconds that the main thread gets to end in good order, before this process just ends."""


class RankWatch:
    """Watches the other ranks from a thread of its own.

    Args:
        place: of this rank.
        store: the ranks' common store, used by nobody else.
    """

    def __init__(self, place: RankPlace, store: Store) -> None:
        self._place = place
        self._store = store
        self._seen = dict.fromkeys(set(range(place.size)) - {place.rank}, (0, 0))
        self._parent = int(os.environ.get(PARENT) or 0)
        self._over = threading.Event()
        self._found = threading.Event()
        self._cause = ""
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def cause(self, patience: float = _MOST_MISSED * _INTERVAL + _GRACE) -> str:
        """Returns who is gone and why, as soon as that is known; one line."""
        self._found.wait(patience)
        return self._cause or "the connection to another rank is lost"

    def announce(self, cause: str) -> None:
        """Lets the others know that this rank ends, and why."""
        with contextlib.suppress(RuntimeError):  # the store may be gone with the rank that keeps it
            self._store.set("failed", json.dumps([self._place.rank, cause]))
        if self._place.rank == 0:  # with whom the store may go, before the others have looked
            time.sleep(2 * _INTERVAL)

    def dismiss(self) -> None:
        """Ends the watch: from now on any rank may end."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        with contextlib.suppress(RuntimeError):
            self._store.set(f"done/{self._place.rank}", "")

    def _run(self) -> None:
        while not self._over.wait(_INTERVAL):
            cause = self._look()
            if cause:
                self._cause = cause
                self._found.set()
                if not self._over.wait(_GRACE):
                    sys.stderr.write(f"trainer: rank {self._place.rank} ends: {cause}\n")
                    sys.stderr.flush()
                    os._exit(1)
                return

    def _look(self) -> str:
        """Shows that this rank is there; returns who is not, or nothing."""
        if self._parent and os.getppid() != self._parent:
            return "the process that started the ranks is gone"
        try:
            self._store.add(f"alive/{self._place.rank}", 1)
            if self._store.check(["failed"]):
                rank, cause = json.loads(self._store.get("failed"))
                return f"rank {rank} of {self._place.size} failed: {cause}"
            for rank, (last, missed) in self._seen.items():
                now = self._store.add(f"alive/{rank}", 0)
                self._seen[rank] = now, 0 if now != last else missed + 1
                if missed >= _MOST_MISSED and not self._store.check([f"done/{rank}"]):
                    return f"nothing has been heard from rank {rank} of {self._place.size} for a while"
        except RuntimeError:
            return "the process that the ranks met at, rank 0 or torchrun's, is gone"
        return ""
