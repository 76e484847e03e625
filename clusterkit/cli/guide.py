"""Formats the help: commands in groups, each command's help ending with examples.

The help is plain text, because rich panels would double the startup time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from clusterkit.cli.examples import GUIDES, PANELS
from clusterkit.resources import page

_TYPE = re.compile(r"^(  (?:-- )?[A-Z]\S*)( <\S+>)", re.MULTILINE)
"""An argument's metavar and Typer's name for its type."""


def epilog(command: str) -> str:
    """Returns the end of a command's help; click does not rewrap lines that follow a backspace character."""
    guide = GUIDES.get(command)
    if guide is None:
        return ""
    lines = [f"clusterkit {command} {arguments}".rstrip() for arguments, _ in guide.examples]
    width = max(map(len, lines))
    examples = [
        f"  {line:{width}}  # {what}" if what else f"  {line}"
        for line, (_, what) in zip(lines, guide.examples, strict=True)
    ]
    if any(len(line) > 76 for line in examples):  # put each description on its own line, above the example
        examples = [
            text
            for line, (_, what) in zip(lines, guide.examples, strict=True)
            for text in ([f"  # {what}"] if what else []) + [f"  {line}"]
        ]
    commands = ", ".join(f"clusterkit {one}" for one in guide.see if one in GUIDES)
    pages = [f"  {page(one)}" for one in guide.see if one not in GUIDES]
    return "\n".join(["\b", "Examples:", *examples, "", "\b", f"See also: {commands}".rstrip(), *pages])


class Command(TyperCommand):
    """A command whose help ends with its examples and omits Python types."""

    def get_help(self, ctx: Any) -> str:
        """Returns the help as printed."""
        self.epilog = epilog(self.name or "")
        return _TYPE.sub(lambda found: found[1] + " " * len(found[2]), super().get_help(ctx))


class _Commands(Mapping[str, Any]):
    """All commands by name, each imported on first access."""

    def __getitem__(self, name: str) -> Any:
        if name not in GUIDES:
            raise KeyError(name)
        return load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(GUIDES)

    def __len__(self) -> int:
        return len(GUIDES)


@cache
def load(name: str) -> Any:
    """Imports a command: the function named like its module, with underscores for dashes."""
    word = name.replace("-", "_")
    module = import_module(f"clusterkit.cli.{word}")
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(name, cls=getattr(module, "COMMAND", Command))(getattr(module, word))
    return typer.main.get_command(one)


class LazyGroup(TyperGroup):
    """Groups commands by purpose, and imports a command only to run it or to show its own help."""

    def __init__(self, **attributes: Any) -> None:
        """Takes the same attributes as click's groups."""
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names, in the order of the help."""
        del ctx
        return list(GUIDES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands, one list per group."""
        del ctx
        widest = max(map(len, GUIDES))
        for panel in PANELS:
            with formatter.section(panel):
                # Pad all lists to the same width, so that their second columns align.
                formatter.write_dl(
                    [
                        (f"{name:{widest}}", guide.short)
                        for name, guide in GUIDES.items()
                        if guide.panel == panel
                    ]
                )
