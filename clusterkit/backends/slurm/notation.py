"""Reads times, partitions and states of nodes as Slurm writes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TIME = re.compile(r"(?:(?P<days>[0-9]{1,9})-)?(?P<clock>[0-9]{1,12}(?::[0-9]{1,12}){0,2})(?:\.[0-9]+)?")
_NAME = re.compile(r"PartitionName=(.+?)(?=\s+\w+=|\s*$)")
"""Names may hold spaces."""
_BUSY = re.compile(r"down|drain|fail|maint|unknown|power|reboot|inval", re.IGNORECASE)


def parse_time(text: str) -> int | None:
    """Seconds in a Slurm time: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S` (man sbatch, --time).

    Returns:
        None for an unlimited or meaningless time (UNLIMITED, NOT_SET, Partition_Limit, N/A, ...).
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    parts = [int(part) for part in match["clock"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(parts) == 1:  # a single number is minutes
        parts.append(0)
    hours, minutes, seconds = [0, *parts][-3:]
    return (hours * 60 + minutes) * 60 + seconds


def partitions(text: str) -> dict[str, dict[str, str]]:
    """The fields of each partition in `scontrol -o show partition`, by name; other lines are ignored."""
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
