"""Uploads a run directory to W&B and is ended by SIGKILL just before one of the calls that touch the world.

    python -m tests.doubles.upload_killed POINT LEDGER RUN_DIR OUTCOME

Server and key come from the environment. Without a kill the result is printed; POINT 0 prints the number of
calls before it.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from clusterkit.wandb import server
from clusterkit.wandb.ledger import SqliteUploads
from clusterkit.wandb.plan import UploadOutcome
from clusterkit.wandb.upload import UploadTarget, upload_runs
from tests.doubles.kill_point import Counter


def main() -> None:
    point, ledger, run_dir, outcome = sys.argv[1:]
    found = server.find_credentials(os.environ, Path.home())
    assert found is not None
    uploads = SqliteUploads(sqlite3.connect(ledger, isolation_level=None))
    counter = Counter([int(point)])
    counter.armed = True
    sys.setprofile(counter)
    (result,) = upload_runs(
        {"r1": Path(run_dir)},
        outcome=lambda _: UploadOutcome(outcome),
        target=UploadTarget(found),
        ledger=uploads,
        live=True,
    )
    sys.setprofile(None)
    sys.stdout.write(f"{result.state} {counter.count} {result.message}\n")


if __name__ == "__main__":
    main()
