"""For the tests on the cluster: the person who types the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User


@pytest.fixture(scope="module")
def user(cluster: Cluster, trainer_sif: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    """With a new project folder for each test file."""
    return User.settle(tmp_path_factory.mktemp("laptop"), cluster, trainer_sif)
