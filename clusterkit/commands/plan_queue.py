"""Asks a cluster's scheduler when a run would start, for several requests, in one round trip."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterkit.backends.slurm import abilities
from clusterkit.backends.slurm.abilities import LOCAL, Choice
from clusterkit.backends.slurm.explain import sbatch_error
from clusterkit.backends.slurm.trial import Answers, Share, Trial, billing, parse_trials, trial_script
from clusterkit.checkup.request import counted, read
from clusterkit.commands.prepare import prepare
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.forecast.starts import Advice, Ask, Start, advise
from clusterkit.site import scheduler_of

if TYPE_CHECKING:
    from clusterkit.commands.prepare import Request
    from clusterkit.config.settings import Settings
    from clusterkit.images import Image
    from clusterkit.site import Site
    from clusterkit.snapshots import Snapshot

_SECONDS = 300.0
"""For the one question; each of its parts has a limit of its own."""
_TIMES = (3600, 4 * 3600, 12 * 3600, 24 * 3600)
_HOUR = 3600
_SPARE = 1.1
"""Of the time a run needs at worst, for a request in which it ends."""


@dataclass(frozen=True)
class Question:
    """What the scheduler is to be asked."""

    run: Request
    options: tuple[str, ...]
    """Of sbatch, as the run would ask."""
    goes_on: bool
    """Past its time limit."""
    needed: float | None
    """Seconds it takes at worst; None is not known."""
    fitting: Collection[str]
    """GPU types that hold it."""
    times: tuple[int, ...] = ()
    """Time limits to try, seconds; empty are the usual ones."""
    gpus: tuple[str, ...] = ()
    """GPU types to try; empty are all of the cluster."""
    never: str = ""
    """Why it can never run there, where no scheduler would say so."""

    @property
    def asked(self) -> Ask:
        """The run as it stands."""
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
    """What the cluster's scheduler says."""

    starts: tuple[Start, ...] = ()
    advice: Advice | None = None
    shares: tuple[Share, ...] = ()
    billing: float | None = None
    """Units an hour of what the run asks for; None where its partition has no weights."""
    choice: Choice | None = None
    """How the run would go on past its time limit; None when it does not, or the site does not say."""
    trouble: str = ""
    """Why there is no start, or no way to go on."""
    hint: str = ""
    """What to do about it."""

    @property
    def refused(self) -> bool:
        """Whether every request was, for one and the same reason."""
        return len({start.trouble for start in self.starts}) == 1 and self.starts[0].wait is None


def ask(settings: Settings, question: Question, site: Site, snapshot: Snapshot, image: Image | None) -> Queue:
    """Ask it all; only what is known to the scheduler is told, nothing is submitted.

    Raises:
        ConfigError: the way on that the settings want is not to be had.
        TransportError: the connection failed.
    """
    if not scheduler_of(site.cluster).machine_script(""):
        return _of_a_queue(settings, question, site, snapshot, image)
    if question.never:
        return Queue((Start(question.asked, None, trouble=f"never: {question.never}"),))
    choice = LOCAL if question.goes_on else None
    words = "it starts now: this machine has no queue"
    return Queue((Start(question.asked, 0.0),), Advice(words), choice=choice)


def _of_a_queue(
    settings: Settings, question: Question, site: Site, snapshot: Snapshot, image: Image | None
) -> Queue:
    trials, refused = _trials(settings, question, site, snapshot, image)
    partition = _value(question.options, "--partition")
    script = trial_script(list(trials.values()), abilities.question(partition) if question.goes_on else "")
    text = site.transport.run(["sh"], stdin=script.encode(), check=False, timeout=_SECONDS).text
    answers = parse_trials(text)
    starts = tuple(_start(one, answers, refused) for one in question.asks())
    mine = next(start for start in starts if start.ask == question.asked)
    choice, trouble = _way(question, text)
    if all(start.wait is None for start in starts):
        trouble = mine.trouble or "the scheduler gives no start"
    return Queue(
        starts,
        advise(
            starts,
            question.asked,
            needed=question.needed,
            goes_on=question.goes_on,
            fitting=question.fitting,
        ),
        answers.shares,
        _billing(question, answers, partition),
        choice,
        trouble,
        sbatch_error(trouble) or "",
    )


def _trials(
    settings: Settings, question: Question, site: Site, snapshot: Snapshot, image: Image | None
) -> tuple[dict[Ask, Trial], dict[Ask, str]]:
    """The jobs as `submit` would render them; and why some cannot be rendered."""
    run = question.run
    if image is None:  # there is none yet: to Slurm it is a line in the script like any other
        run = replace(run, cluster=run.cluster.model_copy(update={"container": "none"}))
    trials: dict[Ask, Trial] = {}
    refused: dict[Ask, str] = {}
    scripts: dict[str, str] = {}
    for one in question.asks():
        profile = run.profile.model_copy(update={"gpu": one.gpu or None, "time": one.seconds})
        try:
            prepared = prepare(settings, replace(run, profile=profile), site.layout, snapshot, image)
        except ConfigError as error:
            refused[one] = error.cause
            continue
        script = scripts.setdefault(one.gpu, prepared.script)
        trials[one] = Trial(_key(one), script, prepared.job.options)
    return trials, refused


def _key(one: Ask) -> str:
    return f"{one.gpu or '-'}/{one.seconds}"


def _start(one: Ask, answers: Answers, refused: Mapping[Ask, str]) -> Start:
    answer = answers.trials.get(_key(one))
    if answer is None:
        return Start(one, None, trouble=refused.get(one, "the scheduler gives no answer"))
    if answer.start is None or answers.now is None:
        return Start(one, None, answer.partition, answer.words or "the start cannot be read")
    wait = max(0.0, answer.start - answers.now)
    partition = answers.partitions.get(answer.partition or answers.default or "")
    if partition and partition.max_time is not None and one.seconds > partition.max_time:
        return Start(one, None, answer.partition, "more than the partition allows: it would wait for ever")
    waiting = answers.waiting.get(answer.partition or answers.default or "", 0)
    return Start(one, wait, answer.partition, waiting=waiting, moment=answer.start)


def _way(question: Question, text: str) -> tuple[Choice | None, str]:
    """How the run would go on past its time limit; and why that is not known."""
    if not question.goes_on:
        return None, ""
    wanted = question.run.cluster.continue_by
    try:
        return abilities.choose(abilities.parse(text), wanted, question.options), ""
    except SchedulerError as error:
        if wanted != "auto":
            return abilities.choose(None, wanted, question.options), ""
        return None, error.cause


def _billing(question: Question, answers: Answers, name: str | None) -> float | None:
    partition = answers.partitions.get(name or answers.default or "")
    if partition is None or not partition.weights:
        return None
    return billing(partition.weights, counted(read(question.options)), highest_only=answers.highest_only)


def _value(options: Sequence[str], name: str) -> str | None:
    return dict(option.partition("=")[::2] for option in options).get(name)
