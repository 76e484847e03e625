"""For the tests on the cluster: the person who types the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User


@pytest.fixture(scope="module")
def user(cluster: Cluster, small_sif: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    """With a new project folder for each test file, and an image in which nothing trains."""
    return User.settle(tmp_path_factory.mktemp("laptop"), cluster, small_sif)


@pytest.fixture(scope="module")
def learner(cluster: Cluster, trainer_sif: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    """The same with the trainer's image, which the cluster has."""
    user = User.settle(tmp_path_factory.mktemp("learner"), cluster, trainer_sif)
    user.has_image(trainer_sif)
    return user
