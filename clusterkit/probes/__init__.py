"""Questions asked on a machine. A probe is a shell fragment and the reader of what it prints."""

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

    Its fragment is POSIX sh with the functions of `clusterkit.probes.framing`. It runs in a shell of its own,
    after which nothing of it is left: no variable, no folder, no trap.
    """

    name: str
    script: str
    """Empty where there is nothing to ask; then the reader gets an empty text."""
    read: Callable[[str], T_co]
    """Makes the answer of what the fragment printed, or of what came instead; may raise a ClusterkitError."""


@dataclass(frozen=True)
class Answers:
    """What came back from one round trip. Each probe is read when it is asked for, and fails alone."""

    text: str

    @cached_property
    def _lines(self) -> str:
        """The text with the line ends of one system."""
        return self.text.replace("\r\n", "\n") if "\r" in self.text else self.text

    def of(self, probe: Probe[T]) -> T:
        """The answer to one of the probes.

        Raises:
            ClusterkitError: the probe's own reader found no answer.
        """
        before, begun, rest = self._lines.partition(f"{MARK} probe {probe.name}\n")
        said = rest.partition(f"\n{MARK} done {probe.name}\n")[0] if begun else before
        return probe.read(said.partition(f"{MARK} probe ")[0] if probe.script else "")


def script(probes: Sequence[Probe[object]]) -> str:
    """The probes as one POSIX sh script for standard input; it fails on nothing."""
    asked = [probe for probe in probes if probe.script]
    each = (
        f"printf '%s probe %s\\n' \"$ck_mark\" '{probe.name}'\n(\n{probe.script}\n)\n"
        f"printf '\\n%s done %s\\n' \"$ck_mark\" '{probe.name}'"
        for probe in asked
    )
    return "\n".join([FUNCTIONS, *each, ":", ""]) if asked else ""


def ask(
    transport: Transport, *probes: Probe[object], timeout: float | None = 120.0, check: bool = True
) -> Answers:
    """Ask several questions in one round trip; none where no probe has anything to ask.

    Args:
        transport: the connection to the machine.
        probes: with different names.
        timeout: of all of it, in seconds.
        check: raise where the shell failed.

    Raises:
        TransportError: the connection failed, or with `check` the shell.
    """
    text = script(probes)
    if not text:
        return Answers("")
    data = text.encode("utf-8", "surrogateescape")
    return Answers(transport.run(["sh"], stdin=data, timeout=timeout, check=check).text)
