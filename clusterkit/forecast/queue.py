"""Asks a cluster's scheduler when a run would start, for several requests, in one round trip."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.base import Continuation, Limits
from clusterkit.backends.starts import FairShare, PredictedStart
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.forecast.starts import Ask, StartAdvice, advise
from clusterkit.probes import Answers, Probe, ask
from clusterkit.submit.pipeline import resolve

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
        """All requests to try, those for the run's own GPU first."""
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
    """Query the scheduler; nothing is submitted.

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
    told = answers.of(starts_of)
    silence = "the scheduler does not answer"
    starts = {
        one: told.starts.get(_key(one)) or PredictedStart(None, words=refused.get(one, silence))
        for one in question.asks()
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
        told.shares,
        told.billing.get(own),
        continuation,
        trouble,
        backend.refusal_hint(trouble) or "",
    )


def _requests(
    settings: Settings, question: QueueQuestion
) -> tuple[dict[str, tuple[str, ...]], dict[Ask, str]]:
    """The options that `submit` would use, and why some requests are impossible."""
    run = question.run
    found: dict[str, tuple[str, ...]] = {}
    refused: dict[Ask, str] = {}
    for one in question.asks():
        profile = run.profile.model_copy(update={"gpu": one.gpu or None, "time": one.seconds})
        try:
            (planned,) = resolve(settings, replace(run, profile=profile)).runs
        except ConfigError as error:
            refused[one] = error.cause
        else:
            found[_key(one)] = planned.submission.options
    return found, refused


def _key(one: Ask) -> str:
    return f"{one.gpu or '-'}/{one.seconds}"


def _continuation(
    question: QueueQuestion, answers: Answers, limits: Probe[Limits]
) -> tuple[Continuation | None, str]:
    """How the run would continue past its time limit, and why that is unknown."""
    if not question.goes_on:
        return None, ""
    wanted, backend = question.run.cluster.continue_by, backend_of(question.run.cluster)
    try:
        return backend.continuation(answers.of(limits), wanted, question.options), ""
    except SchedulerError as error:
        if wanted != "auto":
            return backend.continuation(None, wanted, question.options), ""
        return None, error.cause
