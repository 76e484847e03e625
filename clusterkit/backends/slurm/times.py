"""Times as Slurm writes them. Pure."""

from __future__ import annotations

import re

_TIME = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<clock>\d{1,12}(?::\d{1,12}){0,2})(?:\.\d+)?")


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
