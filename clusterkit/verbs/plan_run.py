"""What decides a run's memory and speed, out of recipe and settings, and what earlier runs tell about it."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterkit.errors import ConfigError
from clusterkit.forecast.memory import Machine, Memory, judge
from clusterkit.forecast.speed import Rate, Speed, expect, shipped
from clusterkit.ledger import Ledger
from clusterkit.plan import choose_recipe, option_of
from clusterkit.resources import resource
from clusterkit.units import parse_size
from clusterkit.verbs.own_rates import OwnRun, beating, pulled
from clusterkit.verbs.prepare import Prepared, Request
from trainer.recipe import Recipe, RecipeError, check_shares
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings


def recipe_of(request: Request, prepared: Prepared) -> Recipe | None:
    """What the bundled trainer would train; None for another program."""
    if prepared.spec.recipe is None or request.profile.recipe is None:
        return None
    return choose_recipe(request.profile.recipe, request.overrides, request.unlock)


def sizes_of(recipe: Recipe, profile: Profile, argv: Sequence[str], given: Spaces | None = None) -> Sizes:
    """What decides how much memory the run takes; the program's own arguments win over the profile.

    Args:
        recipe: of the run.
        profile: of the run.
        argv: of its program.
        given: the sizes of its environment, where the user says them.

    Raises:
        ConfigError: so many ranks cannot share it, or it is known which sizes its environment has.
    """
    environments, ranks = option_of(argv, "--num-envs"), option_of(argv, "--ranks")
    sizes = Sizes(
        recipe,
        int(environments) if environments and environments.isdigit() else profile.num_envs,
        option_of(argv, "--precision") or profile.precision,
        on_gpu=profile.device == "cuda" or (profile.device == "auto" and profile.gpu is not None),
        lag=0 if "--lockstep" in argv else 1,
        ranks=int(ranks) if ranks and ranks.isdigit() and int(ranks) else 1,
        given=given,
    )
    if given and sizes.on_metaworld:
        raise ConfigError(
            f"--observation-dim: {recipe.name} trains on Meta-World, whose sizes are known",
            hint="leave it out, and what goes with it",
        )
    try:
        check_shares(recipe, sizes.num_envs, sizes.ranks)
    except RecipeError as error:
        raise ConfigError(str(error), hint="change that, or take another number of ranks") from error
    return sizes


def machine_of(cluster: Cluster, profile: Profile, options: Sequence[str]) -> Machine:
    """What the run asks for, where sbatch options of its own may win over the profile."""
    asked = dict(option.partition("=")[::2] for option in options)
    processors, memory = asked.get("--cpus-per-task", ""), profile.memory
    if "--mem" in asked:
        with contextlib.suppress(ValueError):
            text = asked["--mem"]
            memory = parse_size(f"{text}M" if text.isdigit() else text) or None  # 0 is all there is
    count = int(processors) if processors.isdigit() else profile.cpus
    return Machine(count, memory, profile.gpu, gpu_memory(cluster, profile.gpu), cluster.name)


def gpu_memory(cluster: Cluster, gpu: str | None) -> int | None:
    """Bytes of a GPU type: as the cluster's table says, else as it is sold."""
    table = cluster.gpus.get(gpu or "")
    return table.memory if table and table.memory is not None else as_sold().get(gpu or "")


def memory_on(sizes: Sizes, profile: Profile, machine: Machine, cluster: Cluster, gpu: str | None) -> Memory:
    """Whether a run fits a machine if it has another type of GPU, of a certain cluster."""
    other = replace(machine, gpu=gpu, gpu_memory=gpu_memory(cluster, gpu), cluster=cluster.name)
    return judge(sizes, other, profile.workers, profile.eval_episodes)


def speed_on(sizes: Sizes, rates: Sequence[Rate], gpu: str) -> Speed | None:
    """How fast a run is to be expected on a type of GPU, "" for none; None where nothing was measured."""
    return expect(
        rates,
        gpu=gpu,
        recipe=sizes.recipe.name,
        num_envs=sizes.environments,
        precision=sizes.precision,
        gpus=sizes.ranks,
    )


def as_sold() -> dict[str, int]:
    """Memory of GPU types that are sold in one size only, bytes."""
    return {gpu: parse_size(size) for gpu, size in tomllib.loads(_figures())["gpus"].items()}


def rates_of(settings: Settings, recipe: Recipe, ledger: Ledger) -> tuple[list[Rate], list[OwnRun]]:
    """All that was measured of a recipe, the shipped figures first; and the user's own pulled runs of it."""
    own = pulled(settings.project.results, recipe.as_json())
    rates = [rate for rate in shipped_rates() if rate.recipe == recipe.name]
    rates += [one.rate for one in own]
    if not own and not recipe.modified:
        gpus = {profile.name: profile.gpu or "" for profile in settings.profiles.values()}
        rates += beating(ledger, recipe.name, gpus)
    return rates, own


def shipped_rates() -> tuple[Rate, ...]:
    """The figures that come with clusterkit."""
    return shipped(_figures())


def _figures() -> str:
    return resource("templates", "measured.toml").read_text(encoding="utf-8")
