"""Probes: questions to a machine. A probe is a shell fragment and the reader of its output.

What fragments print is framed: framing lines start with a byte that is removed from all other text, so no
banner, log or program can imitate them. A section is a line `begin NAME`, a text, a line `status N`, and
standard error.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from clusterkit.transport.base import Transport

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


MARK = "\x1eclusterkit"
"""The start of framing lines."""
SECONDS = 20
"""Time limit of a command; squeue itself tries for 29 s when the controller is down."""
TIME_UP = 124
"""Exit status of timeout(1)."""
_BYTES = 60_000


# ck_run NAME COMMAND...: a section with the command's output, exit status and standard error. ck_part has
# both streams in one text, of which it keeps the end; $ck_bytes says how much. ck_own is ck_part without a
# time limit, for functions too. ck_begin NAME and ck_end STATUS frame what is printed by other means. None of
# them fails.
FUNCTIONS = rf"""
LC_ALL=C; export LC_ALL
ck_mark='{MARK}'
ck_limit=
command -v timeout >/dev/null 2>&1 && ck_limit='timeout {SECONDS}'
ck_begin() {{ printf '\n%s begin %s\n' "$ck_mark" "$1"; }}
ck_end() {{ printf '\n%s status %s\n' "$ck_mark" "$1"; }}
ck_run() {{
  ck_begin "$1"
  shift
  {{ ck_error=$($ck_limit "$@" 2>&1 1>&3 3>&- </dev/null); ck_status=$?; }} 3>&1
  ck_end "$ck_status"
  printf '%s\n' "$ck_error"
}}
ck_part() {{
  ck_name=$1
  shift
  ck_said=$($ck_limit "$@" 2>&1 </dev/null)
  ck_status=$?
  ck_begin "$ck_name"
  printf '%s' "$ck_said" | tr -d '\036' | tail -c "${{ck_bytes:-{_BYTES}}}"
  ck_end "$ck_status"
}}
ck_own() {{
  ck_before=$ck_limit ck_limit=
  ck_part "$@"
  ck_limit=$ck_before
}}
"""


@dataclass(frozen=True)
class Section:
    """The output of one command."""

    name: str = ""
    text: str = ""
    """Standard output, or both streams."""
    status: int = 1
    error: str = ""
    """Standard error, stripped."""

    @property
    def lines(self) -> list[str]:
        """The non-blank lines of the text."""
        return [line.rstrip() for line in self.text.splitlines() if line.strip()]

    @property
    def last(self) -> str:
        """The last of them, where commands report why they failed."""
        if self.status == TIME_UP:
            return f"no answer within {SECONDS} s"
        return self.lines[-1].strip() if self.lines else "no reason given"

    def value(self, key: str) -> str:
        """Returns the rest of the first line that starts with a word; empty without one."""
        for line in self.lines:
            first, _, rest = line.partition(" ")
            if first == key:
                return rest.strip()
        return ""


def sections(output: str, *, cut: bool = False) -> Iterator[Section]:
    """Yields the complete sections in order; with `cut` also those without a status line, as timed out."""
    opened: tuple[str, str] | None = None
    for head, whole, body in _pieces(output):
        kind, _, rest = head.partition(" ")
        if kind == "status" and whole and opened is not None and re.fullmatch(r"[0-9]{1,9}", rest):
            yield Section(*opened, status=int(rest), error=body.strip())
        elif opened is not None and cut:
            yield Section(*opened, status=TIME_UP)
        opened = (rest, body.removesuffix("\n")) if kind == "begin" and whole else None
    if opened is not None and cut:
        yield Section(*opened, status=TIME_UP)


def marked(output: str, word: str) -> str | None:
    """Returns the rest of the first framing line that starts with a word; None without one."""
    for head, _, _ in _pieces(output):
        kind, _, rest = head.partition(" ")
        if kind == word:
            return rest
    return None


def _pieces(output: str) -> Iterator[tuple[str, bool, str]]:
    """Each framing line, whether it is complete, and the text up to the next one."""
    for chunk in (output.replace("\r\n", "\n") if "\r" in output else output).split(f"{MARK} ")[1:]:
        head, newline, body = chunk.partition("\n")
        yield head, bool(newline), body


@dataclass(frozen=True)
class Probe(Generic[T_co]):
    """A named question.

    Its fragment is POSIX sh with the functions in `FUNCTIONS`. It runs in a subshell, so that
    no variable, working folder or trap of it remains.
    """

    name: str
    script: str
    """Empty if there is nothing to ask; then the reader gets an empty text."""
    read: Callable[[str], T_co]
    """Turns the fragment's output, or whatever came instead, into the answer; may raise a ClusterkitError."""


@dataclass(frozen=True)
class Answers:
    """The answers of one round trip. Each is parsed on request and fails alone."""

    text: str

    @cached_property
    def _lines(self) -> str:
        """The text with normalised line ends."""
        return self.text.replace("\r\n", "\n") if "\r" in self.text else self.text

    def of(self, probe: Probe[T]) -> T:
        """Returns the answer to one probe.

        Raises:
            ClusterkitError: the probe's reader found no answer.
        """
        before, begun, rest = self._lines.partition(f"{MARK} probe {probe.name}\n")
        answer = rest.partition(f"\n{MARK} done {probe.name}\n")[0] if begun else before
        return probe.read(answer.partition(f"{MARK} probe ")[0] if probe.script else "")


def script(probes: Sequence[Probe[object]]) -> str:
    """Returns the probes as one POSIX sh script for standard input, which never fails."""
    asked = [probe for probe in probes if probe.script]
    parts = (
        f"printf '%s probe %s\\n' \"$ck_mark\" '{probe.name}'\n(\n{probe.script}\n)\n"
        f"printf '\\n%s done %s\\n' \"$ck_mark\" '{probe.name}'"
        for probe in asked
    )
    return "\n".join([FUNCTIONS, *parts, ":", ""]) if asked else ""


def ask(
    transport: Transport, *probes: Probe[object], timeout: float | None = 120.0, check: bool = True
) -> Answers:
    """Asks several probes in one round trip; no round trip if all are empty.

    Args:
        transport: the connection to the machine.
        probes: with distinct names.
        timeout: of the round trip, in seconds.
        check: raise if the shell failed.

    Raises:
        TransportError: the connection failed, or with `check` the shell.
    """
    text = script(probes)
    if not text:
        return Answers("")
    data = text.encode("utf-8", "surrogateescape")
    return Answers(transport.run(["sh"], stdin=data, timeout=timeout, check=check).text)


_VARIABLE = re.compile(r"\$(?:USER|HOME)\b|\$\{(?:USER|HOME)\}")


def shell_path(path: str) -> str:
    r"""Returns a configured path as one shell word; the shell expands `~/`, $USER and $HOME.

    >>> shell_path("/share/$USER/my runs")
    '/share/"$USER"\'/my runs\''
    """
    words = []
    if path == "~" or path.startswith("~/"):
        words.append('"$HOME"')
        path = path[1:]
    position = 0
    for match in _VARIABLE.finditer(path):
        if match.start() > position:
            words.append(shlex.quote(path[position : match.start()]))
        words.append(f'"{match.group()}"')
        position = match.end()
    if position < len(path):
        rest = path[position:]
        words.append(shlex.quote(rest))
    return "".join(words)
