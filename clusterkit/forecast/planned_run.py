"""A planned run's sizes and hardware, and the measurements that apply to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.errors import ConfigError
from clusterkit.forecast.memory import Machine, Memory, judge
from clusterkit.forecast.speed import OwnRun, Rate, Speed, beating, expect, pulled, shipped
from clusterkit.hardware import Hardware, least_memory_of, memory_of
from clusterkit.resources import resource
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.program import Program, option_of
from clusterkit.runs.recipe_names import choose_recipe
from clusterkit.submit.request import SubmitRequest
from trainer.recipe import Recipe, RecipeError, check_shares
from trainer.recipe.environments import METAWORLD
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings


def recipe_of(request: SubmitRequest, program: Program) -> Recipe | None:
    """Returns the bundled trainer's recipe; None for another program."""
    if program.recipe is None or request.profile.recipe is None:
        return None
    return choose_recipe(request.profile.recipe, request.overrides, request.unlock)


def sizes_of(recipe: Recipe, profile: Profile, argv: Sequence[str], given: Spaces | None = None) -> Sizes:
    """Returns the sizes that determine the run's memory; the program's arguments override the profile.

    Args:
        recipe: the run's.
        profile: the run's.
        argv: its program's.
        given: the sizes of its environment, if the user gives them.

    Raises:
        ConfigError: the ranks cannot share it, or the given sizes contradict known ones.
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
    if given and recipe.environment is METAWORLD:
        raise ConfigError(
            f"--observation-dim: {recipe.name} trains on Meta-World, whose sizes are known",
            hint="leave out all of these options",
        )
    try:
        check_shares(recipe, sizes.num_envs, sizes.ranks)
    except RecipeError as error:
        raise ConfigError(str(error), hint="change that, or use another number of ranks") from error
    return sizes


def machine_of(cluster: Cluster, profile: Profile, options: Sequence[str]) -> Machine:
    """Returns the run's request; scheduler options override the profile."""
    asked = backend_of(cluster).asked(options)
    memory = profile.memory if asked.memory is None else asked.memory or None  # 0 is all there is
    machine = Machine(asked.cpus or profile.cpus, memory, None, None, cluster.name, nodes=profile.nodes)
    return with_gpu(machine, cluster, profile.gpu)


def with_gpu(machine: Machine, cluster: Cluster, gpu: str | None) -> Machine:
    """Returns a machine with a GPU type (None for none), by the cluster's table or its nominal memory."""
    table, name = cluster.gpus.get(gpu or ""), gpu or ""
    of_table = table.memory if table else None
    memory = memory_of(name) if of_table is None else of_table
    least = least_memory_of(name) if memory is None else None
    return replace(machine, gpu=gpu, gpu_memory=memory, gpu_memory_least=least, cluster=cluster.name)


def on_hardware(machine: Machine, has: Hardware) -> Machine:
    """Returns the hardware of a run limited by its machine.

    Such a machine does not enforce a run's `memory`, but the run is expected to use no more.
    """
    memory = min((size for size in (machine.host_memory, has.memory) if size is not None), default=None)
    machine = replace(machine, host_memory=memory)
    least = min((size for size in has.gpus or () if size is not None), default=None)
    return machine if least is None or machine.gpu is None else replace(machine, gpu_memory=least)


def memory_on(sizes: Sizes, profile: Profile, machine: Machine, cluster: Cluster, gpu: str | None) -> Memory:
    """Returns whether a run fits a machine with another GPU type of a cluster."""
    return judge(sizes, with_gpu(machine, cluster, gpu), profile.workers, profile.eval_episodes)


def speed_on(sizes: Sizes, rates: Sequence[Rate], gpu: str, cluster: str) -> Speed | None:
    """Returns the expected speed on a cluster's GPU type ("" for none); None without measurements."""
    return expect(
        rates,
        gpu=gpu,
        recipe=sizes.recipe.name,
        num_envs=sizes.environments,
        precision=sizes.precision,
        gpus=sizes.ranks,
        cluster=cluster,
    )


def rates_of(settings: Settings, recipe: Recipe, ledger: Ledger) -> tuple[list[Rate], list[OwnRun]]:
    """Returns all measured rates of a recipe, shipped ones first, and the user's own pulled runs of it."""
    own = pulled(settings.project.results, recipe.as_json())
    rates = [rate for rate in shipped_rates() if rate.recipe == recipe.name]
    rates += [run.rate for run in own]
    if not own and not recipe.modified:
        gpus = {profile.name: profile.gpu or "" for profile in settings.profiles.values()}
        rates += beating(ledger, recipe.name, gpus)
    return rates, own


def shipped_rates() -> tuple[Rate, ...]:
    """Returns the shipped rates."""
    return shipped(_figures())


def _figures() -> str:
    return resource("templates", "measured.toml").read_text(encoding="utf-8")
