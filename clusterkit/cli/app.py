"""The command line, put together.

Commands import what they need when they run, so that `clusterkit --help` stays as quick as Typer itself.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import Annotated

import typer
from typer.models import CommandInfo

from clusterkit import __version__
from clusterkit.cli import (
    build,
    cancel,
    clean,
    completion,
    config,
    demo,
    deploy,
    doctor,
    drill,
    images,
    init,
    inside,
    login,
    logs,
    model,
    plan,
    results,
    resume,
    share,
    status,
    submit,
    tune,
    watch,
    why,
)
from clusterkit.cli.edge import run
from clusterkit.cli.guide import Command, Grouped

app = typer.Typer(
    name="clusterkit",
    cls=Grouped,
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


_COMMANDS = (
    init,
    deploy,
    plan,
    submit,
    status,
    why,
    logs,
    watch,
    inside,
    cancel,
    resume,
    doctor,
    drill,
    tune,
    results,
    model,
    share,
    clean,
    images,
    login,
    build,
    config,
    completion,
    demo,
)
for room in _COMMANDS:
    room.register(app)


def _name(command: CommandInfo) -> str:
    return command.name or getattr(command.callback, "__name__", "").replace("_", "-")


for each in app.registered_commands:
    each.cls = each.cls if each.cls and issubclass(each.cls, Command) else Command


def _leave_out_the_others(words: list[str]) -> None:
    """Typer takes the options of every command apart; only those of the one that will run are needed."""
    asked = next((word for word in words if not word.startswith("-")), "")
    chosen = [one for one in app.registered_commands if asked == _name(one)]
    if chosen:
        app.registered_commands[:] = chosen


def _complete() -> None:
    """Answer a shell that completes a line; a fault of ours must not be seen in the middle of typing."""
    line = os.environ[completion.LINE]
    words = completion.words_of(line)[1:]
    if len(words) > 1:
        _leave_out_the_others(words[:-1])
    typer.echo(completion.answer(typer.main.get_command(app), line, os.environ.get(completion.SHELL, "")))


def command() -> None:
    """Run what the command line says. Whatever it raises is told at the edge; see `clusterkit.cli.edge`.

    Raises:
        SystemExit: the command line is wrong, or the command ends with an exit code of its own.
    """
    if completion.LINE in os.environ:
        with suppress(Exception):
            _complete()
        return
    words = sys.argv[1:]
    _leave_out_the_others(words)
    try:
        # Not `app()`: it has exit codes of its own for Ctrl-C, Ctrl-D and a reader that has gone.
        group = typer.main.get_command(app)
        with group.make_context("clusterkit", words) as context:
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
