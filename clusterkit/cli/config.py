"""`clusterkit config`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from clusterkit.cli import options
from clusterkit.cli.ui.console import note, out, print_document, say
from clusterkit.config.layers import COMMAND_LINE, display_path
from clusterkit.config.lines import join_key, toml_value
from clusterkit.config.permission import printable
from clusterkit.config.settings import Setting, Settings
from clusterkit.errors import ConfigError
from clusterkit.project import load
from clusterkit.resources import DOCS

_ALLOW = "allow"
"""In place of a key; no setting has this name."""


def config(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="Only the settings below this key, e.g. profiles.a40-2m. `allow` instead of a key lets this "
            "project start what it names for this machine, while it stays the same.",
        ),
    ] = "",
    show_origin: Annotated[
        bool, typer.Option("--show-origin", help="Show where each value was set.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Include the built-in profiles that you did not change.")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="With `allow`: take back what was allowed.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print what editors can know of settings files, as JSON Schema.")
    ] = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Print the resolved settings as TOML.

    Examples:
      # the settings in force
      clusterkit config
      # also where each value was set
      clusterkit config --show-origin
      # one part of them
      clusterkit config profiles.a40-2m
      # let this project start what it names for this machine
      clusterkit config allow

    See also: clusterkit profiles, configuration.md, security.md
    """
    if schema:
        say((DOCS / "clusterkit.schema.json").read_text(encoding="utf-8").rstrip())
        return
    settings = load(config)
    if key == _ALLOW or revoke:
        if key != _ALLOW or show_origin or everything:
            raise ConfigError("--revoke and `allow` go together, without options that print settings")
        _permit(settings, revoke=revoke, as_json=as_json)
        return
    values = settings.values(key)
    hidden: set[str] = set()
    if not key and not everything:
        shown = _own_profiles(settings)
        hidden = {value.key[1] for value in values if value.key[0] == "profiles"} - shown
        values = [value for value in values if value.key[0] != "profiles" or value.key[1] in shown]
    if as_json:
        print_json(settings, values, show_origin=show_origin)
        return
    if not key:
        _print(Text(f"# {' < '.join(('built-in', *map(display_path, settings.files)))}", style="dim"))
    for number, line in enumerate(_toml(values, show_origin=show_origin)):
        if line.plain.startswith("[") and (number or not key):
            _print(Text())
        _print(line)
    if hidden:
        _print(Text(f"\n# {len(hidden)} built-in profiles are not shown: clusterkit profiles", style="dim"))


def _permit(settings: Settings, *, revoke: bool, as_json: bool) -> None:
    """Allows what the project names for this machine, or takes that back, and says what that was."""
    permission = settings.permission
    revoked = permission.revoke() if revoke else False
    programs = [] if revoke else permission.allow()
    if as_json:
        listed = [
            {
                "key": join_key(program.key),
                "words": program.words,
                "origin": str(program.origin),
                "files": [str(file) for file in program.files],
            }
            for program in programs
        ]
        document = {"project": str(permission.file), "allowed": listed, "revoked": revoked}
        print_document({"schema": 1, **document})
        return
    for program in programs:
        _print(Text(str(program)))
        for file in program.files:
            _print(Text(f"  {printable(display_path(file))}", style="dim"))
    if revoke:
        note(f"{permission.file}: {'no longer allowed' if revoked else 'nothing was allowed'}")
    elif programs:
        note(f"{permission.file}: these are allowed, until one of them changes")
    else:
        note(f"{permission.file}: names nothing that needs to be allowed")


def print_json(settings: Settings, values: Sequence[Setting], *, show_origin: bool) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    tree: dict[str, Any] = {}
    for value in values:
        table = tree
        for name in value.key[:-1]:
            table = table.setdefault(name, {})
        table[value.key[-1]] = value.value
    origins = {join_key(value.key): str(value.origin) for value in values} if show_origin else None
    files = [str(file) for file in settings.files]
    print_document({"schema": 1, "files": files, "settings": tree, "origins": origins})


def _own_profiles(settings: Settings) -> set[str]:
    """Returns the default profile and those named by the user's own files or the command line."""
    own = {settings.project.default_profile}
    for layer in settings.layers:
        if layer.file in settings.files or layer.label == COMMAND_LINE:
            own |= set(layer.data.get("profiles", {}))
    return own


def _toml(values: Sequence[Setting], *, show_origin: bool) -> Iterable[Text]:
    """Yields TOML lines with one table per cluster and profile; deeper keys are dotted."""
    depth = {"project": 1, "secrets": 1, "clusters": 2, "profiles": 2, "notify": 1}
    lines = [join_key(v.key[depth[v.key[0]] :]) + " = " + toml_value(v.value) for v in values]
    width = min(max(map(len, lines)), 60)
    table = None
    for value, line in zip(values, lines, strict=True):
        here = value.key[: depth[value.key[0]]]
        if here != table:
            table = here
            yield Text(f"[{join_key(here)}]", style="bold")
        text = Text(line)
        if show_origin:
            text.append(" " * max(0, width - len(line)) + f"  # {value.origin}", style="dim")
        yield text


def _print(text: Text) -> None:
    out.print(text, soft_wrap=True)
