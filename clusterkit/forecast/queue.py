"""Asks a scheduler in one round trip when each of several requests would start, and recommends one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.base import Continuation, Limits
from clusterkit.backends.jobs import AT_ONCE, FairShare, PredictedStart
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.probes import Answers, Probe, ask
from clusterkit.submit.pipeline import resolve
from clusterkit.units import format_duration, format_seconds

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.site import Site
    from clusterkit.submit.request import SubmitRequest


_SECONDS = 300.0
"""Time limit of the whole query; each part has its own."""
_TIMES = (3600, 4 * 3600, 12 * 3600, 24 * 3600)
_HOUR = 3600
_SPARE = 1.1
"""Margin on a run's longest time, for a request in which it completes."""
_WORTH_IT = 600.0
"""Seconds by which a start must be sooner to recommend another request."""


@dataclass(frozen=True)
class QueueQuestion:
    """A query to the scheduler."""

    run: SubmitRequest
    options: tuple[str, ...]
    """The backend's options of the run."""
    goes_on: bool
    """Whether it continues past its time limit."""
    needed: float | None
    """Longest time it takes, seconds; None if unknown."""
    fitting: Collection[str]
    """GPU types that it fits on."""
    times: tuple[int, ...] = ()
    """Time limits to try, seconds; empty means the usual ones."""
    gpus: tuple[str, ...] = ()
    """GPU types to try; empty means all of the cluster."""
    never: str = ""
    """Why it can never run on a cluster without a queue."""

    @property
    def asked(self) -> Ask:
        """The run's own request."""
        return Ask(self.run.profile.gpu or "", self.run.profile.time)

    def asks(self) -> list[Ask]:
        """Returns all requests to try, those for the run's own GPU first."""
        own, limit = self.asked, self.run.cluster.max_time
        others = [gpu for gpu in self.gpus or self.run.cluster.gpus if gpu != own.gpu] if own.gpu else []
        times = {*(self.times or _TIMES), own.seconds}
        if self.needed is not None and not self.times:
            times.add(math.ceil(self.needed * _SPARE / _HOUR) * _HOUR)
        if limit is not None:
            times = {time for time in times if time <= limit or time in self.times}  # those are refused aloud
        return [Ask(gpu, time) for gpu in (own.gpu, *others) for time in sorted(times)]


@dataclass(frozen=True)
class Queue:
    """The scheduler's answer."""

    starts: Mapping[Ask, PredictedStart] = field(default_factory=dict)
    """The predicted start of each request."""
    advice: StartAdvice | None = None
    shares: tuple[FairShare, ...] = ()
    billing: float | None = None
    """Billing units an hour of the run's request; None without weights."""
    continuation: Continuation | None = None
    """How the run would continue past its time limit; None if it does not or the site does not tell."""
    trouble: str = ""
    """Why there is no predicted start or no continuation."""
    hint: str = ""
    """What to do about it."""

    @property
    def refused(self) -> bool:
        """Whether every request was refused for the same reason."""
        starts = list(self.starts.values())
        return len({start.words for start in starts}) == 1 and starts[0].wait is None


def ask_queue(settings: Settings, question: QueueQuestion, site: Site) -> Queue:
    """Queries the scheduler; nothing is submitted.

    Raises:
        ConfigError: the configured continuation is not available.
        TransportError: the connection failed.
    """
    backend = backend_of(site.cluster)
    if backend.can.queue:
        return _of_a_queue(settings, question, site)
    if question.never:
        return Queue({question.asked: PredictedStart(None, words=f"never: {question.never}")})
    way = backend.continuation(None, site.cluster.continue_by, question.options) if question.goes_on else None
    words = "it starts now: this machine has no queue"
    return Queue({question.asked: PredictedStart(0.0)}, StartAdvice(words), continuation=way)


def _of_a_queue(settings: Settings, question: QueueQuestion, site: Site) -> Queue:
    backend, own = backend_of(site.cluster), _key(question.asked)
    requests, refused = _requests(settings, question)
    starts_of, limits_of = backend.starts(requests), backend.limits(question.options)
    probes = (starts_of, limits_of) if question.goes_on else (starts_of,)
    answers = ask(site.transport, *probes, check=False, timeout=_SECONDS)
    predictions = answers.of(starts_of)
    silence = "the scheduler does not answer"
    starts = {
        wanted: predictions.starts.get(_key(wanted))
        or PredictedStart(None, words=refused.get(wanted, silence))
        for wanted in question.asks()
    }
    continuation, trouble = _continuation(question, answers, limits_of)
    if all(start.wait is None for start in starts.values()):
        trouble = starts[question.asked].words or "the scheduler predicts no start"
    return Queue(
        starts,
        advise(
            starts,
            question.asked,
            needed=question.needed,
            goes_on=question.goes_on,
            fitting=question.fitting,
        ),
        predictions.shares,
        predictions.billing.get(own),
        continuation,
        trouble,
        backend.refusal_hint(trouble) or "",
    )


