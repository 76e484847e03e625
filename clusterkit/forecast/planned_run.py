"""A planned run's memory, speed and start: on this machine, then by its cluster's scheduler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import Continuation, Limits, PredictedStart
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.forecast.memory import Fit, Machine, Memory, judge
from clusterkit.forecast.queue import Ask, Queue, StartAdvice, advise
from clusterkit.forecast.speed import (
    Duration,
    OwnRun,
    Rate,
    Speed,
    expect,
    lasts,
    pulled,
    shipped_rates,
)
from clusterkit.hardware import Hardware, Shortage, least_memory_of, memory_of
from clusterkit.probes import Answers, Probe, ask
from clusterkit.runs.program import option_of
from clusterkit.runs.recipe_names import choose_recipe
from clusterkit.submit.check import another, hardware_of, lacks
from clusterkit.submit.pipeline import resolve
from clusterkit.submit.request import SubmitRequest
from trainer.recipe import Recipe, RecipeError, check_shares
from trainer.recipe.environments import METAWORLD
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.site import Site
    from clusterkit.submit.materials import DeploymentPlan
    from clusterkit.submit.plan import PlannedRun

_SECONDS = 300.0
"""Time limit of the whole query to the scheduler; each part has its own."""
_TIMES = (3600, 4 * 3600, 12 * 3600, 24 * 3600)
_HOUR = 3600
_SPARE = 1.1
"""Margin on a run's longest time, for a request in which it completes."""


@dataclass(frozen=True)
class Forecast:
    """The forecast for a run."""

    run: SubmitRequest
    goes_on: bool
    """Whether the run continues past its time limit."""
    options: tuple[str, ...]
    """The sbatch options of the run."""
    machine: Machine
    total_steps: int | None
    queue: Queue = field(default_factory=Queue)
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
    upload: DeploymentPlan | None = None
    trouble: str = ""
    """Why the cluster or the image could not be examined."""
    hint: str = ""
    lacking: tuple[Shortage, ...] = ()
    """Requested hardware that the machine lacks, without a scheduler to reject the request."""

    @property
    def profile(self) -> Profile:
        """The run's profile."""
        return self.run.profile

    @property
    def cluster(self) -> Cluster:
        """The run's cluster."""
        return self.run.cluster

    @property
    def asked(self) -> Ask:
        """The run's own request."""
        return Ask(self.profile.gpu or "", self.profile.time)

    @property
    def needed(self) -> float | None:
        """Longest time it takes, seconds; None if unknown."""
        return self.duration.longest if self.duration else None

    @property
    def fitting(self) -> list[str]:
        """The cluster's GPU types with enough memory for the run, as far as known."""
        if self.sizes is None:
            return []
        gpus = list(self.cluster.gpus)
        if self.sizes.unknown:
            return gpus
        memories = (
            _judge(self.sizes, with_gpu(self.machine, self.cluster, gpu), self.profile).gpu for gpu in gpus
        )
        return [
            gpu
            for gpu, memory in zip(gpus, memories, strict=True)
            if memory is None or memory.fit is Fit.FITS
        ]


def foresee(settings: Settings, run: SubmitRequest, spaces: Spaces | None, planned: PlannedRun) -> Forecast:
    """Returns the part of the forecast that does not need the cluster.

    Args:
        settings: of the project.
        run: to forecast.
        spaces: the sizes of an environment that is unknown on this machine.
        planned: the same run.

    Raises:
        ConfigError: the ranks cannot share it, or the given sizes contradict known ones.
    """
    argv, profile, options = planned.program.argv, run.profile, planned.submission.options
    steps = option_of(argv, "--total-steps") or ""
    total = int(steps) if steps.isdigit() else profile.total_steps
    machine = _machine(run.cluster, profile, options)
    found = Forecast(run, planned.goes_on, options, machine, total)
    has = hardware_of(run.cluster)
    if has is not None:
        machine = _on_hardware(machine, has)
        found = replace(found, lacking=lacks(run.cluster, profile, argv, has))
        if found.lacking and found.lacking[0].never:
            found = replace(found, hint=another(settings, run.cluster, has))
    if planned.program.recipe is None or profile.recipe is None:
        return found
    recipe = choose_recipe(profile.recipe, run.overrides, run.unlock)
    sizes = sizes_of(recipe, profile, argv, spaces)
    own = pulled(settings.project.results, recipe.as_json())
    rates = [rate for rate in shipped_rates() if rate.recipe == recipe.name]
    rates += [run.rate for run in own]
    gpu = profile.gpu or ""
    speed = expect(
        rates,
        gpu=gpu,
        recipe=recipe.name,
        num_envs=sizes.environments,
        precision=sizes.precision,
        gpus=sizes.ranks,
        cluster=run.cluster.name,
    )
    alike = [one for one in own if one.rate.gpu == gpu and (one.memory or one.gpu_memory)]
    return replace(
        found,
        sizes=sizes,
        memory=None if sizes.unknown else _judge(sizes, machine, profile),
        used=max(alike, key=lambda one: (one.gpu_memory or 0.0, one.memory or 0.0), default=None),
        speed=speed,
        duration=lasts(
            total,
            speed,
            gpus=profile.nodes * profile.gpu_count,
            limit=profile.time,
            checkpoint_every=profile.checkpoint_every,
        )
        if speed and total
        else None,
        elsewhere=tuple(
            rate
            for rate in sorted(rates, key=lambda rate: not rate.own)  # the user's own first
            if rate.gpu != gpu or not rate.same_work
        ),
    )


