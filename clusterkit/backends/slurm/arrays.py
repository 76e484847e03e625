"""How large a job array a site takes. Pure: the question and the reading of its answer."""

from __future__ import annotations

import re

DEFAULT_SIZE = 1001
"""Of a Slurm that does not say otherwise (man slurm.conf, MaxArraySize)."""

QUESTION = "LC_ALL=C scontrol show config </dev/null 2>&1"
"""A POSIX sh command."""


def array_size(answer: str) -> int:
    """How many tasks an array may have: MaxArraySize, or the scheduler's `max_array_tasks` where it is less.

    Below 2 there are no arrays. An answer without it counts as Slurm's default.
    """
    limits = [
        int(text) for text in re.findall(r"(?:^MaxArraySize\s*=\s*|\bmax_array_tasks=)(\d+)", answer, re.M)
    ]
    return min(limits, default=DEFAULT_SIZE)
