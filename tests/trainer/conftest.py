from collections.abc import Iterator

import pytest
import torch

from tests.trainer.warm import warm


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors gain nothing from threads, and threads that wait for a busy processor cost dearly."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def warm_processes() -> Iterator[None]:
    """Workers and evaluators that are not what a file is about import nothing."""
    with warm():
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