def _judge(sizes: Sizes, machine: Machine, profile: Profile) -> Memory:
    return judge(sizes, machine, profile.workers, profile.eval_episodes)


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


def _machine(cluster: Cluster, profile: Profile, options: Sequence[str]) -> Machine:
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


def _on_hardware(machine: Machine, has: Hardware) -> Machine:
    """Returns the hardware of a run limited by its machine.

    Such a machine does not enforce a run's `memory`, but the run is expected to use no more.
    """
    memory = min((size for size in (machine.host_memory, has.memory) if size is not None), default=None)
    machine = replace(machine, host_memory=memory)
    least = min((size for size in has.gpus or () if size is not None), default=None)
    return machine if least is None or machine.gpu is None else replace(machine, gpu_memory=least)


def ask_queue(
    settings: Settings, forecast: Forecast, site: Site, times: Sequence[int], gpus: Sequence[str]
) -> Queue:
    """Queries the scheduler in one round trip when requests would start; nothing is submitted.

    Args:
        settings: of the project.
        forecast: of the run, made without the cluster.
        site: its cluster.
        times: time limits to try, in seconds; empty for the usual ones.
        gpus: GPU types to try; empty for all of the cluster's.

    Raises:
        ConfigError: the configured continuation is not available.
        TransportError: the connection failed.
    """
    backend = backend_of(site.cluster)
    if not backend.can.queue:
        if never := next((str(shortage) for shortage in forecast.lacking if shortage.never), ""):
            return Queue({forecast.asked: PredictedStart(None, words=f"never: {never}")})
        continue_by, words = site.cluster.continue_by, "it starts now: this machine has no queue"
        way = backend.continuation(None, continue_by, forecast.options) if forecast.goes_on else None
        return Queue({forecast.asked: PredictedStart(0.0)}, StartAdvice(words), continuation=way)
    wanted = _asks(forecast, times, gpus)
    requests, refused = _requests(settings, forecast.run, wanted)
    starts_of, limits_of = backend.starts(requests), backend.limits(forecast.options)
    probes = (starts_of, limits_of) if forecast.goes_on else (starts_of,)
    answers = ask(site.transport, *probes, check=False, timeout=_SECONDS)
    predictions = answers.of(starts_of)
    silence = "the scheduler does not answer"
    starts = {
        request: predictions.starts.get(_key(request))
        or PredictedStart(None, words=refused.get(request, silence))
        for request in wanted
    }
    continuation, trouble = _continuation(forecast, answers, limits_of)
    if all(start.wait is None for start in starts.values()):
        trouble = starts[forecast.asked].words or "the scheduler predicts no start"
    return Queue(
        starts,
        advise(
            starts,
            forecast.asked,
            needed=forecast.needed,
            goes_on=forecast.goes_on,
            fitting=forecast.fitting,
        ),
        predictions.shares,
        predictions.billing.get(_key(forecast.asked)),
        continuation,
        trouble,
        backend.refusal_hint(trouble) or "",
    )


def _asks(forecast: Forecast, times: Sequence[int], gpus: Sequence[str]) -> list[Ask]:
    """Returns all requests to try, those for the run's own GPU first."""
    own, limit = forecast.asked, forecast.cluster.max_time
    others = [gpu for gpu in gpus or forecast.cluster.gpus if gpu != own.gpu] if own.gpu else []
    limits = {*(times or _TIMES), own.seconds}
    if forecast.needed is not None and not times:
        limits.add(math.ceil(forecast.needed * _SPARE / _HOUR) * _HOUR)
    if limit is not None:
        limits = {time for time in limits if time <= limit or time in times}  # those are refused aloud
    return [Ask(gpu, time) for gpu in (own.gpu, *others) for time in sorted(limits)]


def _requests(
    settings: Settings, run: SubmitRequest, wanted: Sequence[Ask]
) -> tuple[dict[str, tuple[str, ...]], Mapping[Ask, str]]:
    """Returns the options that `submit` would use, and why some requests are impossible."""
    requests: dict[str, tuple[str, ...]] = {}
    refused: dict[Ask, str] = {}
    for request in wanted:
        profile = run.profile.model_copy(update={"gpu": request.gpu or None, "time": request.seconds})
        try:
            (planned,) = resolve(settings, replace(run, profile=profile)).runs
        except ConfigError as error:
            refused[request] = error.cause
        else:
            requests[_key(request)] = planned.submission.options
    return requests, refused


def _key(request: Ask) -> str:
    return f"{request.gpu or '-'}/{request.seconds}"


def _continuation(
    forecast: Forecast, answers: Answers, limits: Probe[Limits]
) -> tuple[Continuation | None, str]:
    """Returns how the run would continue past its time limit, and why that is unknown."""
    if not forecast.goes_on:
        return None, ""
    wanted, backend = forecast.cluster.continue_by, backend_of(forecast.cluster)
    try:
        return backend.continuation(answers.of(limits), wanted, forecast.options), ""
    except SchedulerError as error:
        if wanted != "auto":
            return backend.continuation(None, wanted, forecast.options), ""
        return None, error.cause
