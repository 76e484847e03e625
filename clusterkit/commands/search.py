"""search: drive a search, whose trials are runs of one group, until all of them have ended.

What was decided is in the study (`clusterkit.search.study`) before it is done, and a trial's run always has
the same id. So the command may be killed at any moment: the next one finds each trial's run, or submits it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.commands.resume import resume
from clusterkit.errors import RunError, SchedulerError
from clusterkit.resources import page
from clusterkit.runs.ending import end_runs
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import Observer
from clusterkit.runs.secret_values import SecretValues
from clusterkit.runs.state import RunState
from clusterkit.runs.status import ask_cluster, record
from clusterkit.runs.watching import LookPace, Paces
from clusterkit.search.definition import Definition
from clusterkit.search.metric import MetricReader
from clusterkit.search.plan import plan_trial, sample_plan
from clusterkit.search.space import short
from clusterkit.search.study import RUNNING, SearchTrial, Study
from clusterkit.search.summary import write_best
from clusterkit.site import Site, open_site
from clusterkit.submit.handover import SubmissionRefusedError
from clusterkit.submit.materials import (
    Materials,
    environment_of,
    must_have_image,
    send_environment,
    send_snapshot,
)
from clusterkit.submit.pipeline import hand_over, prepare, take
from clusterkit.submit.request import Changes, SubmitRequest
from clusterkit.transport.base import Bar
from clusterkit.transport.faults import LostError, UnreachableError

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.images.image import Image
    from clusterkit.snapshots import Snapshot

_CANCEL_AGAIN = 60.0
"""Seconds after which a run that was cancelled, but goes on, is cancelled again."""
_PACES = Paces()
_NAMED = 8
"""Names of metrics in a message."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class SearchTools:
    """What a search works with."""

    settings: Settings
    ledger: Ledger
    request: SubmitRequest
    """The request for a run, without a trial's values."""
    folder: Path
    """The search's."""
    bar: Bar
    say: Say
    """Called with a line for each thing that happens."""
    secrets: SecretValues
    taken: tuple[Snapshot, Image | None] | None = None
    """The code and the image of a new search; None takes them if none are recorded."""


def search(definition: Definition, tools: SearchTools) -> list[SearchTrial]:
    """Submits, watches and ends trials until all have ended; the caller holds the search's folder.

    A lost connection is opened again. Any other trouble ends the command, and not the runs.

    Returns:
        All trials, by number.

    Raises:
        SchedulerError: the scheduler refused a run, although no other trial is under way.
        RunError: the first trial to complete has not logged the metric; or the search's code is gone.
        ConfigError, ImageError, TransportError: as for `submit`.
    """
    driver = _Driver(definition, tools, Study(tools.folder, definition))
    reached, pace = False, LookPace(_PACES.login)
    while True:
        try:
            with open_site(tools.request.cluster) as site:
                driver.begin(site)
                reached, pace = True, LookPace(_PACES.login)
                while driver.turn(site):
                    time.sleep(driver.pause)
                return driver.study.trials()
        except (UnreachableError, LostError) as error:
            if not reached:
                raise
            pace.after(0.0, failed=True)
            tools.say(f"{error.cause}; tried again in {pace.pause:.0f} s")
            time.sleep(pace.pause)


