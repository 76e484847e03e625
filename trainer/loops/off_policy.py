"""The off-policy loop: act, start the environments, learn while they step, gather, remember.

In lock-step: the updates of a vector step lack only the transitions of that very step, and the policy
that acts has seen all updates before it. Timing therefore never changes a result.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import torch

from trainer import checkpoint
from trainer.algorithms.sac import SAC, SACConfig
from trainer.device import autocast
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Command, Schedule
from trainer.envs.vector import VectorEnv
from trainer.errors import TrainerError, WorkerError
from trainer.evaluation.evaluator import Evaluator, spread_goals
from trainer.loops.state import Progress, restore_generators, stored_generators, write_checkpoint
from trainer.loops.statistics import EpisodeStatistics
from trainer.model import about, save_final
from trainer.pacing import UpdateCredit, crossed
from trainer.preemption import StopSignals
from trainer.processors import usable_processors
from trainer.replay import Replay, Rows
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry


class OffPolicyRun:
    """One attempt at a training run. Use as a context manager, which ends the workers.

    After a resumption the environments start new episodes: networks, replay, optimisers, counters and
    generators continue, the physics does not.

    Args:
        settings: what to do.
        factory: makes the environments.
        device: where to learn.
        telemetry: told of everything.
        stop: looked at after each vector step.
        restored: the parts of the checkpoint to continue from, or None.
    """

    def __init__(
        self,
        settings: TrainSettings,
        factory: EnvFactory,
        device: torch.device,
        telemetry: Telemetry,
        stop: StopSignals,
        restored: dict[str, Any] | None = None,
    ) -> None:
        values = settings.recipe.values
        self._settings = settings
        self._values = values
        self._factory = factory
        self._telemetry = telemetry
        self._stop = stop
        self._checkpoints = checkpoint.Checkpoints(
            settings.run_dir, run_id=settings.run_id, recipe=settings.recipe.name, keep=settings.keep
        )
        # first, for the workers import while we build the networks
        self._vector = VectorEnv(factory, settings.num_envs, workers=settings.workers)
        self._evaluator = self._make_evaluator() if settings.eval_every else None
        self._progress = Progress(learning_starts=values["warmup_steps"])
        self._rng = np.random.default_rng(settings.seed)
        self._agent = SAC(
            SACConfig.from_values(values),
            factory.observation_dim,
            factory.action_dim,
            len(settings.tasks),
            device,
            partial(autocast, device, settings.precision),
        )
        self._replay = Replay(
            len(settings.tasks),
            settings.num_envs,
            values["replay_capacity"],
            values["batch_size"],
            values["episode_steps"],
            factory.observation_dim,
            factory.action_dim,
            device,
        )
        if restored is not None:
            self._restore(restored)
        self._credit = UpdateCredit(values["env_steps_per_update"], self._progress.credit)
        self._schedule = Schedule(
            settings.num_envs,
            len(settings.tasks),
            values["episode_steps"],
            values["goals_per_task"],
            self._rng,
            stagger=values["stagger_episodes"],
        )
        self._episodes = EpisodeStatistics(settings.num_envs, settings.tasks)
        self._losses: dict[str, torch.Tensor] = {}
        self._logged = (time.perf_counter(), self._progress.step, self._progress.updates)

    def run(self) -> int:
        """Trains to the last step, or until a signal; returns the exit code of the process.

        Raises:
            WorkerError: an environment worker died or hangs; a checkpoint to resume from has been written.
            TrainerError: the final model cannot be written.
        """
        self._telemetry.heartbeat(step=self._progress.step, updates=self._progress.updates, phase="start")
        self._vector.reset(self._schedule.first())
        while self._progress.step < self._settings.total_steps and not self._stop:
            before = self._progress.step
            try:
                self._vector_step()
            except WorkerError:
                self._save()  # all but the step that failed
                raise
            self._report(before)
        if self._progress.step < self._settings.total_steps:
            return self._leave()
        return self._finish()

    def _vector_step(self) -> None:
        """Steps every environment once, and learns as much as that has earned."""
        progress, num_envs = self._progress, self._settings.num_envs
        learning = progress.step >= progress.learning_starts and self._replay.sizes.min() > 0
        if learning and not progress.normalized:
            self._fit_normalization()

        task, remaining = self._schedule.tasks, self._schedule.remaining
        observation = self._vector.observation
        if progress.step < self._values["warmup_steps"]:
            shape = num_envs, self._factory.action_dim
            action = self._rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        else:
            action = self._agent.policy.act(observation, task, greedy=False)

        orders = self._schedule.advance()
        self._vector.start(orders, action)
        if learning:
            for _ in range(self._credit.earn(num_envs)):
                self._losses = self._agent.update(self._replay.sample())
                progress.updates += 1
        outcome = self._vector.wait()

        self._replay.add(observation, action, outcome.reward, outcome.next_observation, task, remaining)
        ended = orders.command == Command.STEP_THEN_RESET
        self._episodes.add(task, outcome.reward, outcome.success, ended)
        progress.step += num_envs

    def _report(self, before: int) -> None:
        """Logs, evaluates and saves what is due after a vector step."""
        settings, now = self._settings, self._progress.step
        for note in self._vector.take_notes():
            self._telemetry.event(now, note)
        phase = "warmup" if now < self._progress.learning_starts else "train"
        self._telemetry.heartbeat(step=now, updates=self._progress.updates, phase=phase)
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
            **self._episodes.drain(),
            **{name: float(value) for name, value in self._losses.items()},
        }
        alphas = self._agent.alpha.tolist()
        row |= {f"alpha/{task}": alpha for task, alpha in zip(self._settings.tasks, alphas, strict=True)}
        self._telemetry.train(progress.step, row)
        self._telemetry.heartbeat(mean_return=row.get("return/mean"))

    def _evaluate(self, episodes: int) -> bool:
        """Evaluates and logs it; returns whether it was carried through."""
        if self._evaluator is None:
            return True
        begun = time.perf_counter()
        self._telemetry.heartbeat(phase="evaluate")
        act = partial(self._agent.policy.act, greedy=True)
        values = self._values
        # episodes beyond the recipe's number go to further goals
        distinct = values["evaluation_goals"] + max(0, episodes - values["evaluation_episodes"])
        goals = spread_goals(episodes, distinct, values["goals_per_task"])
        result = self._evaluator.run(act, goals, self._interrupted)
        if result is not None:
            self._telemetry.evaluation(self._progress.step, result.metrics())
        logged, step, updates = self._logged
        # the rates in the log are those of training alone
        self._logged = logged + time.perf_counter() - begun, step, updates
        return result is not None

    def _interrupted(self) -> bool:
        """Keeps the heartbeat fresh during an evaluation; returns whether it is to be given up."""
        self._telemetry.heartbeat(phase="evaluate")
        return bool(self._stop)

    def _leave(self) -> int:
        assert self._stop.received is not None
        name = self._stop.received.name
        self._telemetry.event(self._progress.step, f"{name} received: writing a checkpoint and stopping")
        self._save()
        return self._stop.exit_code

    def _finish(self) -> int:
        step = self._progress.step
        self._save()
        try:
            save_final(self._settings.run_dir, self._about(), self._agent.state_dict())
        except OSError as error:
            raise TrainerError(f"the final model cannot be written: {error}") from error
        if not self._evaluate(self._settings.final_episodes):
            return self._stop.exit_code
        self._telemetry.heartbeat(step=step, phase="done")
        return 0

    def _save(self) -> None:
        self._progress.credit = self._credit.credit
        parts = {
            "model": {"about": self._about(), "learner": self._agent.state_dict()},
            "state": {"progress": self._progress.as_dict(), "generators": stored_generators(self._rng)},
            checkpoint.REPLAY: self._stored_replay(),
        }
        run_dir = self._settings.run_dir
        write_checkpoint(self._checkpoints, self._telemetry, run_dir, self._progress.step, parts)

    def _restore(self, parts: dict[str, Any]) -> None:
        self._agent.load_state_dict(parts["model"]["learner"])
        self._progress = Progress(**parts["state"]["progress"])
        restore_generators(parts["state"]["generators"], self._rng)
        if checkpoint.REPLAY in parts:
            self._restore_replay(parts[checkpoint.REPLAY])
        else:
            self._progress.learning_starts = self._progress.step + self._values["warmup_steps"]

    def _stored_replay(self) -> dict[str, Any]:
        rows = self._replay.rows_since(None)
        piece = {"begin": rows.begin, "end": rows.end, "data": torch.from_numpy(rows.data)}
        return {"state": self._replay.state_dict(), "rows": piece}

    def _restore_replay(self, stored: dict[str, Any]) -> None:
        piece = stored["rows"]
        rows = Rows(piece["begin"], piece["end"], piece["data"].cpu().numpy())
        if not self._replay.fits(stored["state"]):
            self._replay.adopt(stored["state"], [rows])
            return
        self._replay.load_state_dict(stored["state"])
        self._replay.put(rows)
        self._replay.cut()

    def _fit_normalization(self) -> None:
        if self._values["normalize_observations"] == "warmup":
            encoder = self._agent.policy.encoder
            encoder.fit(self._replay.observations(), self._values["observation_std_floor"])
        self._progress.normalized = True

    def _make_evaluator(self) -> Evaluator:
        settings = self._settings
        return Evaluator(
            self._factory,
            max(settings.eval_episodes, settings.final_episodes),
            # the learner waits meanwhile, so every processor may step environments
            workers=usable_processors() if settings.workers else 0,
        )

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
        if self._evaluator is not None:
            self._evaluator.close()
