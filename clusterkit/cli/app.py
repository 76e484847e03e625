"""The command line, put together.

Commands import what they need when they run, so that `clusterkit --help` stays as quick as Typer itself.
"""

from __future__ import annotations

import gc
import os
import sys
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
from clusterkit.cli.guide import Command, Grouped
from clusterkit.errors import ClusterkitError

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


def main() -> None:
    """Console entry point. Foreseeable faults end in one line and a documented exit code."""
    if completion.LINE in os.environ:
        _complete()
        return
    _leave_out_the_others(sys.argv[1:])
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
    finally:
        gc.freeze()  # else the end of Python searches every object for garbage, several times, for nothing
