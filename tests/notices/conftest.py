"""A webhook that keeps what it gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.webhook import Webhook, webhook


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as running:
        yield running
