"""`clusterkit profiles`."""

from __future__ import annotations

from rich.text import Text

from clusterkit.cli.common import ConfigOption, load
from clusterkit.cli.ui.console import out
from clusterkit.cli.ui.lines import plain_table
from clusterkit.units import format_duration


def profiles(config: ConfigOption = None) -> None:
    """List the profiles; * marks the default one."""
    settings = load(config)
    titles = ("profile", "gpu", "cpus", "time", "recipe", "steps", "envs")
    table = plain_table(*titles, right=("cpus", "time", "steps", "envs"), padding=(0, 1))
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


def _count(steps: int | None) -> str:
    """Formats a number of steps for reading: "2M", "100k"."""
    if steps is None:
        return "-"
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if steps >= size and steps % (size // 10) == 0:
            return f"{steps / size:g}{unit}"
    return str(steps)
