"""Probes: questions to a machine. A probe is a shell fragment and the reader of its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from clusterkit.probes.framing import FUNCTIONS, MARK

if TYPE_CHECKING:
    from clusterkit.transport.base import Transport

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True)
class Probe(Generic[T_co]):
    """A named question.

    Its fragment is POSIX sh with the functions of `clusterkit.probes.framing`. It runs in a subshell, so that
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
