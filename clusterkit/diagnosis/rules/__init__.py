"""Rules by theme: each looks at the evidence and finds one cause, or nothing. Pure.

A rule of a log looks only at runs that ended badly; how far from the end of the log its words stand
decides how sure it is. Among rules that are equally sure the earlier one of `RULES` wins: the special come
first.
"""

from __future__ import annotations

from collections.abc import Callable

from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.finding import Cause, Finding
from clusterkit.diagnosis.rules import (
    container,
    gpu,
    health,
    launcher,
    limits,
    memory,
    node,
    program,
    storage,
    submission,
    surroundings,
    time,
    waiting,
    wandb,
)

Rule = Callable[[Evidence], Finding | None]

_ROOMS = (
    submission,
    limits,
    waiting,
    memory,
    time,
    node,
    container,
    storage,
    gpu,
    launcher,
    surroundings,
    program,
    wandb,
    health,
)

RULES: tuple[Rule, ...] = tuple(rule for room in _ROOMS for rule in room.RULES)
CAUSES: tuple[Cause, ...] = tuple(
    value for room in _ROOMS for value in vars(room).values() if isinstance(value, Cause)
)
"""All that can be found, in the order of the rules' files."""
