"""The two consoles: results go to standard output, everything else, progress too, to standard error.

`out` and `err` are module attributes by PEP 562, so a console is created, and rich imported, only when it is
first used. `say` and `note` print plain lines without them.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TextIO

from clusterkit.errors import ClusterkitError
from clusterkit.terminal import tamed
from clusterkit.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from clusterkit.config.models import Profile
    from clusterkit.config.settings import Settings
    from clusterkit.runs.status import StatusRow
    from clusterkit.transport.base import ProgressCallback, TransferProgress

    out: Console
    err: Console


LINE_SECONDS = 15.0
"""Seconds between two lines about an unchanged stage."""
_PIPED_WIDTH = 220
"""Columns without a terminal: wide enough that no table is truncated for a program that reads it."""

_printed: list[bool] = []
"""Not empty once a JSON document was printed."""
_WORD = re.compile(r"(?:`[^`]*`|\S)+")
"""A word, or a command in backquotes with what adjoins it."""
_BOLD, _DIM = 1, 2
"""Styles, as terminals number them."""


def __getattr__(name: str) -> Console:
    if name not in ("out", "err"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _console(stderr=name == "err")
    return made


def _console(*, stderr: bool) -> Console:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from clusterkit.cli.streams import unfiltered

    class TamedConsole(Console):
        """Applies `tamed` to all text: content from run directories and clusters is untrusted.

        The controls that rich adds, e.g. those of a live screen, reach the terminal.
        """

        @property
        def file(self) -> IO[str]:
            """The stream that is written to."""
            return unfiltered(super().file)

        @file.setter
        def file(self, new: IO[str]) -> None:
            self._file = new

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                if style and style.link:  # markup that rich reads in spite of `markup=False`
                    style = style.update_link(None)
                yield Segment(text if control else tamed(text), style, control)

    width = _width(sys.stderr if stderr else sys.stdout)
    return TamedConsole(stderr=stderr, markup=False, highlight=False, emoji=False, width=width)


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH


def say(line: str, *, head: str = "") -> None:
    """Prints a line of results without markup; `head` stands before it, bold on a terminal."""
    sys.stdout.write(f"{_styled(sys.stdout, head, _BOLD)}{tamed(line)}\n")
    sys.stdout.flush()  # it keeps its place among the lines on standard error


def _styled(stream: TextIO, text: str, style: int) -> str:
    """Makes text safe to print, and gives it a style on a terminal that has any."""
    plain = not stream.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return tamed(text) if plain or not text else f"\x1b[{style}m{tamed(text)}\x1b[0m"


def print_document(document: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Prints a JSON document on standard output; without indent it takes one line."""
    import json  # deferred: completion and help print none

    _printed.append(True)
    sys.stdout.write(json.dumps(document, indent=indent) + "\n")
    sys.stdout.flush()  # a reader of a live command gets each document at once


def print_fault(fault: ClusterkitError) -> None:
    """Prints an error as the JSON document that a command could not print; none after another document."""
    if not _printed:
        print_document({"error": fault.cause, "next": fault.hint, "code": fault.exit_code})


def wrapped(text: str, stream: TextIO, *, indent: int = 0) -> str:
    """Wraps text at words on a terminal, but breaks no command in backquotes, nor one after `next:`.

    Args:
        text: of any number of lines.
        stream: where it will be written.
        indent: columns before its first line, and of the spaces before each further one.
    """
    width = _columns(stream)
    if width is None:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        fits = indent + len(line) <= width or line.startswith(("next:", " "))
        first, *rest = [line] if fits else _WORD.findall(line)
        lines.append(first)
        for word in rest:
            if indent + len(lines[-1]) + 1 + len(word) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
    return f"\n{' ' * indent}".join(lines)


