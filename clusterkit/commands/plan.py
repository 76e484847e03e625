"""plan: forecast a run's needs and start time, without changing anything locally or on the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.commands.deploy import planning
from clusterkit.errors import ClusterkitError, ConfigError, ImageError
from clusterkit.forecast.memory import Fit, Machine, Memory, judge
from clusterkit.forecast.own_rates import OwnRun
from clusterkit.forecast.planned_run import (
    machine_of,
    memory_on,
    on_hardware,
    rates_of,
    recipe_of,
    sizes_of,
    speed_on,
)
from clusterkit.forecast.queue import Queue, QueueQuestion, ask_queue
from clusterkit.forecast.speed import Duration, Rate, Speed, lasts
from clusterkit.hardware import Shortage
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.program import option_of
from clusterkit.site import log_in_ahead, open_site
from clusterkit.submit.check import another, hardware_of, lacks
from clusterkit.submit.materials import Copies, copies
from clusterkit.submit.materials import DeploymentPlan as Upload
from clusterkit.submit.pipeline import resolve
from clusterkit.submit.plan import PlannedRun
from clusterkit.submit.request import SubmitRequest
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from trainer.recipe.sizes import Sizes
    from trainer.recipe.spaces import Spaces


@dataclass(frozen=True)
class PlanRequest:
    """The user's options."""

    run: SubmitRequest
    times: tuple[int, ...] = ()
    """Time limits to try, in seconds; empty for the usual ones."""
    gpus: tuple[str, ...] = ()
    """GPU types to try; empty for all of the cluster's."""
    spaces: Spaces | None = None
    """Sizes of an environment that is unknown on this machine."""


@dataclass(frozen=True)
class Forecast:
    """The forecast for a run."""

    request: PlanRequest
    goes_on: bool
    """Whether the run continues past its time limit."""
    options: tuple[str, ...]
    """The sbatch options of the run."""
    machine: Machine
    total_steps: int | None
    sizes: Sizes | None = None
    """None for the user's own program, whose memory and speed are unknown."""
    memory: Memory | None = None
    """None likewise, and if the size of an observation is known only to the environment."""
    used: OwnRun | None = None
    """The run of this recipe on this GPU that took the most memory."""
    speed: Speed | None = None
    duration: Duration | None = None
    elsewhere: tuple[Rate, ...] = ()
    """Measurements of this recipe on another GPU or with different work."""
    upload: Upload | None = None
    queue: Queue = field(default_factory=Queue)
    trouble: str = ""
    """Why the cluster or the image could not be examined."""
    hint: str = ""
    lacking: tuple[Shortage, ...] = ()
    """Requested hardware that the machine lacks, without a scheduler to reject the request."""

    @property
    def profile(self) -> Profile:
        """The run's profile."""
        return self.request.run.profile

    @property
    def cluster(self) -> Cluster:
        """The run's cluster."""
        return self.request.run.cluster


def plan(settings: Settings, request: PlanRequest, *, bar: Bar) -> Forecast:
    """Forecast one run over one login.

    An unreachable cluster, a missing image or an unresponsive scheduler raises nothing: the rest of the
    forecast holds, and reports the problem.

    Raises:
        ConfigError, RecipeLockedError: the request is invalid, as for `submit`.
    """
    (planned,) = resolve(settings, request.run).runs
    _check_gpus(request.run.cluster, request.gpus)
    with copies(settings) as remembered:
        found = _alone(settings, request, planned, remembered.ledger)
        try:
            return _with_cluster(settings, found, remembered, bar)
        except ConfigError:
            raise
        except ClusterkitError as error:
            return replace(found, trouble=error.cause, hint=error.hint or "")


