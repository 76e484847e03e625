"""Numbers, sizes and durations, as people type and read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.backends.slurm.options import slurm_memory, slurm_time
from clusterkit.cli.ui.console import format_count
from clusterkit.units import (
    beside,
    format_bytes,
    format_duration,
    format_seconds,
    format_size,
    parse_duration,
    parse_size,
    percent,
    percents_beside,
    significant,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.010527, "0.0105"),
        (0.31, "0.31"),
        (39.64, "39.6"),
        (123456.7, "123,457"),
        (-3.14159, "-3.14"),
        (-0.0, "0"),
        (1e-9, "1e-09"),
        (math.inf, "inf"),
    ],
)
def test_three_digits_and_never_fewer_before_the_point(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0%"), (1.0, "100%"), (0.5, "50%"), (0.004, "0.4%"), (0.996, "99.6%"), (0.9996, "99.96%")],
)
def test_not_all_and_not_nothing_look_it(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.010527, 0.010417], ["0.0105", "0.0104"]),
        ([4123.4, 4123.2, None], ["4,123.4", "4,123.2", "-"]),
        ([2.0, 2.0000000000000004], ["2", "2.0000000000000004"]),
        ([1.0, 1.0], ["1", "1"]),
        ([0.0, -0.0, math.nan], ["0", "0", "nan"]),
        ([], []),
    ],
)
def test_what_differs_looks_different_side_by_side(values: list[float | None], texts: list[str]) -> None:
    assert beside(values) == texts


def test_percentages_side_by_side() -> None:
    assert percents_beside([0.5, 0.50002, None]) == ["50.000%", "50.002%", "-"]


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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1K", 1024),
        ("500M", 500 * 2**20),
        ("64G", 64 * 2**30),
        ("64GB", 64 * 2**30),
        ("64 GiB", 64 * 2**30),
        ("64g", 64 * 2**30),
        ("1.5T", 3 * 2**39),
    ],
)
def test_sizes_are_binary_as_in_slurm(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "64", "G", "64X", "-1G", "1,5G", "64Gb/s", "1e3M", "inf G"])
def test_a_size_without_a_known_unit_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r'is not a size; .* "64G"'):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("4h", 14400),
        ("90m", 5400),
        ("1d", 86400),
        ("1d12h", 129600),
        ("1h30m15s", 5415),
        ("04:00:00", 14400),
        ("00:00:30", 30),
        ("1-12:00:00", 129600),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "4", "4 hours", "12h1d", "04:00", "1-12", "04:60:00", "4w", "-4h", "1.5h"]
)
def test_a_duration_slurm_and_people_might_read_differently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r'is not a duration; .* "1d12h"'):
        parse_duration(text)


@given(st.integers(1, 10**15))
def test_a_formatted_size_reads_back_to_the_kibibyte(kibibytes: int) -> None:
    assert parse_size(format_size(kibibytes * 1024)) == kibibytes * 1024


@given(st.integers(0, 10**9))
def test_a_formatted_duration_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(1, 10**8))
def test_slurm_time_is_the_next_full_minute(seconds: int) -> None:
    assert parse_duration(slurm_time(seconds)) == -(-seconds // 60) * 60


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "00:01:00"), (3601, "01:01:00"), (86400, "1-00:00:00"), (129600, "1-12:00:00")]
)
def test_slurm_time_in_slurms_form(seconds: int, text: str) -> None:
    assert slurm_time(seconds) == text


@given(st.integers(1, 2**50))
def test_slurm_memory_never_asks_for_less(size: int) -> None:
    assert 0 <= parse_size(slurm_memory(size)) - size < 2**20


@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000, "²", "٣", "1_000"])
def test_numbers_that_are_none_or_not_plausible_are_refused(digits: str) -> None:
    for read, unit in ((parse_size, "G"), (parse_duration, "h"), (parse_duration, ":00:00")):
        with pytest.raises(ValueError, match="is not a"):
            read(f"{digits}{unit}")
