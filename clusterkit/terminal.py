"""Keeps what others wrote from controlling the terminal: of a name every control, of a log most of them.

`tamed` is for names and messages, which need no control at all; `TerminalFilter` for a program's output,
where colours and progress bars stay; `plain_output` for anything else that is written to a terminal.
"""

from __future__ import annotations

import codecs
import re

DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
"""Characters that reorder text around them, for a class of a regular expression."""
_NEVER = rf"\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029{DIRECTIONS}"

_LONGEST_STRING = 4096
"""Characters of a control string, e.g. a title, that are left out; a longer one shows as text."""
_LONGEST_PARAMETERS = 64

_KEPT = rf"\[[0-9;:]{{0,{_LONGEST_PARAMETERS}}}m|\[[0-2]?K"
"""Behind an escape character: a colour, or erasing the line that is being written."""
_UP = r"\[(?P<rows>[0-9]{0,4})(?P<up>[AF])"
_STRING = rf"[\]PX^_][^\x07\x1b\x9c\r\n]{{0,{_LONGEST_STRING}}}"
_CSI = rf"\[[0-?]{{0,{_LONGEST_PARAMETERS}}}[ -/]{{0,8}}"

_SEQUENCE = rf"{_UP}|{_STRING}(?:[\x07\x9c]|\x1b\\)|{_CSI}[@-~]|[ -/]{{0,8}}[0-OQ-WYZ\\`-~]"

# A class comes first, because text without any of its characters is then searched fast.
_LEFT_OUT = re.compile(rf"[\x1b{_NEVER}](?:(?<!\x1b)|(?!{_KEPT})(?:{_SEQUENCE})?)")
_UNFINISHED = re.compile(rf"\x1b(?:{_STRING}\x1b?|{_CSI}|[ -/]{{0,8}})?\Z")
_UNTAMED = re.compile(rf"[{_NEVER}\x08\r\x1b]")
_HARMLESS = bytes([*b"\t\n\r\b", *range(0x20, 0x7F)])


def tamed(text: str) -> str:
    """Makes text safe to print: `?` replaces each character that controls a terminal or reorders text.

    Line ends and tabs stay.
    """
    return text if text.isprintable() else _UNTAMED.sub("?", text)


def plain_output(text: str) -> str:
    """Leaves out everything that controls a terminal, but for colours and what moves within the line."""
    return text if text.isprintable() else _LEFT_OUT.sub("", text)


class TerminalFilter:
    """Prepares a program's output for a terminal, as it arrives.

    Colours and what progress bars need stay: carriage returns, backspaces, erasing the line, and moving up
    within the lines of this output. Everything else that controls a terminal or reorders text is left out.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        """A sequence whose end has not arrived."""
        self._row, self._lowest = 0, 0
        """Lines below the first: where the cursor is, and the last one written."""
        self._coloured = False

    def feed(self, data: bytes) -> str:
        """Returns what is to be printed of the next bytes of the output."""
        if not (self._rest or self._decoder.getstate()[0] or data.translate(None, _HARMLESS)):
            text = data.decode("ascii")  # as most output is
            self._descend(text.count("\n"))
            return text
        text = self._rest + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_STRING - 4))
        self._rest = unfinished.group() if unfinished else ""
        return self._filtered(text[: len(text) - len(self._rest)])

    def end(self) -> str:
        """Returns what ends the output: the rest of it, the end of its colours, the cursor's way below it."""
        text = self._filtered(self._rest + self._decoder.decode(b"", final=True))
        text += "\n" * (self._lowest - self._row) + ("\x1b[0m" if self._coloured else "")
        self._decoder.reset()
        self._rest, self._row, self._lowest, self._coloured = "", 0, 0, False
        return text

    def _filtered(self, text: str) -> str:
        counted = 0

        def replacement(match: re.Match[str]) -> str:
            nonlocal counted
            if not match["up"]:
                return ""
            self._descend(text.count("\n", counted, match.start()))
            counted = match.start()
            rows = min(int(match["rows"] or 1), self._row)
            self._row -= rows
            return f"\x1b[{rows}{match['up']}" if rows else ""

        shown = _LEFT_OUT.sub(replacement, text)
        self._descend(text.count("\n", counted))
        self._coloured = self._coloured or "\x1b[" in shown
        return shown

    def _descend(self, lines: int) -> None:
        self._row += lines
        self._lowest = max(self._lowest, self._row)