def _requests(
    settings: Settings, question: QueueQuestion
) -> tuple[dict[str, tuple[str, ...]], dict[Ask, str]]:
    """Returns the options that `submit` would use, and why some requests are impossible."""
    run = question.run
    requests: dict[str, tuple[str, ...]] = {}
    refused: dict[Ask, str] = {}
    for wanted in question.asks():
        profile = run.profile.model_copy(update={"gpu": wanted.gpu or None, "time": wanted.seconds})
        try:
            (planned,) = resolve(settings, replace(run, profile=profile)).runs
        except ConfigError as error:
            refused[wanted] = error.cause
        else:
            requests[_key(wanted)] = planned.submission.options
    return requests, refused


def _key(ask: Ask) -> str:
    return f"{ask.gpu or '-'}/{ask.seconds}"


def _continuation(
    question: QueueQuestion, answers: Answers, limits: Probe[Limits]
) -> tuple[Continuation | None, str]:
    """Returns how the run would continue past its time limit, and why that is unknown."""
    if not question.goes_on:
        return None, ""
    wanted, backend = question.run.cluster.continue_by, backend_of(question.run.cluster)
    try:
        return backend.continuation(answers.of(limits), wanted, question.options), ""
    except SchedulerError as error:
        if wanted != "auto":
            return backend.continuation(None, wanted, question.options), ""
        return None, error.cause


@dataclass(frozen=True)
class Ask:
    """A job's request."""

    gpu: str
    """"" for none."""
    seconds: int
    """Time limit."""


@dataclass(frozen=True)
class StartAdvice:
    """Another request that starts sooner, or why there is none."""

    text: str
    ask: Ask | None = None
    """The recommended request; None for the original one."""
    sooner: float | None = None
    """Seconds gained; None without a comparison."""


def advise(
    starts: Mapping[Ask, PredictedStart],
    asked: Ask,
    *,
    needed: float | None,
    goes_on: bool,
    fitting: Collection[str],
) -> StartAdvice | None:
    """Recommends a request.

    Args:
        starts: the predicted start of each request.
        asked: the original request.
        needed: seconds the run takes; None if unknown.
        goes_on: it continues past its time limit anyway.
        fitting: GPU types that the run fits on.

    Returns:
        None without predictions.
    """
    waits = {ask: start.wait for ask, start in starts.items() if start.wait is not None}
    if not waits:
        return None
    mine = waits.get(asked)
    if mine is not None and mine <= AT_ONCE:
        return _longer(waits, asked, needed) or StartAdvice("it starts now without changes")
    better = [
        ask
        for ask, wait in waits.items()
        if (mine is None or mine - max(wait, AT_ONCE) >= _WORTH_IT) and ask.gpu in {asked.gpu, *fitting}
    ]
    if not better:
        return None if mine is None else StartAdvice(_no_better(starts[asked].waiting))
    # the soonest; of these the same GPU; of these the longest
    best = min(better, key=lambda ask: (max(waits[ask], AT_ONCE), ask.gpu != asked.gpu, -ask.seconds))
    sooner = None if mine is None else mine - waits[best]
    return StartAdvice(_words(best, waits[best], sooner, asked, needed, goes_on=goes_on), best, sooner)


def _no_better(waiting: int) -> str:
    if not waiting:
        return "no other request starts much sooner"
    jobs = "the job that waits" if waiting == 1 else f"the {waiting} jobs that wait"
    return f"{jobs} there may all start first; a shorter request more likely fits into a gap before them"


def _longer(waits: Mapping[Ask, float], asked: Ask, needed: float | None) -> StartAdvice | None:
    """Returns a longer request that also starts at once, for a run that exceeds its limit."""
    if needed is None or needed <= asked.seconds:
        return None
    now = [
        ask.seconds
        for ask, wait in waits.items()
        if ask.gpu == asked.gpu and ask.seconds > asked.seconds and wait <= AT_ONCE
    ]
    if not now:
        return None
    best = min((seconds for seconds in now if seconds >= needed), default=max(now))
    attempts = math.ceil(needed / best)
    takes = "one attempt" if attempts == 1 else f"{attempts} attempts"
    words = f"request {format_duration(best)}: it also starts now, and takes {takes}"
    return StartAdvice(f"{words} instead of {math.ceil(needed / asked.seconds)}", Ask(asked.gpu, best), 0.0)


def _words(
    best: Ask, wait: float, sooner: float | None, asked: Ask, needed: float | None, *, goes_on: bool
) -> str:
    words = f"request {format_duration(best.seconds)}"
    if best.gpu != asked.gpu:
        words += f" on {best.gpu}"
    short = best.seconds < (asked.seconds if needed is None else needed)
    if short and not goes_on:
        words += " with --until-done"
    words += ": it starts now" if wait <= AT_ONCE else f": it starts in {format_seconds(wait)}"
    if sooner is not None:
        words += f", {format_seconds(sooner)} sooner"
    if short and needed is not None:
        words += f"; about {math.ceil(needed / best.seconds)} attempts"
    return words
