"""Derives a profile's settings from the bench's measurements. Pure."""

from clusterkit.forecast.tuning.bench import PROGRAM, Bench, BenchRow, BenchSetting, read_bench
from clusterkit.forecast.tuning.choice import FULL, NEAR, Chosen, changes, choose, remark
from clusterkit.forecast.tuning.record import measurements

__all__ = [
    "FULL",
    "NEAR",
    "PROGRAM",
    "Bench",
    "BenchRow",
    "BenchSetting",
    "Chosen",
    "changes",
    "choose",
    "measurements",
    "read_bench",
    "remark",
]
