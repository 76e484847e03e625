"""Many submits cost little more than one copy."""

from pathlib import Path

import pytest

from tests.benchmarks._deploys import disk_factor


@pytest.mark.slow
@pytest.mark.needs("sshd")
@pytest.mark.parametrize("submits", [12, pytest.param(50, marks=pytest.mark.exhaustive)])
def test_snapshots_of_twenty_megabytes(tmp_path: Path, submits: int) -> None:
    assert disk_factor(tmp_path, submits) < 1 + 0.006 * submits
