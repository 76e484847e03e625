"""The help as a person reads it: commands in groups, each with examples at its end.

Plain text: rich panels would cost as much time as all the rest of the start.
"""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

from clusterkit.cli.examples import GUIDES, PANELS
from clusterkit.resources import page

_OTHERS = "More"
_ORDER = {name: place for place, name in enumerate(GUIDES)}
_TYPE = re.compile(r"^(  (?:-- )?[A-Z]\S*)( <\S+>)", re.MULTILINE)
"""An argument's metavar and Typer's word for its type."""


def _place(command: str) -> int:
    return _ORDER.get(command, len(_ORDER))


def epilog(command: str) -> str:
    """The end of a command's help, for click: lines below a backspace character stay as they are."""
    guide = GUIDES.get(command)
    if guide is None:
        return ""
    lines = [f"clusterkit {command} {arguments}".rstrip() for arguments, _ in guide.examples]
    width = max(map(len, lines))
    examples = [
        f"  {line:{width}}  # {what}" if what else f"  {line}"
        for line, (_, what) in zip(lines, guide.examples, strict=True)
    ]
    if any(len(line) > 76 for line in examples):  # a line for each, and what it does above it
        examples = [
            text
            for line, (_, what) in zip(lines, guide.examples, strict=True)
            for text in ([f"  # {what}"] if what else []) + [f"  {line}"]
        ]
    commands = ", ".join(f"clusterkit {one}" for one in guide.see if one in GUIDES)
    pages = [f"  {page(one)}" for one in guide.see if one not in GUIDES]
    return "\n".join(["\b", "Examples:", *examples, "", "\b", f"See also: {commands}".rstrip(), *pages])


class Command(TyperCommand):
    """A command whose help ends with its examples, and names no Python types."""

    def get_help(self, ctx: Any) -> str:
        """The help as it is printed."""
        self.epilog = epilog(self.name or "")
        return _TYPE.sub(lambda found: found[1] + " " * len(found[2]), super().get_help(ctx))


class Grouped(TyperGroup):
    """The commands by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, a list for each group."""
        panels: dict[str, list[tuple[str, Any]]] = {panel: [] for panel in PANELS}
        for name in sorted(self.list_commands(ctx), key=_place):
            guide = GUIDES.get(name)
            command = self.get_command(ctx, name)
            panels.setdefault(guide.panel if guide else _OTHERS, []).append((name, command))
        widest = max(len(name) for commands in panels.values() for name, _ in commands)
        room = formatter.width - 6 - widest
        for panel, commands in panels.items():
            if commands:
                with formatter.section(panel):
                    # Lists of one width: the second column stands where it does in the other lists.
                    formatter.write_dl(
                        [(f"{name:{widest}}", command.get_short_help_str(room)) for name, command in commands]
                    )
