"""What a run may be told to start after."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.config.models import Cluster
from clusterkit.errors import ConfigError
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.submit.check import check_after
from clusterkit.submit.plan import After

HERE = Cluster(name="here", host="node", root="/r", container="none")


@pytest.mark.parametrize("way", ["array", "chain"])
def test_a_run_of_many_jobs_is_waited_for_only_when_it_has_completed(tmp_path: Path, way: str) -> None:
    for state, waits in (("RUNNING", False), ("COMPLETED", True)):
        run = LedgerRun("r-1", "here", "r", "p", "", 0, "7", "", "/r/runs/r-1", 0, state, until_done=way)
        with Ledger(tmp_path / state) as ledger:
            ledger.add(run)
            if waits:
                check_after(ledger, HERE, [After("r-1")], ())
                continue
            with pytest.raises(ConfigError, match="it continues in further jobs"):
                check_after(ledger, HERE, [After("r-1")], ())
