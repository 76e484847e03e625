"""plan --compare: estimate one profile on every GPU type from local records, without asking a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.errors import ConfigError
from clusterkit.forecast.memory import Store
from clusterkit.forecast.planned_run import (
    common_gpus,
    machine_of,
    memory_on,
    rates_of,
    recipe_of,
    sizes_of,
    speed_on,
)
from clusterkit.forecast.speed import Duration, Rate, Speed, lasts
from clusterkit.submit.materials import copies
from clusterkit.submit.request import SubmitRequest, program_of

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from trainer.recipe.spaces import Spaces


@dataclass(frozen=True)
class ComparisonRow:
    """One GPU type of one cluster."""

    cluster: str | None
    """None for a type that no configured cluster has."""
    gpu: str
    """Empty for no GPU."""
    memory: Store | None
    """None without a GPU, or if the size of an observation is known only to the environment."""
    speed: Speed | None
    duration: Duration | None
    published: tuple[Rate, ...]
    """Measurements by others of different work on this GPU."""


def compare(
    settings: Settings, request: SubmitRequest, *, cluster: str | None, spaces: Spaces | None = None
) -> list[ComparisonRow]:
    """Compare GPU types: those of the configured clusters, cluster by cluster, then other ones.

    Args:
        settings: of the project.
        request: the run.
        cluster: compare only this configured cluster; None for all.
        spaces: sizes of an environment that is unknown on this machine.

    Raises:
        ConfigError: the run uses the user's own program, about which nothing is known.
        RecipeLockedError: as `submit`.
    """
    nowhere = request.cluster.model_copy(update={"gpus": {}})
    program = program_of(settings, request)
    recipe = recipe_of(request, program)
    if recipe is None:
        raise ConfigError(
            f"profile {request.profile.name} has no recipe: its memory and speed are not known",
            hint="choose a profile with a recipe: `clusterkit profiles` lists them",
        )
    sizes = sizes_of(recipe, request.profile, program.argv, spaces)
    machine = machine_of(nowhere, request.profile, ())
    with copies(settings) as remembered:
        rates, _ = rates_of(settings, recipe, remembered.ledger)
    names = [cluster] if cluster else list(settings.clusters)
    places: list[tuple[str | None, str]] = [
        (name, gpu) for name in names for gpu in settings.cluster(name).gpus
    ]
    here = {gpu for _, gpu in places}
    elsewhere = (request.profile.gpu or "", *(rate.gpu for rate in rates), *common_gpus())
    others = dict.fromkeys(gpu for gpu in elsewhere if gpu not in here)
    rows = []
    for name, gpu in [*places, *((None, gpu) for gpu in others)]:
        target = settings.cluster(name) if name else nowhere
        speed = speed_on(sizes, rates, gpu, name or "")
        duration = None
        if speed and request.profile.total_steps:
            duration = lasts(
                request.profile.total_steps,
                speed,
                gpus=request.profile.gpus if gpu else 0,
                limit=request.profile.time,
                checkpoint_every=request.profile.checkpoint_every,
            )
        memory = None
        if gpu and not sizes.unknown:
            memory = memory_on(sizes, request.profile, machine, target, gpu).gpu
        published = tuple(rate for rate in rates if rate.gpu == gpu and not rate.same_work)
        rows.append(ComparisonRow(name, gpu, memory, speed, duration, published))
    return rows
