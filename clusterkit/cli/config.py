"""`clusterkit config`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.text import Text

from clusterkit.cli.common import ConfigOption, load
from clusterkit.cli.ui.console import out
from clusterkit.config.layers import COMMAND_LINE
from clusterkit.config.lines import join_key, toml_value
from clusterkit.config.settings import Setting, Settings
from clusterkit.config.sources import display_path


def config(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Only what lies below this key, e.g. profiles.a40-2m.")
    ] = "",
    show_origin: Annotated[
        bool, typer.Option("--show-origin", help="Say of each value where it was written.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With the profiles that are just as shipped.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Print the resolved settings, as TOML."""
    settings = load(config)
    values = settings.values(key)
    hidden: set[str] = set()
    if not key and not everything:
        shown = _own_profiles(settings)
        hidden = {value.key[1] for value in values if value.key[0] == "profiles"} - shown
        values = [value for value in values if value.key[0] != "profiles" or value.key[1] in shown]
    if not key:
        _print(Text(f"# {' < '.join(('built-in', *map(display_path, settings.files)))}", style="dim"))
    for number, line in enumerate(_toml(values, show_origin=show_origin)):
        if line.plain.startswith("[") and (number or not key):
            _print(Text())
        _print(line)
    if hidden:
        _print(Text(f"\n# {len(hidden)} built-in profiles are not shown: clusterkit profiles", style="dim"))


def _own_profiles(settings: Settings) -> set[str]:
    """Returns the default profile and those named by the user's own files or the command line."""
    own = {settings.project.default_profile}
    for layer in settings.layers:
        if layer.file in settings.files or layer.label == COMMAND_LINE:
            own |= set(layer.data.get("profiles", {}))
    return own


def _toml(values: Sequence[Setting], *, show_origin: bool) -> Iterable[Text]:
    """Yields TOML lines with one table per cluster and profile; deeper keys are dotted."""
    depth = {"project": 1, "clusters": 2, "profiles": 2}
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
