"""Assembles the command line. A command is imported only when it runs; see `clusterkit.cli.guide`."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from contextlib import suppress
from typing import Annotated

import typer

from clusterkit import __version__
from clusterkit.cli.edge import run
from clusterkit.cli.guide import LazyGroup

LINE, SHELL = "_CLUSTERKIT_LINE", "_CLUSTERKIT_SHELL"
"""Environment variables that a completing shell sets; see `clusterkit.cli.completion`."""

_REMOVED = {
    "--compare": "`clusterkit plan` for each profile or cluster",
    "command 'work'": "`clusterkit ssh-config`, then rsync, sftp or an editor",
}
"""What a usage error names -> what to use instead of it."""

_LEAST, _CLICKS_LEAST = 30, 50
"""The narrowest help, in columns: ours, and that of click."""

app = typer.Typer(
    name="clusterkit",
    cls=LazyGroup,
    help="Take a reinforcement-learning run to a Slurm cluster and bring its results home.",
    no_args_is_help=True,
    add_completion=False,  # the `completion` command also completes runs and profiles
    rich_markup_mode=None,  # plain help: rich panels would double the startup time
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
    """Answers a completing shell. The caller suppresses errors: none may appear while the user types."""
    from clusterkit.cli import completion

    line, shell = os.environ[LINE], os.environ.get(SHELL, "")
    typer.echo(completion.answer(typer.main.get_command(app), line, shell))


def _help_width() -> int | None:
    """Returns the width of help on a terminal narrower than click allows for; None on any other."""
    columns = shutil.get_terminal_size().columns
    return max(_LEAST, columns - 2) if columns < _CLICKS_LEAST + 2 else None


def command() -> None:
    """Runs the command line. `clusterkit.cli.edge` reports whatever it raises.

    Raises:
        SystemExit: the command line is invalid, or the command sets its own exit code.
    """
    if LINE in os.environ:
        with suppress(Exception):
            _complete()
        return
    try:
        # Not `app()`, which has its own exit codes for Ctrl-C, Ctrl-D and a broken pipe.
        group = typer.main.get_command(app)
        with group.make_context("clusterkit", sys.argv[1:], terminal_width=_help_width()) as context:
            group.invoke(context)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        if not hasattr(error, "format_message"):  # Typer's usage errors have this method
            raise
        error.show()  # type: ignore[attr-defined]
        for words, instead in _REMOVED.items():
            if words in error.format_message():
                sys.stderr.write(f"next:  {instead}\n")
        sys.exit(error.exit_code)  # type: ignore[attr-defined]
    finally:
        gc.freeze()  # otherwise Python runs several pointless full collections at exit


def main() -> None:
    """Runs the command line when this module is already imported; see `clusterkit.__main__`."""
    run(command)
