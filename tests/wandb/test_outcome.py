"""How a run stands, and what the ledger remembers of its uploads."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.runs.record import Attempt
from clusterkit.runs.run_dir import RunDirectory
from clusterkit.wandb.ledger import RecordedUpload, SqliteUploads
from clusterkit.wandb.plan import UploadOutcome, outcome_of


def ended(**last: Any) -> RunDirectory:
    return RunDirectory(Path("r"), {}, (Attempt(0, start={}, exit=last or None),))


@pytest.mark.parametrize(
    ("state", "run", "outcome"),
    [
        ("RUNNING", None, UploadOutcome.RUNNING),
        ("PENDING", ended(why="requeue", code=85), UploadOutcome.RUNNING),
        ("UNKNOWN", ended(), UploadOutcome.RUNNING),
        (
            "RUNNING",
            ended(why="completed", code=0),
            UploadOutcome.FINISHED,
        ),  # the ledger has not heard of it yet
        ("COMPLETED", ended(), UploadOutcome.FINISHED),
        ("COMPLETED", ended(why="failed", code=3), UploadOutcome.FAILED),
        ("TIMEOUT", ended(), UploadOutcome.FAILED),
        ("CANCELLED", None, UploadOutcome.FAILED),
        ("OUT_OF_MEMORY", ended(), UploadOutcome.FAILED),
        ("PREEMPTED", ended(), UploadOutcome.PREEMPTED),
        ("NODE_FAIL", ended(), UploadOutcome.CRASHED),
    ],
)
def test_outcomes(state: str, run: RunDirectory | None, outcome: UploadOutcome) -> None:
    assert outcome_of(state, run) is outcome


def test_every_state_has_an_outcome() -> None:
    over = {state for state in JobState if outcome_of(state, None).over}
    assert not any(state.active for state in over)


def test_a_ledger_of_an_older_clusterkit_goes_on() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(
        "CREATE TABLE uploads (destination TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, "
        "sha256 TEXT NOT NULL, history INTEGER NOT NULL, proven INTEGER NOT NULL, "
        "PRIMARY KEY (destination, path))"
    )
    connection.execute("INSERT INTO uploads VALUES ('d', 'p', 10, 'ab', 5, 1)")
    ledger = SqliteUploads(connection)
    row = ledger.get("d", "p")
    assert row == RecordedUpload(10, "ab", 5, proven=True)
    assert (row.certain, row.told) == (5, "")
    newer = RecordedUpload(20, "cd", 9, proven=False, arrived=5, told="running")
    SqliteUploads(connection).put("d", "p", newer)
    assert SqliteUploads(connection).get("d", "p") == newer
    assert newer.certain == 5