def _with_cluster(settings: Settings, found: Forecast, remembered: Copies, bar: Bar) -> Forecast:
    run, ledger, question = found.request.run, remembered.ledger, _question(found)
    with log_in_ahead(run.cluster) as login:
        try:
            with planning(
                settings,
                run.cluster,
                ledger,
                login=login,
                bar=bar,
                cache=remembered.chunks,
                allow_large=run.allow_large,
            ) as (site, upload):
                queue = ask_queue(settings, question, site)
                return replace(found, upload=upload, queue=queue)
        except ImageError as error:  # the scheduler's answer does not depend on the image
            with open_site(run.cluster, create=False, login=login) as site:
                queue = ask_queue(settings, question, site)
                return replace(found, queue=queue, trouble=error.cause, hint=error.hint or "")


def _question(found: Forecast) -> QueueQuestion:
    run, request = found.request.run, found.request
    return QueueQuestion(
        run=run,
        options=found.options,
        goes_on=found.goes_on,
        needed=found.duration.longest if found.duration else None,
        fitting=_fitting(found),
        times=request.times,
        gpus=request.gpus,
        never=next((str(one) for one in found.lacking if one.never), ""),
    )


def _fitting(found: Forecast) -> list[str]:
    """The cluster's GPU types with enough memory for the run, as far as known."""
    if found.sizes is None:
        return []
    if found.sizes.unknown:
        return list(found.cluster.gpus)
    where = found.sizes, found.profile, found.machine, found.cluster
    memories = {gpu: memory_on(*where, gpu).gpu for gpu in found.cluster.gpus}
    return [gpu for gpu, memory in memories.items() if memory is None or memory.fit is Fit.FITS]


def _check_gpus(cluster: Cluster, gpus: Sequence[str]) -> None:
    unknown = [gpu for gpu in gpus if gpu not in cluster.gpus]
    if unknown:
        known = ", ".join(cluster.gpus) or "none"
        raise ConfigError(
            f"--gpus: cluster {cluster.name} has no GPU {unknown[0]!r}",
            hint=f"available: {known}; add [clusters.{cluster.name}.gpus.{unknown[0]}] if the cluster has it",
        )


def _alone(settings: Settings, request: PlanRequest, planned: PlannedRun, ledger: Ledger) -> Forecast:
    """The part of the forecast that does not need the cluster."""
    run, argv = request.run, planned.program.argv
    steps = option_of(argv, "--total-steps") or ""
    total = int(steps) if steps.isdigit() else run.profile.total_steps
    options = planned.submission.options
    machine = machine_of(run.cluster, run.profile, options)
    found = Forecast(request, planned.goes_on, options, machine, total)
    has = hardware_of(run.cluster)
    if has is not None:
        machine = on_hardware(machine, has)
        found = replace(found, lacking=lacks(run.cluster, run.profile, argv, has))
        if found.lacking and found.lacking[0].never:
            found = replace(found, hint=another(settings, run.cluster, has))
    recipe = recipe_of(run, planned.program)
    if recipe is None:
        return found
    sizes = sizes_of(recipe, run.profile, argv, request.spaces)
    rates, own = rates_of(settings, recipe, ledger)
    gpu = run.profile.gpu or ""
    speed = speed_on(sizes, rates, gpu, run.cluster.name)
    return replace(
        found,
        sizes=sizes,
        memory=None
        if sizes.unknown
        else judge(sizes, machine, run.profile.workers, run.profile.eval_episodes),
        used=_most(own, gpu),
        speed=speed,
        duration=_duration(found, speed),
        elsewhere=tuple(rate for rate in rates if rate.gpu != gpu or not rate.same_work),
    )


def _duration(found: Forecast, speed: Speed | None) -> Duration | None:
    if speed is None or not found.total_steps:
        return None
    profile = found.profile
    return lasts(
        found.total_steps,
        speed,
        gpus=profile.nodes * profile.gpu_count,
        limit=profile.time,
        checkpoint_every=profile.checkpoint_every,
    )


def _most(own: Sequence[OwnRun], gpu: str) -> OwnRun | None:
    alike = [one for one in own if one.rate.gpu == gpu and (one.memory or one.gpu_memory)]
    return max(alike, key=lambda one: (one.gpu_memory or 0.0, one.memory or 0.0), default=None)
