"""Makes the table of docs/profiles.md: the shipped profiles, and the memory that `clusterkit plan` estimates.

python -m docs.tools.presets
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from clusterkit.config.models import Cluster, Profile
from clusterkit.forecast.memory import Machine, Memory, judge
from clusterkit.forecast.planned_run import sizes_of, with_gpu
from clusterkit.resources import TEMPLATES
from clusterkit.runs.program import train_options
from clusterkit.units import format_duration
from trainer import recipe as recipes

ANY = Cluster(name="any", root="/any")
PAGE = Path(__file__).resolve().parent.parent / "profiles.md"
_BEGIN = "<!-- Made by `python -m docs.tools.presets`. -->\n"
_END = "<!-- The end of what is made. -->\n"
_COLUMNS = {
    "profile": "---",
    "GPU": "---",
    "CPUs": "---:",
    "time limit": "---:",
    "recipe": "---",
    "steps": "---:",
    "envs": "---:",
    "precision": "---",
    "GPU GiB": "---:",
    "main GiB": "---:",
}


def profiles() -> Iterator[Profile]:
    """The shipped profiles, by name."""
    for file in sorted((TEMPLATES / "profiles").glob("*.toml"), key=lambda file: file.stem):
        yield Profile.model_validate({"name": file.stem, **tomllib.loads(file.read_text("utf-8"))})


def memory_of(profile: Profile) -> Memory | str | None:
    """What `clusterkit plan` estimates, or why it does not; None without a recipe."""
    if profile.recipe is None:
        return None
    sizes = sizes_of(recipes.load(profile.recipe), profile, train_options(profile, 0))
    machine = with_gpu(Machine(profile.cpus, profile.memory, None, None, ANY.name), ANY, profile.gpu)
    return sizes.unknown or judge(sizes, machine, profile.workers, profile.eval_episodes)


def row(profile: Profile) -> list[str]:
    """The cells of a profile's row."""
    memory = memory_of(profile)
    known = memory if isinstance(memory, Memory) else None
    return [
        f"`{profile.name}`",
        profile.gpu or "-",
        str(profile.cpus),
        format_duration(profile.time),
        f"`{profile.recipe}`" if profile.recipe else "-",
        _count(profile.total_steps),
        _count(profile.num_envs),
        profile.precision,
        _gibibytes(known.gpu.needed) if known and known.gpu else "-",
        _gibibytes(known.host.needed) if known else "-",
    ]


def table() -> str:
    """The table, a profile a row."""
    rows = [list(_COLUMNS), *map(row, profiles())]
    head, *body = [f"| {' | '.join(cells)} |\n" for cells in rows]
    return f"{head}|{'|'.join(_COLUMNS.values())}|\n{''.join(body)}"


def page(old: str) -> str:
    """The page with the table made anew."""
    before, _, rest = old.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f}"


def main() -> None:
    """Writes it."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
