"""The command line, put together. A command is imported when it runs; see `clusterkit.cli.guide`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from clusterkit import __version__
from clusterkit.cli.edge import run
from clusterkit.cli.guide import LazyGroup

LINE, SHELL = "_CLUSTERKIT_LINE", "_CLUSTERKIT_SHELL"
"""Environment variables of a shell that completes a line; see `clusterkit.cli.completion`."""

app = typer.Typer(
    name="clusterkit",
    cls=LazyGroup,
    help="Take a reinforcement-learning run to a Slurm cluster and bring its results home.",
    no_args_is_help=True,
    add_completion=False,  # `completion` knows runs and profiles, too
    rich_markup_mode=None,  # plain help: the panels cost as much time as all the rest of the start
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clusterkit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _complete() -> None:
    """Answer a shell that completes a line; a fault of ours must not be seen in the middle of typing."""
    from clusterkit.cli import completion

    line, shell = os.environ[LINE], os.environ.get(SHELL, "")
    typer.echo(completion.answer(typer.main.get_command(app), line, shell))


def command() -> None:
    """Run what the command line says. Whatever it raises is told at the edge; see `clusterkit.cli.edge`.

    Raises:
        SystemExit: the command line is wrong, or the command ends with an exit code of its own.
    """
    if LINE in os.environ:
        with suppress(Exception):
            _complete()
        return
    try:
        # Not `app()`: it has exit codes of its own for Ctrl-C, Ctrl-D and a reader that has gone.
        group = typer.main.get_command(app)
        with group.make_context("clusterkit", sys.argv[1:]) as context:
            group.invoke(context)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        if not hasattr(error, "format_message"):  # by which Typer's faults of a command line are known
            raise
        error.show()  # type: ignore[attr-defined]
        sys.exit(error.exit_code)  # type: ignore[attr-defined]
    finally:
        gc.freeze()  # else the end of Python searches every object for garbage, several times, for nothing


def main() -> None:
    """Run the command line where all of this is imported already; see `clusterkit.__main__`."""
    run(command)
