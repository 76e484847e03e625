"""Shows settings as TOML and profiles as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from clusterkit.cli.ui.console import out
from clusterkit.config.layers import COMMAND_LINE
from clusterkit.config.lines import join_key, toml_value
from clusterkit.config.settings import Setting, Settings
from clusterkit.config.sources import display_path
from clusterkit.units import format_duration


def show_config(settings: Settings, *, under: str, everything: bool, show_origin: bool) -> None:
    """Prints settings as TOML that can be pasted into a file.

    Args:
        settings: what to show.
        under: only what lies below this dotted key; "" is all.
        everything: with the profiles that are just as shipped.
        show_origin: where each value was written, as a comment behind it.
    """
    values = settings.values(under)
    hidden: set[str] = set()
    if not under and not everything:
        shown = _own_profiles(settings)
        hidden = {value.key[1] for value in values if value.key[0] == "profiles"} - shown
        values = [value for value in values if value.key[0] != "profiles" or value.key[1] in shown]
    if not under:
        _print(Text(f"# {' < '.join(('built-in', *map(display_path, settings.files)))}", style="dim"))
    for number, line in enumerate(_toml(values, show_origin=show_origin)):
        if line.plain.startswith("[") and (number or not under):
            _print(Text())
        _print(line)
    if hidden:
        _print(Text(f"\n# {len(hidden)} built-in profiles are not shown: clusterkit profiles", style="dim"))


def show_profiles(settings: Settings) -> None:
    """Prints one line a profile: what it asks for and what it trains."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("profile", "gpu", "cpus", "time", "recipe", "steps", "envs"):
        table.add_column(
            title, justify="right" if title in ("cpus", "time", "steps", "envs") else "left", no_wrap=True
        )
    wide = out.width >= 110
    if wide:
        table.add_column("what it is", overflow="fold", style="dim")
    for profile in settings.profiles.values():
        default = profile.name == settings.project.default_profile
        cells: list[str | Text] = [
            Text(f"{profile.name}{' *' if default else ''}", style="bold" if default else ""),
            "-" if not profile.gpu else profile.gpu + (f" x{profile.gpus}" if profile.gpus > 1 else ""),
            str(profile.cpus),
            format_duration(profile.time),
            profile.recipe or "-",
            _count(profile.total_steps),
            "-" if profile.num_envs is None else str(profile.num_envs),
        ]
        table.add_row(*cells, *([Text(profile.description)] if wide else []))
    out.print(table)


def _own_profiles(settings: Settings) -> set[str]:
    """The default profile and those the user's own files or the command line name."""
    own = {settings.project.default_profile}
    for layer in settings.layers:
        if layer.file in settings.files or layer.label == COMMAND_LINE:
            own |= set(layer.data.get("profiles", {}))
    return own


def _toml(values: Sequence[Setting], *, show_origin: bool) -> Iterable[Text]:
    """TOML lines; a table a cluster and profile, deeper keys dotted."""
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


def _count(steps: int | None) -> str:
    """A number of steps as people say it: "2M", "100k"."""
    if steps is None:
        return "-"
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if steps >= size and steps % (size // 10) == 0:
            return f"{steps / size:g}{unit}"
    return str(steps)


def _print(text: Text) -> None:
    out.print(text, soft_wrap=True)
