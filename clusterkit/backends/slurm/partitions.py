"""Reads `scontrol -o show partition`: a partition in each line. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"PartitionName=(.+?)(?=\s+\w+=|\s*$)")
"""Names may hold spaces."""


def partitions(text: str) -> dict[str, dict[str, str]]:
    """The fields of each partition, by its name; lines of somebody else's are passed over."""
    found = {}
    for line in text.splitlines():
        if match := _NAME.search(line):
            found[match[1]] = dict(re.findall(r"(\w+)=(\S*)", line[match.end() :]))
    return found


def default(told: Mapping[str, Mapping[str, str]]) -> str | None:
    """The partition of a job that names none, among those of `partitions`; None where there is no such."""
    return next((name for name, fields in told.items() if fields.get("Default") == "YES"), None)
