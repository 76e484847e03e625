"""rsync's include and exclude patterns, for transfers without rsync. Pure.

The part of rsync(1), FILTER RULES and PATTERN MATCHING RULES, that `SyncOptions` offers: the first
pattern that matches decides, what none matches goes, and a folder that stays keeps everything below it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


class Filters:
    """Decides which names go.

    >>> filters = Filters(include=("keep.log",), exclude=("*.log", "sub/"))
    >>> [filters.goes(name, folder=False) for name in ("keep.log", "a/drop.log", "sub/x", "sub")]
    [True, False, False, True]
    """

    def __init__(self, *, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._rules = [(_Rule(text), True) for text in include] + [(_Rule(text), False) for text in exclude]

    def goes(self, name: str, *, folder: bool) -> bool:
        """Whether a relative path goes, itself and every folder it lies in."""
        parts = name.split("/")
        ways = ["/".join(parts[:end]) for end in range(1, len(parts))]
        return all(self._decide(way, folder=True) for way in ways) and self._decide(name, folder=folder)

    def _decide(self, name: str, *, folder: bool) -> bool:
        return next((goes for rule, goes in self._rules if rule.matches(name, folder=folder)), True)


class _Rule:
    def __init__(self, pattern: str) -> None:
        pattern = _as_bytes(pattern)
        text = pattern.rstrip("/")
        self._folders_only = text != pattern
        anchored = text.startswith("/")
        self._whole = anchored or "/" in text or "**" in text
        start = "" if anchored or not self._whole else "(?:.*/)?"
        text = text.lstrip("/")
        if not anchored:
            text = text.removeprefix("**/")  # already what an unanchored pattern means
        self._folder: re.Pattern[str] | None = None
        if text.endswith("/***"):  # a folder and everything below it
            text = text.removesuffix("*")
            self._folder = re.compile(start + _translated(text.removesuffix("/**")), re.DOTALL)
        self._regex = re.compile(start + _translated(text), re.DOTALL)

    def matches(self, name: str, *, folder: bool) -> bool:
        if self._folders_only and not folder:
            return False
        name = _as_bytes(name)
        if folder and self._folder is not None and self._folder.fullmatch(name):
            return True
        return self._regex.fullmatch(name if self._whole else name.rpartition("/")[2]) is not None


_PIECE = re.compile(r"\*\*|\*|\?|\[(?:\^|!)?\]?[^\]]*\]|\\.|.", re.DOTALL)


def _translated(pattern: str) -> str:
    words = []
    for piece in _PIECE.findall(pattern):
        if piece == "**":
            words.append(".*")
        elif piece == "*":
            words.append("[^/]*")
        elif piece == "?":
            words.append("[^/]")
        elif piece.startswith("[") and len(piece) > 1:
            body = piece[1:-1].replace("\\", r"\\")
            words.append(f"[^{body[1:]}]" if body[0] in "^!" else f"[{body}]")
        else:
            words.append(re.escape(piece[1:] if piece.startswith("\\") and len(piece) > 1 else piece))
    return "".join(words)


def _as_bytes(text: str) -> str:
    """A character for each byte: rsync's `?` is one byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
