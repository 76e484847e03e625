"""`clusterkit profiles`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from clusterkit.cli import options
from clusterkit.cli.ui.console import format_count, note, out, print_document
from clusterkit.cli.ui.lines import plain_table
from clusterkit.project import load
from clusterkit.units import format_duration

if TYPE_CHECKING:
    from clusterkit.config.models import Profile
    from clusterkit.config.settings import Settings


def profiles(
    everything: Annotated[
        bool, typer.Option("--all", help="Also the bundled trainer's, if your program is another.")
    ] = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """List the profiles; * marks the default one.

    Examples:
      # one line per profile
      clusterkit profiles
      # those of another project
      clusterkit profiles --config other/clusterkit.toml

    See also: clusterkit config, clusterkit submit, profiles.md
    """
    settings = load(config)
    if as_json:
        print_json(settings)
        return
    names = list(settings.profiles) if everything else settings.offered_profiles
    rows = [_cells(settings, settings.profiles[name]) for name in names]
    titles = ("profile", "gpu", "cpus", "time", "recipe", "steps", "envs")
    used = [at for at, title in enumerate(titles) if at < 4 or any(row[at] != "-" for row in rows)]
    table = plain_table(*(titles[at] for at in used), right=("cpus", "time", "steps", "envs"), padding=(0, 1))
    described = [settings.profiles[name].description for name in names]
    wide = any(described) and (out.width >= 110 or len(used) == 4)
    if wide:
        table.add_column("what it is", overflow="fold", style="dim")
    for row, description in zip(rows, described, strict=True):
        table.add_row(*(row[at] for at in used), *([Text(description)] if wide else []))
    out.print(table)
    if hidden := len(settings.profiles) - len(names):
        note(f"{hidden} of the bundled trainer are not shown; --all lists them")


def _cells(settings: Settings, profile: Profile) -> list[str | Text]:
    default = profile.name == settings.project.default_profile
    return [
        Text(f"{profile.name}{' *' if default else ''}", style="bold" if default else ""),
        "-" if not profile.gpu else profile.gpu + (f" x{profile.gpus}" if profile.gpus > 1 else ""),
        str(profile.cpus),
        format_duration(profile.time),
        profile.recipe or "-",
        "-" if profile.total_steps is None else format_count(profile.total_steps),
        "-" if profile.num_envs is None else str(profile.num_envs),
    ]


def print_json(settings: Settings) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "default_profile": settings.project.default_profile,
            "profiles": [_object(profile) for profile in settings.profiles.values()],
        }
    )


def _object(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "description": profile.description or None,
        "gpu": profile.gpu,
        "gpus": profile.gpu_count,
        "cpus": profile.cpus,
        "memory_bytes": profile.memory,
        "time_limit_seconds": profile.time,
        "recipe": profile.recipe,
        "total_steps": profile.total_steps,
        "num_envs": profile.num_envs,
    }
