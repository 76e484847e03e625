"""Makes the memory table of docs/profiles.md: what `clusterkit plan` reckons, beside what the guides say.

python -m docs.tools.presets
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from clusterkit.config.models import Cluster, Profile
from clusterkit.forecast.memory import Machine, Memory, judge
from clusterkit.forecast.planned_run import sizes_of, with_gpu
from clusterkit.resources import resource
from clusterkit.runs.program import train_options
from clusterkit.units import format_bytes
from trainer import recipe as recipes

ANY = Cluster(name="any", root="/any")
PAGE = Path(__file__).resolve().parent.parent / "profiles.md"
_BEGIN = "<!-- Made by `python -m docs.tools.presets`: what clusterkit plan reckons. -->\n"
_END = "<!-- The end of what is made. -->\n"


class Claim(NamedTuple):
    """What a guide says a preset takes of its GPU, and what is to be said of that."""

    guide: str
    why: str


_NONE = Claim("-", "")
_ENVIRONMENTS = "environments live in the node's memory, not the GPU's"
_SMALLER = "two layers of 256 take 2 MiB, optimiser and all, not 0.4 to 1.2 GB"
_CLAIMS = {
    "a40-2m": Claim("1.5 GB", "its CUDA is 1 GB, ours an allowance of 0.8; it forgets optimiser and targets"),
    "a100-20m": Claim("45-50 GB for 48 environments", _ENVIRONMENTS),
    "aggressive": Claim(
        "2 GB for a replay of 5M, half of this one", "a transition is 178 bytes; the guide's 400"
    ),
    "rtx4060": Claim("3.5 GB; 4.8 GB where it shows `nvidia-smi`", _SMALLER),
    "rtx4060-ppo": Claim("1.5 GB; 2.1 GB where it shows `nvidia-smi`", _SMALLER),
    "rtx4060-a2c": Claim("1.1 GB; 1.8 GB where it shows `nvidia-smi`", _SMALLER),
    "fast": Claim("none; a GPU of 8 GB", "looking at a whole rollout at once takes most after CUDA"),
    "rtx4070": Claim("none; a GPU of 8 GB", "as heavy"),
    "heavy": Claim("none; a GPU of 8 GB", "as fast"),
    "beast": Claim("none; a GPU of 8 GB", "as fast: 32,768 transitions at once, in layers of 1024"),
}
_COLUMNS = (
    "profile",
    "the GPU",
    "most of it, after CUDA",
    "the node",
    "asked for",
    "the guide, of the GPU",
    "why",
)
_HEAD = f"| {' | '.join(_COLUMNS)} |\n|---|---:|---|---:|---:|---|---|\n"


def profiles() -> Iterator[Profile]:
    """The shipped profiles that train a recipe."""
    for file in sorted(resource("templates", "profiles").glob("*.toml")):
        profile = Profile.model_validate({"name": file.stem, **tomllib.loads(file.read_text("utf-8"))})
        if profile.recipe is not None:
            yield profile


def memory_of(profile: Profile) -> Memory | str:
    """What `clusterkit plan` reckons, or why it does not."""
    assert profile.recipe is not None
    sizes = sizes_of(recipes.load(profile.recipe), profile, train_options(profile, 0))
    machine = with_gpu(Machine(profile.cpus, profile.memory, None, None, ANY.name), ANY, profile.gpu)
    return sizes.unknown or judge(sizes, machine, profile.workers, profile.eval_episodes)


def table() -> str:
    """The table, a preset a row."""
    return _HEAD + "".join(_row(profile) for profile in profiles())


def page(old: str) -> str:
    """The page with the table made anew."""
    before, _, rest = old.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


def _row(profile: Profile) -> str:
    memory, claim = memory_of(profile), _CLAIMS.get(profile.name, _NONE)
    if isinstance(memory, str):
        cells = ["not known", memory, "-"]
    else:
        largest = ""
        if memory.gpu:
            own = [part for part in memory.gpu.parts if part.name not in ("CUDA", "workspaces")]
            part = max(own, key=lambda part: part.bytes)
            largest = f"{part.name}, {format_bytes(part.bytes)}"
        cells = [
            format_bytes(memory.gpu.needed) if memory.gpu else "none",
            largest or "-",
            format_bytes(memory.host.needed),
        ]
    asked = format_bytes(profile.memory) if profile.memory else "-"
    return f"| {' | '.join([profile.name, *cells, asked, claim.guide, claim.why])} |\n"


def main() -> None:
    """Writes it."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
