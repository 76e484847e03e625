"""Old names of commands and options. They work for one version more, and each use prints one line."""

from __future__ import annotations

import typer

COMMANDS = {
    "images": "storage list",
    "gc": "storage prune",
    "clean": "storage clean",
    "drill": "rehearse",
    "watch": "curves",
}
"""Old name of a command -> its name."""

OPTIONS = {
    "build": {"--on": "--cluster"},
    "deploy": {"--plan": "--dry-run"},
    "init": {"--diff": "--dry-run"},
    "tune": {"--wait": ""},
    "logs": {"--tail": "--lines"},
    "evaluate": {"-n": "--episodes"},
    "play": {"-n": "--episodes"},
    "storage clean": {"--all": "--last-checkpoint"},
}
"""Command -> old name of an option -> its name; empty for an option that had no effect."""


def renamed_command(args: list[str]) -> list[str]:
    """Replaces the old name of a command at the start of the arguments."""
    if not args or args[0] not in COMMANDS:
        return args
    new = COMMANDS[args[0]]
    _note(args[0], new)
    return [*new.split(), *args[1:]]


def renamed_options(command: str, args: list[str]) -> list[str]:
    """Replaces the old names of a command's options, except behind `--`."""
    names = OPTIONS.get(command)
    if not names:
        return args
    end = args.index("--") if "--" in args else len(args)
    return [word for arg in args[:end] for word in _renamed(command, arg, names)] + args[end:]


def _renamed(command: str, arg: str, names: dict[str, str]) -> list[str]:
    for old, new in names.items():
        rest = arg.removeprefix(old)
        if rest == arg or (old.startswith("--") and rest and not rest.startswith("=")):
            continue
        _note(f"{command} {old}", f"{command} {new}".rstrip())
        if not new:
            return []
        if old.startswith("--") or not rest:
            return [f"{new}{rest}"]
        return [new, rest]  # a value attached to a short option
    return [arg]


def _note(old: str, new: str) -> None:
    typer.echo(
        f"note: `clusterkit {old}` is now `clusterkit {new}`; the old name goes with the next version.",
        err=True,
    )
