"""Where the cluster cannot run, its tests are skipped with the reason; under CI that is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster

PROJECT = Path(__file__).parents[2]
TEST = "tests/cluster/test_cluster.py::test_a_cut_cable_is_a_silent_host_until_it_heals"


@pytest.mark.parametrize(
    ("ci", "outcome"), [("false", "1 skipped"), ("true", "1 error")], ids=["laptop", "ci"]
)
def test_without_root_it_says_why(cluster: Cluster, ci: str, outcome: str) -> None:
    """In a user namespace without a mapping nobody is root. The cluster is up: it could run here."""
    pytest_argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST]
    done = subprocess.run(
        ["unshare", "--user", *pytest_argv],
        cwd=PROJECT,
        env=os.environ | {"CI": ci, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert outcome in done.stdout.splitlines()[-1], done.stdout
    assert "needs root" in done.stdout
