import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors gain nothing from threads, and threads that wait for a busy processor cost dearly."""
    torch.set_num_threads(1)
