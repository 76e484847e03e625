"""A script's answer in parts: the shell functions that print it, and the parser. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MARK = "\x1eclusterkit-doctor"
"""Begins our own lines. The byte is removed from everything else, so nothing there can imitate them."""
SECONDS = 20
"""For each question; squeue itself tries for 29 s when the controller is away."""
TIME_UP = 124
"""Exit status of timeout(1)."""
_BYTES = 60_000

# ck_part NAME COMMAND...: what a command says, framed, and its exit status; ck_own the same without a time
# limit, for functions too. They fail on nothing. POSIX sh.
FUNCTIONS = rf"""
LC_ALL=C SLURM_TIME_FORMAT=standard SLURM_BITSTR_LEN=0; export LC_ALL SLURM_TIME_FORMAT SLURM_BITSTR_LEN
ck_mark='{MARK}'
ck_limit=
command -v timeout >/dev/null 2>&1 && ck_limit='timeout {SECONDS}'
ck_part() {{
  ck_name=$1
  shift
  ck_said=$($ck_limit "$@" 2>&1 </dev/null)
  ck_status=$?
  printf '\n%s part %s\n' "$ck_mark" "$ck_name"
  printf '%s' "$ck_said" | tr -d '\036' | tail -c {_BYTES}
  printf '\n%s status %s\n' "$ck_mark" "$ck_status"
}}
ck_own() {{
  ck_before=$ck_limit ck_limit=
  ck_part "$@"
  ck_limit=$ck_before
}}
"""
END = 'printf "\\n%s end\\n" "$ck_mark"\n'


@dataclass(frozen=True)
class Part:
    """What one command said."""

    text: str = ""
    """Standard output and error, without blanks at the ends."""
    status: int = 0

    @property
    def lines(self) -> list[str]:
        """Its lines that are not blank."""
        return [line.rstrip() for line in self.text.splitlines() if line.strip()]

    @property
    def last(self) -> str:
        """The last of them: there commands say why they failed."""
        if self.status == TIME_UP:
            return f"no answer within {SECONDS} s"
        return self.lines[-1].strip() if self.lines else "no reason given"

    def value(self, key: str) -> str:
        """The rest of the first line that begins with a word; empty without one."""
        for line in self.lines:
            first, _, rest = line.partition(" ")
            if first == key:
                return rest.strip()
        return ""


@dataclass(frozen=True)
class Answer:
    """All that came back."""

    parts: Mapping[str, Part]
    whole: bool
    """Whether it came to its end."""

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def __getitem__(self, name: str) -> Part:
        return self.parts.get(name, Part(status=1))


def parse(text: str) -> Answer:
    """The parts of an answer; what stands outside of them is passed over."""
    parts = {}
    for piece in text.split(f"{MARK} part ")[1:]:
        name, _, rest = piece.partition("\n")
        body, found, tail = rest.partition(f"\n{MARK} status ")
        status = re.match(r"\d+", tail)
        parts[name.strip()] = Part(body.strip(), int(status[0]) if found and status else TIME_UP)
    return Answer(parts, f"{MARK} end" in text)
