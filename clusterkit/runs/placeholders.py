"""Fills placeholders such as `{seed}` in a program's arguments. Pure.

Only the given names are placeholders. JSON and other braces stay unchanged, and so does `${name}`, a variable
of a shell or of OmegaConf; `{{name}}` stands for a literal `{name}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_PLACE = re.compile(r"(?<!\$)(?:\{\{(?P<literal>[A-Za-z_]\w*)\}\}|\{(?P<name>[A-Za-z_]\w*)\})")


def fill(argv: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the arguments with their placeholders filled.

    >>> fill(["-s{seed}", "{lr}", "{{seed}}", "${seed}", '{"a": {"seed": {seed}}}'], {"seed": "7"})
    ('-s7', '{lr}', '{seed}', '${seed}', '{"a": {"seed": 7}}')
    """

    def written(match: re.Match[str]) -> str:
        if match["literal"] in values:
            return match[0][1:-1]
        return values.get(match["name"], match[0])

    return tuple(_PLACE.sub(written, text) for text in argv)


def has_place(argv: Sequence[str] | None, name: str) -> bool:
    """Returns whether the arguments contain the placeholder."""
    return any(match["name"] == name for text in argv or () for match in _PLACE.finditer(text))
