"""Numbers as a person reads them."""

import pytest

from clusterkit.cli.ui.console import format_count
from clusterkit.units import format_bytes, format_seconds


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1024, "1.0 KiB"),
        (547 * 2**20, "547 MiB"),
        (15 * 2**30, "15 GiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (256_000, "256k"), (2_000_000, "2M"), (1_250_000, "1.25M")]
)
def test_counts(count: int, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.6, "1m 00s"), (7500, "2h 05m"), (90_000, "1d 01h")]
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
