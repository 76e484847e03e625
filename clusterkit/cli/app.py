"""Assembles the command line. A command is imported only when it runs."""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from clusterkit import __version__
from clusterkit.cli import options
from clusterkit.cli.catalogue import FILES, PANELS, SHORT, children
from clusterkit.cli.edge import run
from clusterkit.cli.guide import Command

LINE, SHELL = "_CLUSTERKIT_LINE", "_CLUSTERKIT_SHELL"
"""Environment variables that a completing shell sets; see `clusterkit.cli.completion`."""

_LEAST, _CLICKS_LEAST = 30, 50
"""The narrowest help, in columns: ours, and that of click."""


class _Commands(Mapping[str, Any]):
    """The commands of a group by the last word of their names, each imported on first access."""

    def __init__(self, group: str) -> None:
        self._names = children(group)

    def __getitem__(self, word: str) -> Any:
        return load(self._names[word])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def load(name: str) -> Any:
    """Imports a command: the function named like it, with underscores between words.

    A group of commands imports nothing.
    """
    if children(name):
        return LazyGroup(
            within=name, name=name, help=SHORT[name], no_args_is_help=True, rich_markup_mode=None
        )
    word = re.sub(r"\W", "_", name)
    module = import_module(f"clusterkit.cli.{FILES.get(name, word)}")
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(name, cls=getattr(module, "COMMAND", Command))(getattr(module, word))
    return typer.main.get_command(one)


class LazyGroup(TyperGroup):
    """Groups commands by purpose, and imports a command only to run it or to show its own help.

    Args:
        within: name of the group; empty for all of clusterkit.
        attributes: as of click's groups.
    """

    def __init__(self, within: str = "", **attributes: Any) -> None:
        super().__init__(**attributes)
        self._within = within
        self.commands = _Commands(within)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names, in the order of the help."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands, one list per group."""
        del ctx
        names = children(self._within)
        widest = max(map(len, names))
        panels = {"Commands": names.values()} if self._within else PANELS
        for panel, listed in panels.items():
            with formatter.section(panel):
                # Pad all lists to the same width, so that their second columns align.
                formatter.write_dl(
                    [(f"{word:{widest}}", SHORT[name]) for word, name in names.items() if name in listed]
                )


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
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback reads it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    config: options.Config = None,
) -> None:
    if config is not None:
        given = {"config": str(config)}  # as if it stood behind the command
        context.default_map = {
            word: {**dict.fromkeys(children(name), given), **given} for word, name in children("").items()
        }


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
        SystemExit: the command sets its own exit code.
        CommandLineError: the command line is invalid.
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
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            sys.exit(error.exit_code)  # type: ignore[attr-defined]
        from clusterkit.cli.usage import usage_error

        raise usage_error(error, sys.argv[1:]) from None
    finally:
        gc.freeze()  # otherwise Python runs several pointless full collections at exit


def main() -> None:
    """Runs the command line when this module is already imported; see `clusterkit.__main__`."""
    run(command)
