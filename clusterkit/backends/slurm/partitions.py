"""Parses `scontrol -o show partition`, one partition per line, and states of nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"PartitionName=(.+?)(?=\s+\w+=|\s*$)")
"""Names may hold spaces."""
_BUSY = re.compile(r"down|drain|fail|maint|unknown|power|reboot|inval", re.IGNORECASE)


def partitions(text: str) -> dict[str, dict[str, str]]:
    """The fields of each partition, by name; other lines are ignored."""
    found = {}
    for line in text.splitlines():
        if match := _NAME.search(line):
            found[match[1]] = dict(re.findall(r"(\w+)=(\S*)", line[match.end() :]))
    return found


def default(told: Mapping[str, Mapping[str, str]]) -> str | None:
    """The default partition among those of `partitions`; None without one."""
    return next((name for name, fields in told.items() if fields.get("Default") == "YES"), None)


def takes_jobs(state: str) -> bool:
    """Whether jobs may start on a node in this state, now or when another ends."""
    return not state.endswith("*") and not _BUSY.match(state)
