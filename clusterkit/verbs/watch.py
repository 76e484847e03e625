"""watch: the state of one run again and again until it has ended, over one connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from clusterkit.ledger import Ledger, LedgerRun
from clusterkit.site import connected
from clusterkit.verbs.status import StatusRow, query

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

_LOCAL_SECONDS = 1.0
_SLURM_SECONDS = 15.0
"""Between two questions; sites ask not to poll their controller faster."""


def watch(settings: Settings, ledger: Ledger, run: LedgerRun) -> Iterator[StatusRow]:
    """Rows of a run until it is no longer active; the last one is its end.

    Raises:
        TransportError: the connection failed.
    """
    cluster = settings.cluster(run.cluster)
    pause = _LOCAL_SECONDS if cluster.kind == "local" else _SLURM_SECONDS
    with connected(cluster) as transport:
        while True:
            (state,) = query(cluster, transport, [run])
            ledger.set_states([(run.run_id, state.state)])
            yield StatusRow(run, state)
            if not state.state.active:
                return
            time.sleep(pause)
