"""`clusterkit logs`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.streams import LogPrinter
from clusterkit.cli.ui.console import note, print_document, printable, transfer_bar
from clusterkit.errors import ConfigError
from clusterkit.project import load, open_ledger

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import LedgerRun
    from clusterkit.runs.log_source import Wanted


_LINES, _LEAST = 50, 5
"""Lines that are printed, of all runs together and at least of each that is shown."""


def logs(
    name: options.RunOrGroup = "last",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log through all attempts, until the run ends.")
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", metavar="N", min=0, help="Number of last lines; 50 if left out."),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Number of the attempt; the newest if left out.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All attempts in full, one after the other.")
    ] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only the program's standard error.")] = False,
    rank: Annotated[
        int, typer.Option(metavar="N", min=0, help="Output of another rank of a run on several nodes.")
    ] = 0,
    raw: Annotated[
        bool, typer.Option("--raw", help="At a terminal, too, every byte as the program wrote it.")
    ] = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Print or follow the log of a run.

    With --follow, it continues with the next attempt when the run is requeued; Ctrl-C exits. Of a large
    group, a few runs are shown, running ones first; -n or --all shows all of them.
    A terminal gets only the colours and progress bars of the log, a file or a pipe gets every byte.

    Examples:
      # through requeues, until the run ends
      clusterkit logs last --follow
      # the last 200 lines
      clusterkit logs last -n 200
      # standard error of one attempt
      clusterkit logs last --attempt 1 --stderr

    See also: clusterkit why, clusterkit curves
    """
    from itertools import groupby
    from operator import itemgetter

    from clusterkit.backends.jobs import JobState
    from clusterkit.commands.logs import logs as command
    from clusterkit.runs.log_source import Wanted

    if raw and as_json:
        raise ConfigError("--raw and --json exclude each other", hint="leave one of them out")
    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = [ledger.find_one(name)] if follow else ledger.find([name])
    shown = runs
    if lines is None and not everything:
        most = _LINES // _LEAST
        if not as_json and len(runs) > most:
            shown = sorted(runs, key=lambda run: run.state != JobState.RUNNING)[:most]
        lines = max(_LEAST, _LINES // len(shown))
    wanted = Wanted(
        lines=lines, attempt=attempt, everything=everything, stderr=stderr, follow=follow, rank=rank
    )
    if as_json:
        chunks = command(settings, runs, wanted, bar=transfer_bar, say=note)
        if follow:
            for line, _ in lines_of(data for _, data in chunks):
                print_document({"schema": 1, "run_id": runs[0].run_id, "line": line}, indent=None)
            return
        texts = [(run, bounded(data for _, data in mine)) for run, mine in groupby(chunks, itemgetter(0))]
        logs = [{"run_id": run.run_id, "lines": text.lines, "cut": text.cut} for run, text in texts]
        print_document({"schema": 1, "runs": logs})
        return
    print_logs(settings, shown, wanted, raw=raw)
    if len(shown) < len(runs):
        note(f"{len(shown)} of {len(runs):,} runs shown; -n N shows the last N lines of each")


def print_logs(settings: Settings, runs: Sequence[LedgerRun], wanted: Wanted, *, raw: bool = False) -> None:
    """Prints the logs of runs, with a heading for each of several; follows a single one if that is wanted.

    Args:
        settings: of the project.
        runs: whose logs to print.
        wanted: the part of their logs.
        raw: byte for byte at a terminal, too.

    Raises:
        ConfigError, RunError, TransportError: as `clusterkit.commands.logs.logs`.
    """
    from clusterkit.commands.logs import logs

    printer = LogPrinter(raw=raw)
    printed: LedgerRun | None = None

    def say(line: str) -> None:
        printer.end()
        note(line)

    try:
        for run, data in logs(settings, runs, wanted, bar=transfer_bar, say=say):
            if len(runs) > 1 and run != printed:  # as `tail` does with several files
                printer.end()
                head = f"==> {run.run_id} <==\n"
                printer.print((f"\n{head}" if printed else head).encode())
            printed = run
            printer.print(data)
    finally:
        printer.end()


LINE = 2_000
"""Characters of a line that are printed; the rest is left out."""
WHOLE = 256_000
"""Characters of one run's log that are printed; earlier lines are left out."""


@dataclass(frozen=True)
class LogText:
    """The end of a log."""

    lines: list[str]
    """Without line ends; control characters and invalid Unicode are escaped."""
    cut: bool
    """Whether lines, or ends of lines, are missing because the text was too long."""


def bounded(chunks: Iterable[bytes]) -> LogText:
    """Returns the last lines of a log, as many as fit."""
    kept: list[str] = []
    size, cut = 0, False
    for line, whole in lines_of(chunks):
        kept.append(line)
        size += len(line)
        cut = cut or not whole
        while size > WHOLE:
            size -= len(kept.pop(0))
            cut = True
    return LogText(kept, cut)


def lines_of(chunks: Iterable[bytes]) -> Iterator[tuple[str, bool]]:
    """Yields each line as text, and whether it is whole; a line without an end is the last one."""
    rest = b""
    for chunk in chunks:
        *ended, rest = (rest + chunk).split(b"\n")
        rest = rest[: 4 * LINE + 1]  # a line without an end takes no more memory than that
        yield from map(_line, ended)
    if rest:
        yield _line(rest)


def _line(line: bytes) -> tuple[str, bool]:
    text = line[: 4 * LINE].decode("utf-8", "replace").rstrip("\r")
    return printable(text[:LINE]), len(text) <= LINE and len(line) <= 4 * LINE
