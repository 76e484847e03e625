"""What a hostile program, node or person may write to gain the terminal of who looks."""

from __future__ import annotations

import re

CONTROLS = (
    "\x1b]0;title\x07",
    "\x1b]2;title\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[H",
    "\x1b[3J",
    "\x1b[5;5H",
    "\x1b[10D",
    "\x1b[6n",
    "\x1b[c",
    "\x1b[?1049h",
    "\x1b[?1000h",
    "\x1b[>4;1m",
    "\x1b[1;5r",
    "\x1b[20t",
    "\x1b[4h",
    "\x1bc",
    "\x1bD",
    "\x1b(0",
    "\x1b#8",
    "\x1bP+q544e\x1b\\",
    "\x1bPtmux;\x1b\x1b]0;t\x07\x1b\\",
    "\x1b_Gi=1\x1b\\",
    "\x1b^private\x1b\\",
    "\x1bXstart\x1b\\",
    "\x07",
    "\x05",
    "\x0e",
    "\x0b\x0c",
    "\x00",
    "\x7f",
    "\x85",
    "\x9b2J",
    "\x9d0;title\x9c",
    "\x90+q\x9c",
    "\u202eabc\u202c",
    "\u2066abc\u2069",
    "\u200fabc\u200e",
    "\u061c",
    "\u2028",
)
EVERY = "|".join(CONTROLS)

_OURS = re.compile(
    r"\x1b\[[0-9;:]*m"  # colours
    r"|\x1b\[\?25[lh]|\x1b\[[12]?K|\x1b\[1A|\x1b\[\?1049[hl](?=\x1b\[H|\x1b\[\?25h)|(?<=\x1b\[\?1049h)\x1b\[H"
)
"""What clusterkit itself sends: colours; for live displays the cursor, erased lines, the other screen."""
_ANY = re.compile(
    r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f]"
)


def controls_in(shown: str) -> list[str]:
    """What of a terminal's output controls it, but for what clusterkit itself sends."""
    rest = _OURS.sub("", shown)
    return [rest[max(0, match.start() - 20) : match.end() + 20] for match in _ANY.finditer(rest)]