class _Driver:
    """A search under way: one turn looks at its trials, ends some, and submits others."""

    def __init__(self, definition: Definition, tools: SearchTools, study: Study) -> None:
        self.study = study
        here = tools.request.cluster.here
        self.pause = _PACES.local if here else _PACES.heartbeat
        self._definition, self._tools = definition, tools
        self._settings, self._ledger, self._say = tools.settings, tools.ledger, tools.say
        own = bool(tools.request.profile.program or tools.settings.project.program)
        self._metric = MetricReader(definition.metric, own=own, step=tools.settings.project.step)
        self._materials: Materials | None = definition.recorded_materials()
        self._secrets = tools.secrets
        self._sent = False
        self._observer: Observer | None = None
        self._pace = LookPace(_PACES.local if here else _PACES.scheduler)
        self._question = 0.0
        """When the scheduler is asked again, by the monotonic clock."""
        self._search = True
        """Whether to look for runs that the ledger does not know, as after its loss."""
        self._cancelled: dict[str, float] = {}
        """Run id -> when it was cancelled, by the monotonic clock."""
        self._full = False
        """Whether the queue took no more, and no trial has ended since."""
        self._note_best()

    def begin(self, site: Site) -> None:
        """Prepares for a new connection; the first one sends the code, the same for all trials."""
        self._observer, self._question = Observer(site.cluster, site.transport), 0.0
        if self._sent:
            return
        tools = self._tools
        hint = f"run `clusterkit deploy --cluster {site.cluster.name}` first"
        if self._materials is None:
            plan = sample_plan(self._settings, self._definition, tools.request)
            snapshot, image = tools.taken or take(
                self._settings, plan, self._ledger, self._secrets, tools.bar
            )
            must_have_image(site, image, hint=hint)
            environment = environment_of(self._settings, site.cluster, image)
            send_environment(site, environment, image, tools.bar)
            send_snapshot(site, snapshot, self._ledger, tools.bar)
            self._materials = Materials.taken(snapshot, image, environment)
            self._definition = self._definition.with_materials(self._materials)
            self._definition.write(tools.folder)
        else:
            must_have_image(site, self._materials.image, hint=hint)
            send_environment(site, self._materials.environment, self._materials.image, tools.bar)
            code = f"{site.layout.snapshots}/{self._materials.code}"
            if not _is_folder(site, code):
                raise RunError(
                    f"the code of search {self._definition.name}, {code}, no longer exists",
                    hint="begin a search of another name",
                )
        self._sent = True

    def turn(self, site: Site) -> bool:
        """Looks once, and does what follows from it; returns whether a trial is under way."""
        trials = self.study.trials(RUNNING)
        rows = self._rows(trials)
        states = self._look(rows) if rows or self._search else {}
        dirs = {row.run_id: row.run_dir for row in self._rows(trials)}  # the look may have found more
        ended = any(state.final for state in states.values())
        # After the look: those of an ended run are complete.
        self._metric.read(site.transport, dirs.values(), ended=ended)
        for trial in trials:
            state = states.get(trial.run_id)
            if state is not None and state.state is not JobState.NOT_SUBMITTED:
                self._judge(site, trial, state, dirs[trial.run_id])
        return self._fill(site)

    def _rows(self, trials: list[SearchTrial]) -> list[LedgerRun]:
        """Returns the runs of those trials that have one."""
        return [row for one in trials if (row := self._ledger.get(one.run_id)) is not None]

    def _look(self, rows: list[LedgerRun]) -> dict[str, RunState]:
        """Returns the states of runs; asks the scheduler if that is due."""
        observer = self._observer
        assert observer is not None
        try:
            if time.monotonic() < self._question:
                states = observer.look(rows)
                record(self._ledger, rows, states, certain=observer.trouble is None)
                return {row.run_id: state for row, state in zip(rows, states, strict=True)}
            began = time.monotonic()
            answer = ask_cluster(self._settings, self._ledger, observer, rows, search=self._search)
        except RunError as error:  # the answer was cut short
            raise LostError(error.cause) from error
        self._search = False
        self._pace.after(time.monotonic() - began, failed=answer.mute is not None)
        self._question = time.monotonic() + self._pace.pause
        return dict(answer.states)

    def _judge(self, site: Site, trial: SearchTrial, state: RunState, run_dir: str) -> None:
        """Records what a trial's run has reached, and ends it if it ended or should."""
        series = self._metric.series(run_dir)
        known = series.points[: len(series.points) - series.nulls]  # a number may still follow the nulls
        stopping = trial.stopping
        if not stopping and self.study.report(trial.number, dict(known)):
            stopping = True
            self._say(f"trial {trial.number} is stopped early")
        if not state.final:
            if stopping:
                self._end(site, trial, state)
            return
        self._full = False
        if state.state is JobState.COMPLETED and series.final:
            step, value = series.final
            self.study.complete(trial.number, step, value)
            best = self._note_best()
            is_best = best is not None and best.number == trial.number
            self._say(f"trial {trial.number} completed: {value:g}{', the best so far' if is_best else ''}")
        elif state.state is JobState.CANCELLED and series.points:
            self.study.prune(trial.number)
            if not stopping:
                self._say(f"trial {trial.number} was cancelled")
        else:
            completed = state.state is JobState.COMPLETED
            why = series.why if completed else state.state.value
            silent = why is None
            why = why or f"it logged no number {self._definition.metric!r}"
            self.study.fail(trial.number, why if completed or not state.why else f"{why}: {state.why}")
            hint = "" if series.why and completed else f"; `clusterkit why {trial.run_id}`"
            self._say(f"trial {trial.number} failed: {why}{hint}")
            if silent and not any(one.step is not None for one in self.study.trials()):
                names = ", ".join(self._metric.names(run_dir)[:_NAMED])
                raise RunError(
                    f"{trial.run_id} completed, but logged no number {self._definition.metric!r}",
                    hint=f"begin another search with --metric, one of {names}"
                    if names
                    else f"let the program write its metrics, as `{page('own-project.md')}` says",
                )

    def _end(self, site: Site, trial: SearchTrial, state: RunState) -> None:
        """Cancels the run of a trial that was stopped; one that ends late is cancelled again."""
        row, now = self._ledger.get(trial.run_id), time.monotonic()
        if row is None or now < self._cancelled.get(trial.run_id, -_CANCEL_AGAIN) + _CANCEL_AGAIN:
            return
        self._cancelled[trial.run_id] = now
        mine = replace(row, job_id=state.job_id or row.job_id)
        try:
            end_runs(site.cluster, site.transport, self._ledger, [mine], state.others)
        except SchedulerError as error:
            self._say(f"trial {trial.number} cannot be stopped yet: {error.cause}")

    def _fill(self, site: Site) -> bool:
        """Submits trials until enough are under way; returns whether any is."""
        while True:
            trials = self.study.trials()
            running = [one for one in trials if one.state == RUNNING]
            waiting = [one for one in running if self._lacks_job(one)]
            if self._full and waiting:
                return True
            asked = self._definition
            if not waiting and len(running) < asked.at_once and len(trials) < asked.trials:
                waiting = [self.study.ask()]
                running.append(waiting[0])
            if not waiting:
                return bool(running)
            self._submit(site, self.study.with_values(waiting[0].number), others=len(running) > len(waiting))

    def _lacks_job(self, trial: SearchTrial) -> bool:
        row = self._ledger.get(trial.run_id)
        return row is None or row.state == JobState.NOT_SUBMITTED

    def _submit(self, site: Site, trial: SearchTrial, *, others: bool) -> None:
        """Submits a trial's run, or waits until a trial has ended if the queue takes no more.

        Args:
            site: the cluster.
            trial: the trial, whose submission may have been interrupted.
            others: whether other trials are under way.
        """
        values = " ".join(f"{name}={short(text)}" for name, text in trial.values.items())
        try:
            if self._ledger.get(trial.run_id) and _is_folder(site, site.layout.run(trial.run_id)):
                # It was handed over once, and the scheduler has no job of it.
                bar, run_id = self._tools.bar, trial.run_id
                again = resume(
                    self._settings,
                    Changes(),
                    self._ledger,
                    run_id,
                    bar=bar,
                    say=self._say,
                    values=self._secrets,
                )
                list(again)
            else:
                assert self._materials is not None
                plan = plan_trial(
                    self._settings, self._definition, self._tools.request, trial.number, dict(trial.values)
                )
                ready = prepare(site, self._ledger, plan, self._materials, self._secrets)
                hand_over(site, self._ledger, ready)
        except SubmissionRefusedError as error:
            if not others:
                raise
            self._full = True
            self._say(f"trial {trial.number} waits until another has ended: {error.cause}")
            return
        except SchedulerError as error:
            if self._lacks_job(trial):
                raise
            self._say(f"trial {trial.number} may have been submitted: {error.cause}")  # the next looks tell
            return
        self._say(f"trial {trial.number} is submitted: {values}")

    def _note_best(self) -> SearchTrial | None:
        """Writes the best trial where `status` finds it."""
        best = self.study.best()
        if best is not None:
            write_best(self._tools.folder, self._definition, best)
        return best


def _is_folder(site: Site, path: str) -> bool:
    return site.transport.run(["test", "-d", path], check=False).returncode == 0
