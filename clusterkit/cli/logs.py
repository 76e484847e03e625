"""`clusterkit logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, JsonOption, RunOrGroupArgument, load, open_ledger
from clusterkit.cli.streams import LogPrinter
from clusterkit.cli.ui.console import note, print_document
from clusterkit.errors import ConfigError, RunError

_LINES, _LEAST = 50, 5
"""Lines that are printed, of all runs together and at least of each."""


def logs(
    name: RunOrGroupArgument = "last",
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
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Print or follow the log of a run.

    With --follow, it continues with the next attempt when the run is requeued; Ctrl-C exits.
    A terminal gets only the colours and progress bars of the log, a file or a pipe gets every byte.
    """
    from clusterkit.commands.logs import logs as command
    from clusterkit.runs.log_source import Wanted

    if raw and as_json:
        raise ConfigError("--raw and --json exclude each other", hint="leave one of them out")
    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = [ledger.find_one(name)] if follow else ledger.find([name])
    if lines is None and not everything:
        lines = max(_LEAST, _LINES // len(runs))
    wanted = Wanted(
        lines=lines, attempt=attempt, everything=everything, stderr=stderr, follow=follow, rank=rank
    )
    if as_json:
        from clusterkit.cli.ui.logs_json import bounded, lines_of

        if follow:
            for line, _ in lines_of(command(settings, runs[0], wanted, say=note)):
                print_document({"schema": 1, "run_id": runs[0].run_id, "line": line}, indent=None)
            return
        texts = {run.run_id: bounded(command(settings, run, wanted, say=note)) for run in runs}
        found = [{"run_id": name, "lines": text.lines, "cut": text.cut} for name, text in texts.items()]
        print_document({"schema": 1, "runs": found})
        return
    printer = LogPrinter(raw=raw)

    def say(line: str) -> None:
        printer.end()
        note(line)

    for number, run in enumerate(runs):
        if len(runs) > 1:  # as `tail` does with several files
            printer.print((f"\n==> {run.run_id} <==\n" if number else f"==> {run.run_id} <==\n").encode())
            printer.end()
        try:
            for chunk in command(settings, run, wanted, say=say):
                printer.print(chunk)
        except RunError as error:
            if len(runs) == 1:
                raise
            say(error.cause)
        finally:
            printer.end()
