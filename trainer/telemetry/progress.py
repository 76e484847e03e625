"""Progress for a person: a live bar on a terminal, plain lines now and then in a log file."""

from __future__ import annotations

import datetime
import sys
import time
from typing import Protocol, TextIO

BAR_SECONDS = 0.25
LINE_SECONDS = 15.0


class Progress(Protocol):
    """What shows progress. Steps are environment steps; success is 0..1 or None."""

    def update(self, step: int, phase: str, rate: float | None, success: float | None) -> None:
        """Shows where the run is; cheap enough to call at every step."""

    def say(self, text: str) -> None:
        """Shows a line that stays."""

    def close(self) -> None:
        """Shows the last state for good."""


def open_progress(total_steps: int, step: int = 0, stream: TextIO | None = None) -> Progress:
    """Returns the bar if the stream (standard output by default) is a terminal, else lines."""
    stream = stream or sys.stdout
    if stream.isatty():
        try:
            return Bar(total_steps, step, stream)
        except ImportError:
            return Lines(total_steps, stream)
    return Lines(total_steps, stream)


class Bar:
    """A live bar: steps, rate, time left, phase and success.

    Raises:
        ImportError: `rich` is not installed.
    """

    def __init__(self, total_steps: int, step: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._live = RichProgress(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}"),
            console=Console(file=stream),
            refresh_per_second=1 / BAR_SECONDS,
        )
        self._total = total_steps
        self._task = self._live.add_task("start", total=total_steps, completed=step, facts="")
        self._next = 0.0
        self._last: tuple[int, str, float | None, float | None] = (step, "start", None, None)
        self._live.start()

    def update(self, step: int, phase: str, rate: float | None, success: float | None) -> None:
        """Shows where the run is, as often as the bar is drawn."""
        self._last = (step, phase, rate, success)
        if time.monotonic() >= self._next:
            self._draw()

    def say(self, text: str) -> None:
        """Prints a line above the bar."""
        self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        step, phase, rate, success = self._last
        self._next = time.monotonic() + BAR_SECONDS
        facts = _facts(step, self._total, rate, success)
        self._live.update(self._task, completed=step, description=phase, facts=facts)


class Lines:
    """One line at the start, at each change of phase, and every `seconds`."""

    def __init__(self, total_steps: int, stream: TextIO, seconds: float = LINE_SECONDS) -> None:
        self._total = total_steps
        self._stream = stream
        self._seconds = seconds
        self._next = 0.0
        self._phase = ""
        self._last: tuple[int, str, float | None, float | None] | None = None

    def update(self, step: int, phase: str, rate: float | None, success: float | None) -> None:
        """Writes a line if it is time for one."""
        self._last = (step, phase, rate, success)
        if phase != self._phase or time.monotonic() >= self._next:
            self._line()

    def say(self, text: str) -> None:
        """Writes the line at once."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Writes the last state, unless it stands there already."""
        if self._last is not None:
            self._line()

    def _line(self) -> None:
        assert self._last is not None
        step, self._phase, rate, success = self._last
        self._last = None
        self._next = time.monotonic() + self._seconds
        share = f"{100 * step / self._total:5.1f}%" if self._total else ""
        self.say(f"[{self._phase}] {share} {_facts(step, self._total, rate, success)}")


def _facts(step: int, total: int, rate: float | None, success: float | None) -> str:
    parts = [f"{step:,}/{total:,} steps"]
    if rate:
        left = datetime.timedelta(seconds=round(max(total - step, 0) / rate))
        parts += [f"{rate:,.0f}/s", f"{left} left"]
    if success is not None:
        parts.append(f"success {success:.0%}")
    return " | ".join(parts)