def _columns(stream: TextIO) -> int | None:
    """Returns the width of a terminal; None for any other stream."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def show_error(error: ClusterkitError) -> None:
    """Prints one line for the cause and one for the next step."""
    from clusterkit.cli.ui.console import err

    for head, style, text in (("error: ", "bold red", error.cause), ("next:  ", "bold", error.hint)):
        if text:
            err.print(head, style=style, end="")
            err.print(wrapped(text, sys.stderr, indent=len(head)), soft_wrap=True)


def note(message: str) -> None:
    """Prints an informational line on standard error."""
    sys.stderr.write(f"{_styled(sys.stderr, wrapped(message, sys.stderr), _DIM)}\n")


def note_unread(settings: Settings, profiles: Iterable[Profile]) -> None:
    """Says what the user's files set in these profiles and the user's own program does not get."""
    for profile in {profile.name: profile for profile in profiles}.values():
        if keys := settings.unread(profile):
            words = ", ".join(keys)
            note(f"{profile.name}: only the bundled trainer reads {words}; your program gets nothing of it")


def warn(lead: str, text: str = "", *, colour: str = "yellow") -> None:
    """Prints one line on standard error: a coloured lead, and text that follows it without a space."""
    from rich.text import Text

    from clusterkit.cli.ui.console import err

    whole = wrapped(lead + text, sys.stderr)
    start = min(len(lead), len(whole))
    err.print(Text.assemble((whole[:start], colour), whole[start:]), soft_wrap=True)


def format_count(count: float) -> str:
    """Formats a count of steps, e.g. "2M", "256k", "1.25M"."""
    for factor, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= factor:
            return f"{count / factor:.2f}".rstrip("0").rstrip(".") + unit
    return f"{count:.0f}"


def printable(name: str) -> str:
    r"""Escapes control characters and invalid Unicode, so that any file name fits on one line.

    >>> printable("new\nline")
    'new\\nline'
    """
    return name if name.isprintable() else name.encode("unicode_escape", "surrogatepass").decode("ascii")


def warn_of_trusted(trusted: Sequence[str]) -> None:
    """Prints one line, or nothing without such users."""
    if trusted:
        more = f" (and {len(trusted) - 1} more)" if len(trusted) > 1 else ""
        warn("others could run code as you there", f", whom the settings trust: {trusted[0]}{more}")


def warn_of_silence(silent: Mapping[str, str]) -> None:
    """Prints the clusters that did not answer, each with the cause."""
    for cluster, cause in silent.items():
        warn(f"{cluster} does not answer:", f" {cause}")


@contextmanager
def transfer_bar(label: str, total: int | None) -> Iterator[ProgressCallback]:
    """Shows a transfer's progress as a bar on standard error; draws nothing without a terminal.

    Args:
        label: what is transferred.
        total: bytes; None uses the reports' own total, or shows an indeterminate bar.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from clusterkit.cli.ui.console import err

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[rate]}"),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=total, rate="")

        def report(progress: TransferProgress) -> None:
            whole = total or progress.total_bytes
            bar.update(task, completed=progress.done_bytes, total=whole, rate=_rate(progress, whole))

        yield report


def _rate(progress: TransferProgress, total: int | None) -> str:
    """Formats the transport's own rate: rich discards its samples whenever an estimated total changes."""
    if progress.bytes_per_second <= 0:
        return ""
    rate = f"{format_bytes(progress.bytes_per_second)}/s"
    if total is None or total <= progress.done_bytes:
        return rate
    return f"{rate}  {format_seconds((total - progress.done_bytes) / progress.bytes_per_second)} left"


def stage_lines(
    words: Callable[[StatusRow], str],
    stage: Callable[[StatusRow], object],
    *,
    seconds: float = LINE_SECONDS,
) -> Callable[[StatusRow], None]:
    """Returns a callback that prints a line about a run when its stage changes, and periodically.

    Args:
        words: returns the line for the run's status.
        stage: returns what is compared with the previous status.
        seconds: how long after the last line an unchanged stage is printed again.
    """
    last: object = None
    printed = 0.0

    def show(row: StatusRow) -> None:
        nonlocal last, printed
        if stage(row) != last or time.monotonic() - printed >= seconds:
            last, printed = stage(row), time.monotonic()
            note(words(row))

    return show
