"""Answers of the survey's script from sites of many kinds, each part in the form its Slurm version prints.

`testbed` is from a real login node; the others have the fields and the order of their versions, and names of
our own. In the files, a line `== NAME STATUS` begins a part.
"""

from __future__ import annotations

import re
from pathlib import Path

from clusterkit.probes import MARK

Parts = dict[str, str | tuple[str, int] | None]
"""By name: the text of a part that ended well, text and status, or None for one that was not asked."""


def _read(name: str) -> Parts:
    text = (Path(__file__).parent / "recorded" / f"{name}.txt").read_text()
    _, *rest = re.split(r"^== (\w+) (\d+)\n", text, flags=re.MULTILINE)
    return {name: (body, int(status)) for name, status, body in zip(*[iter(rest)] * 3, strict=True)}


TESTBED, UNIVERSITY, LABELLED, MANY_RULES, EMPTY = map(
    _read, ("testbed", "university", "labelled", "rules", "empty")
)
ALL = {
    "testbed": TESTBED,
    "university": UNIVERSITY,
    "labelled": LABELLED,
    "rules": MANY_RULES,
    "empty": EMPTY,
}


def text_of(parts: Parts, name: str) -> str:
    """What a part says."""
    part = parts[name]
    assert part
    return part if isinstance(part, str) else part[0]


def answer(parts: Parts) -> str:
    """What the script prints."""
    found = ["Welcome to the login node!\n"]
    for name, part in [*parts.items(), ("done", "")]:
        if part is not None:
            text, status = (part, 0) if isinstance(part, str) else part
            found.append(f"\n{MARK} begin {name}\n{text}\n{MARK} status {status}\n")
    return "".join(found)
