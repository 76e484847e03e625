"""rsync's --chmod values, for transfers without rsync. Pure."""

from __future__ import annotations

import re

_PART = re.compile(
    r"(?P<only>[DF]?)(?:(?P<octal>[0-7]{3,4})|(?P<who>[ugoa]*)(?P<how>[-+=])(?P<what>[rwxX]*))"
)
_WHO = {"u": 0o700, "g": 0o070, "o": 0o007}
_WHAT = {"r": 0o444, "w": 0o222, "x": 0o111}


def changed(mode: int, spec: str, *, folder: bool) -> int:
    """A mode after a --chmod value such as "D700,F600" or "Dgo=,Fgo=,Fu-w".

    >>> oct(changed(0o755, "D700,F600", folder=True)), oct(changed(0o755, "Fgo=,Fu-w", folder=False))
    ('0o700', '0o500')

    Raises:
        ValueError: a part of it is none that is known here.
    """
    for part in spec.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(f"not a mode that can be set: {part!r}")
        if found["only"] not in ("", "D" if folder else "F"):
            continue
        if found["octal"]:
            mode = int(found["octal"], 8)
            continue
        who = sum(_WHO[letter] for letter in set((found["who"] or "a").replace("a", "ugo")))
        what = sum(_WHAT[letter] for letter in set(found["what"]) - {"X"})
        if "X" in found["what"] and (folder or mode & 0o111):
            what |= _WHAT["x"]
        if found["how"] == "-":
            mode &= ~(who & what)
        else:
            mode = (mode & ~who if found["how"] == "=" else mode) | (who & what)
    return mode
