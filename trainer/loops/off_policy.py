"""The off-policy loop: act, start the environments, learn while they step, gather, remember.

Timing never changes a result. The updates of a vector step lack only the transitions of that very step;
the policy that acts has seen all updates before it or, where that would leave a GPU waiting, all but those
of the vector step before (`Acting`). A run that is interrupted after any vector step goes on to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainer.algorithms.acting import Acting
from trainer.checkpoint import REPLAY, Checkpoints
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Autoreset, Command, Schedule
from trainer.envs.vector import VectorEnv
from trainer.errors import TrainerError, WorkerError
from trainer.loops.evaluations import Evaluations
from trainer.loops.learner import Learner
from trainer.loops.state import (
    Found,
    Progress,
    restore_generators,
    stored_environments,
    stored_generators,
    usable_environments,
)
from trainer.loops.statistics import EpisodeStatistics
from trainer.model import about, digest, save_final
from trainer.pacing import UpdateCredit, crossed
from trainer.preemption import StopSignals
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry


class OffPolicyRun:
    """One attempt at a training run. Use as a context manager, which ends the workers.

    Args:
        settings: what to do.
        factory: makes the environments.
        device: where to learn.
        telemetry: told of everything.
        stop: looked at after each vector step.
        store: the run's checkpoints.
        found: the checkpoint to continue from, or None.
    """

    def __init__(
        self,
        settings: TrainSettings,
        factory: EnvFactory,
        device: torch.device,
        telemetry: Telemetry,
        stop: StopSignals,
        store: Checkpoints,
        found: Found | None = None,
    ) -> None:
        values = settings.recipe.values
        state: Mapping[str, Any] = found.parts["state"] if found else {}
        self._settings = settings
        self._values = values
        self._factory = factory
        self._telemetry = telemetry
        self._stop = stop
        self._store = store
        self._progress = Progress(**state.get("progress", {"learning_starts": values["warmup_steps"]}))
        # first, for the workers import while we build the networks
        self._vector = VectorEnv(factory, settings.num_envs, workers=settings.workers)
        self._rng = np.random.default_rng(settings.seed)
        self._learner = Learner(settings, factory, device, self._say, state.get("rung"))
        self._acting = Acting(
            self._learner.agent.policy,
            settings.num_envs,
            factory.observation_dim,
            lag=settings.lag_on(device.type),
        )
        self._evaluations = Evaluations(settings, factory, self._learner.agent, telemetry, stop)
        self._episodes = EpisodeStatistics(settings.num_envs, settings.tasks, success=factory.reports_success)
        self._unfinished: Mapping[str, Any] = state.get("evaluations", {})
        self._environments = self._restore(found) if found else None
        self._credit = UpdateCredit(values["env_steps_per_update"], self._progress.credit)
        self._schedule = self._plan(self._environments["schedule"] if self._environments else None)
        self._losses: dict[str, torch.Tensor] = {}
        self._said = {""}
        self._logged = (time.perf_counter(), self._progress.step, self._progress.updates)

    def run(self) -> int:
        """Trains to the last step, or until a signal; returns the exit code of the process.

        Raises:
            WorkerError: an environment worker died or hangs; a checkpoint to resume from has been written.
            DivergedError: the updates give numbers that are not finite.
            TrainerError: the final model cannot be written, or the device's memory is too small.
        """
        self._telemetry.heartbeat(step=self._progress.step, updates=self._progress.updates, phase="start")
        self._evaluations.load_state_dict(self._unfinished)
        if self._environments is not None:
            self._vector.restore(self._environments["states"])
        else:
            self._vector.reset(self._schedule.first())
        while self._progress.step < self._settings.total_steps and not self._stop:
            before = self._progress.step
            try:
                self._vector_step()
            except WorkerError:
                self._save(environments_lost=True)  # all but the step that failed
                raise
            self._report(before)
        if self._progress.step < self._settings.total_steps:
            return self._leave()
        return self._finish()

    def _vector_step(self) -> None:
        """Steps every environment once, and learns as much as that has earned."""
        progress, num_envs, clock = self._progress, self._settings.num_envs, self._telemetry.clock
        replay = self._learner.replay
        learning = progress.step >= progress.learning_starts and replay.sizes.min() > 0
        if learning and not progress.normalized:
            self._fit_normalization()

        task, remaining = self._schedule.tasks, self._schedule.remaining
        observation = self._vector.observation
        with clock("act"):
            action = self._choose(observation, task)

        orders = self._schedule.advance()
        self._vector.start(orders, action)
        if learning:
            with clock("learn"):
                for _ in range(self._credit.earn(num_envs)):
                    self._losses = self._learner.update()
                    progress.updates += 1
                self._acting.learnt()
        with clock("env"):
            outcome = self._vector.wait()

        self._learner.remember(observation, action, outcome, task, remaining)
        ended = (orders.command == Command.STEP_THEN_RESET) | outcome.terminated | outcome.truncated
        self._episodes.add(task, outcome.reward, outcome.success, ended)
        progress.step += num_envs

    def _plan(self, state: Mapping[str, Any] | None) -> Schedule | Autoreset:
        """Plans the episodes, or goes on where a plan was."""
        values, num_envs = self._values, self._settings.num_envs
        if "environment" in values:
            return Autoreset(num_envs, self._progress.step)
        steps, goals, stagger = (
            values[key] for key in ("episode_steps", "goals_per_task", "stagger_episodes")
        )
        tasks = len(self._settings.tasks)
        return Schedule(num_envs, tasks, steps, goals, self._rng, stagger=stagger, state=state)

    def _choose(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float32]:
        """Returns each environment's action (num_envs, action_dim): uniform at first, then the policy's."""
        if self._progress.step < self._values["warmup_steps"]:
            shape = self._settings.num_envs, self._factory.action_dim
            return self._rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        return self._acting.act(observation, task)

    def _report(self, before: int) -> None:
        """Logs, evaluates and saves what is due after a vector step."""
        settings, now = self._settings, self._progress.step
        slower = {self._learner.note, self._acting.note} - self._said
        for note in (*self._vector.take_notes(), *sorted(slower)):
            self._say(note)
        self._said |= slower
        phase = "warmup" if now < self._progress.learning_starts else "train"
        self._telemetry.heartbeat(step=now, updates=self._progress.updates, phase=phase)
        self._evaluations.collect()
        if crossed(settings.log_every, before, now):
            self._log()
        if now >= settings.total_steps:
            return  # the end has its own evaluation and checkpoint
        if crossed(settings.eval_every, before, now):
            self._evaluate(settings.eval_episodes)
        if crossed(settings.checkpoint_every, before, now):
            self._save()

    def _log(self) -> None:
        now, progress = time.perf_counter(), self._progress
        then, step, updates = self._logged
        self._logged = (now, progress.step, progress.updates)
        row: dict[str, Any] = {
            "steps_per_second": (progress.step - step) / (now - then),
            "updates": progress.updates,
            "updates_per_second": (progress.updates - updates) / (now - then),
            "updates_skipped": int(self._learner.agent.skipped[0]),
            **self._episodes.drain(),
            **{name: float(value) for name, value in self._losses.items()},
            **self._learner.by_task(self._settings.tasks),
        }
        self._telemetry.train(progress.step, row)
        self._telemetry.heartbeat(mean_return=row.get("return/mean"))
        self._learner.check()

    def _evaluate(self, episodes: int) -> None:
        with self._telemetry.clock("evaluate"):
            self._evaluations.submit(self._progress.step, episodes, self._learner.batch)

    def _leave(self) -> int:
        assert self._stop.received is not None
        self._say(f"{self._stop.received.name} received: writing a checkpoint and stopping")
        self._save()
        return self._stop.exit_code

    def _finish(self) -> int:
        self._learner.check()
        self._save()
        learnt = self._learner.agent.state_dict()
        try:
            save_final(self._settings.run_dir, self._about(), learnt)
        except OSError as error:
            raise TrainerError(f"the final model cannot be written: {error}") from error
        self._say(f"the parameters of the final model have the sha256 {digest(learnt)}")
        self._evaluate(self._settings.final_episodes)
        if not self._evaluations.finish():
            return self._stop.exit_code
        self._telemetry.heartbeat(step=self._progress.step, phase="done")
        return 0

    def _save(self, *, environments_lost: bool = False) -> None:
        """Writes a checkpoint and records it; or says why there is none, and training goes on."""
        step = self._progress.step
        if self._learner.troubled:  # and may have to go back to the checkpoint before
            self._say(f"no checkpoint at step {step:,}: the last updates were not finite")
            return
        self._progress.credit = self._credit.credit
        with self._telemetry.clock("checkpoint"):
            environments = None
            if not environments_lost:
                environments = stored_environments(self._schedule.state(), self._vector.state())
            parts = {
                "model": {"about": self._about(), "learner": self._learner.agent.state_dict()},
                "state": {
                    "progress": self._progress.as_dict(),
                    "generators": stored_generators(self._rng),
                    "environments": environments,
                    "episodes": self._episodes.state_dict(),
                    "acting": self._acting.state_dict(),
                    "rung": self._learner.rung,
                    "returns": self._learner.returns_state(),
                    "evaluations": self._evaluations.state_dict(),
                },
            }
            try:
                saved = self._store.save(step, parts, self._learner.replay)
            except OSError as error:
                self._say(f"no checkpoint at step {step:,}: {error}; training goes on")
                return
        path = saved.path.relative_to(self._settings.run_dir)
        self._telemetry.checkpoint(step, path, saved.nbytes, saved.seconds)

    def _restore(self, found: Found) -> Mapping[str, Any] | None:
        """Takes over a checkpoint; returns the environments whose episodes go on, or None for new ones."""
        state, replay = found.parts["state"], self._learner.replay
        self._learner.agent.load_state_dict(found.parts["model"]["learner"])
        self._acting.load_state_dict(state["acting"])
        environments = usable_environments(state["environments"], self._settings.num_envs, self._say)
        self._learner.restore_returns(state.get("returns"), episodes_go_on=environments is not None)
        if not found.replay:
            self._progress.learning_starts = self._progress.step + self._values["warmup_steps"]
        elif replay.fits(found.parts[REPLAY]):
            self._store.restore_replay(found.path, replay)
        else:
            replay.adopt(*self._store.read_replay(found.path))
        if environments is None:
            replay.cut()
        else:
            self._episodes.load_state_dict(state["episodes"])
        restore_generators(state["generators"], self._rng)
        return environments

    def _fit_normalization(self) -> None:
        if self._values["normalize_observations"] == "warmup":
            encoder = self._learner.agent.policy.encoder
            encoder.fit(self._learner.replay.observations(), self._values["observation_std_floor"])
        self._progress.normalized = True

    def _say(self, text: str) -> None:
        self._telemetry.event(self._progress.step, text)

    def _about(self) -> dict[str, Any]:
        return about(
            self._settings.recipe.as_json(),
            self._settings.tasks,
            self._factory.observation_dim,
            self._factory.action_dim,
            self._progress.step,
        )

    def __enter__(self) -> OffPolicyRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._vector.close()
        self._evaluations.close()
