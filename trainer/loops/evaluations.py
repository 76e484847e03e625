"""The evaluations of a run: what they ask, where they are recorded, and what a failing one costs.

They are played beside training by a process of their own, from a copy of the policy's weights, so a result
arrives some steps after the step it belongs to. A run never ends because an evaluation failed: the process
is started afresh once, and after that the run goes on without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainer.algorithms.diagnostics import DORMANT_CRITIC, PlasticityWatch
from trainer.envs.interface import EnvFactory
from trainer.errors import WorkerError
from trainer.evaluation.background import BackgroundEvaluator, Finished
from trainer.evaluation.evaluator import evaluation_goals
from trainer.machine.processors import usable_processors
from trainer.nn.actor import Actor
from trainer.preemption import StopSignals
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry

_MOST_RESTARTS = 1


class Evaluations:
    """Submits evaluations and records their results; does nothing in a run without evaluations.

    Args:
        settings: what to do.
        factory: makes the environments.
        policy: what is evaluated.
        telemetry: records the results.
        stop: whether waiting is to be given up.
    """

    def __init__(
        self,
        settings: TrainSettings,
        factory: EnvFactory,
        policy: Actor,
        telemetry: Telemetry,
        stop: StopSignals,
    ) -> None:
        self._values = settings.recipe.values
        self._policy = policy
        self._telemetry = telemetry
        self._stop = stop
        self._step = 0
        self._restarts = 0
        self._notes: tuple[int, Mapping[str, float]] = (-1, {})
        self.level: float | None = None
        """Of the newest result, see `Evaluation.level`; None before one, and without evaluations."""
        self._watch, self._many = PlasticityWatch(), len(settings.tasks) > 1
        self._evaluator: BackgroundEvaluator | None = None
        if settings.eval_every:
            self._evaluator = BackgroundEvaluator(
                factory,
                policy,
                max(settings.eval_episodes, settings.final_episodes),
                workers=max(1, usable_processors() // settings.together) if settings.workers else 0,
                threads=1,
            )

    def submit(self, step: int, episodes: int, look: Callable[[], Mapping[str, float]]) -> None:
        """Has the policy, as it is now, evaluated.

        Blocks, with a fresh heartbeat, while two evaluations are waiting already.

        Args:
            step: environment steps so far.
            episodes: of each task.
            look: asked for numbers to record with the result, those of `diagnose` where there are any.
        """
        self.level = None
        if self._evaluator is None:
            return
        self._step = step
        self.note(step, look)
        notes = self._notes[1]
        # its levels are those of many tasks, and so is its advice
        if self._many and DORMANT_CRITIC in notes and (warning := self._watch.look(notes)):
            self._telemetry.event(step, warning)
        goals = evaluation_goals(self._values, episodes)
        weights = self._policy.state_dict()
        self._guarded(
            lambda evaluator: evaluator.submit(step, weights, goals, notes, interrupted=self._interrupted)
        )

    def note(self, step: int, look: Callable[[], Mapping[str, float]]) -> None:
        """Takes what is to be recorded with an evaluation at this step, unless there is some already."""
        if self._evaluator is not None and self._notes[0] != step:
            self._notes = step, look()

    def collect(self) -> None:
        """Records what has been finished since the last call; cheap."""
        self._record(self._guarded(BackgroundEvaluator.poll))

    def finish(self) -> bool:
        """Waits for what has been submitted; returns whether all is recorded, which a signal prevents."""
        while self.unfinished():
            self._record(self._guarded(lambda evaluator: evaluator.wait(self._interrupted)))
        return not (self._evaluator and self._evaluator.pending())

    def unfinished(self) -> bool:
        """Records what has been finished; returns whether there is more to wait for, and still wanted."""
        self.collect()
        waiting = self._evaluator is not None and bool(self._evaluator.pending())
        return waiting and not self._interrupted()

    def state_dict(self) -> dict[str, Any]:
        """Returns what has been submitted and is not recorded, for a checkpoint."""
        pending = self._evaluator.pending() if self._evaluator else []
        return {"pending": pending, "passed": self._watch.passed, "notes": self._notes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Submits again what an interruption left unfinished; an empty state asks for nothing."""
        self._watch.passed = state.get("passed", 0.0)
        self._notes = tuple(state.get("notes", self._notes))
        for job in state.get("pending", ()):
            self._guarded(lambda evaluator, job=job: evaluator.submit(**job, interrupted=self._interrupted))  # type: ignore[misc]

    def close(self) -> None:
        """Ends the evaluator, whatever it is doing."""
        if self._evaluator is not None:
            self._evaluator.close()

    def _guarded(self, work: Callable[[BackgroundEvaluator], list[Finished] | None]) -> list[Finished]:
        """Does something with the evaluator, and without one if it fails again and again."""
        if self._evaluator is None:
            return []
        try:
            return work(self._evaluator) or []
        except WorkerError as error:
            if self._restarts < _MOST_RESTARTS:
                self._restarts += 1
                self._say(f"{error.cause}; it will be restarted")
                self._evaluator.restart()
            else:
                self._say(f"{error.cause}; training continues without evaluations")
                self.close()
                self._evaluator = None
        return []

    def _record(self, finished: list[Finished]) -> None:
        for result in finished:
            row = {**result.notes, **result.evaluation.metrics(), "seconds": result.seconds}
            self._telemetry.evaluation(result.step, row)
            self.level = result.evaluation.level

    def _interrupted(self) -> bool:
        """Keeps the heartbeat fresh while something is waited for; returns whether it is to be given up."""
        self._telemetry.heartbeat(phase="evaluate")
        return bool(self._stop)

    def _say(self, text: str) -> None:
        self._telemetry.event(self._step, text)
