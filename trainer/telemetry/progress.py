"""Progress for people: a live bar for each run on a terminal, occasional plain lines in a log file."""

from __future__ import annotations

import datetime
import sys
import time
from functools import partial
from typing import Any, Protocol, TextIO

BAR_SECONDS = 0.25
LINE_SECONDS = 15.0


class Progress(Protocol):
    """What shows progress. Steps are environment steps; success is 0..1 or None.

    Attributes:
        due: monotonic seconds from which on `update` is worth a call; at a new phase it always is.
    """

    due: float

    def update(self, step: int, phase: str, rate: float | None, success: float | None) -> None:
        """Shows where the run is."""

    def say(self, text: str) -> None:
        """Shows a line that stays."""

    def close(self) -> None:
        """Leaves what is shown as it is, for good."""


class Opens(Protocol):
    """Opens the progress of a run."""

    def __call__(self, total_steps: int, step: int = 0) -> Progress:
        """Shows a run with a total and a current number of steps."""


def open_progress(total_steps: int, step: int = 0, stream: TextIO | None = None) -> Progress:
    """Returns the bar if the stream (standard output by default) is a terminal, else lines."""
    return SharedProgress(stream).open(total_steps, step)


class SharedProgress:
    """Shows several runs on one stream, standard output by default: a bar for each, or lines with a label."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._live = _live(self._stream)

    def of(self, label: str) -> Opens:
        """Returns what opens the progress of a run, which carries the label."""
        return partial(self.open, label=f"{label} ")

    def open(self, total_steps: int, step: int = 0, *, label: str = "") -> Progress:
        """Shows a run with a total and a current number of steps."""
        if self._live:
            return ProgressBar(total_steps, step, self._live, label)
        return Lines(total_steps, self._stream, label=label)


class ProgressBar:
    """A live bar: steps, rate, time left, phase and success.

    Args:
        total_steps: of the run.
        step: where it is.
        live: rich's display, which ends with its last bar.
        label: in front of all that is shown.
    """

    def __init__(self, total_steps: int, step: int, live: Any, label: str = "") -> None:
        self._live = live
        self._label = label
        self._total = total_steps
        self._task = live.add_task(f"{label}start", total=total_steps, completed=step, facts="")
        self.due = 0.0
        live.start()

    def update(self, step: int, phase: str, rate: float | None, success: float | None) -> None:
        """Shows where the run is, until the bar is drawn the next time."""
        self.due = time.monotonic() + BAR_SECONDS
        facts = _facts(step, self._total, rate, success)
        self._live.update(self._task, completed=step, description=f"{self._label}{phase}", facts=facts)

    def say(self, text: str) -> None:
        """Prints a line above the bar."""
        self._live.console.print(f"{self._label}{text}", markup=False, highlight=False)

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._live.stop_task(self._task)
        if all(task.stop_time is not None for task in self._live.tasks):
            self._live.stop()


class Lines:
    """A line for each update, which is due every `seconds`; all begin with the label."""

    def __init__(
        self, total_steps: int, stream: TextIO, seconds: float = LINE_SECONDS, *, label: str = ""
    ) -> None:
        self.due = 0.0
        self._label = label
        self._total = total_steps
        self._stream = stream
        self._seconds = seconds

    def update(self, step: int, phase: str, rate: float | None, success: float | None) -> None:
        """Writes a line."""
        self.due = time.monotonic() + self._seconds
        share = f"{100 * step / self._total:5.1f}%" if self._total else ""
        self.say(f"[{phase}] {share} {_facts(step, self._total, rate, success)}")

    def say(self, text: str) -> None:
        """Writes the line at once."""
        self._stream.write(f"{self._label}{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Does nothing: all lines are written."""


def _live(stream: TextIO) -> Any:
    """Returns rich's display if the stream is a terminal and rich is installed, else None."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress
    except ImportError:
        return None
    return RichProgress(
        TextColumn("{task.description:<8}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[facts]}"),
        console=Console(file=stream),
        refresh_per_second=1 / BAR_SECONDS,
    )


def _facts(step: int, total: int, rate: float | None, success: float | None) -> str:
    parts = [f"{step:,}/{total:,} steps"]
    if rate:
        left = datetime.timedelta(seconds=round(max(total - step, 0) / rate))
        parts += [f"{rate:,.0f}/s", f"{left} left"]
    if success is not None:
        parts.append(f"success {success:.0%}")
    return " | ".join(parts)
