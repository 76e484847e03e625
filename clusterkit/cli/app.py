"""The command line, put together.

Commands import what they need when they run, so that `clusterkit --help` stays as quick as Typer itself.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from clusterkit import __version__
from clusterkit.cli import build, config, demo, deploy, images, login, results, runs, submit, why
from clusterkit.errors import ClusterkitError

app = typer.Typer(
    name="clusterkit",
    help="Take a reinforcement-learning run to a Slurm cluster and bring its results home.",
    no_args_is_help=True,
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


for room in (deploy, submit, runs, why, results, images, login, build, config, demo):
    room.register(app)


def main() -> None:
    """Console entry point. Foreseeable faults end in one line and a documented exit code."""
    try:
        app()
    except ClusterkitError as error:
        from clusterkit.ui.console import show_error

        show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output (less, head) has gone: not an error, and nobody is left to tell.
        sys.stderr.close()
        sys.exit(141)
