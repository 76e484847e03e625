"""Evaluation beside training, in a separate process while the learner continues.

Timing never changes a result: an evaluation uses the weights that were submitted, goals fixed in advance and
its own environments, on the CPU. Evaluations unfinished when a run is interrupted go into its checkpoint and
are submitted again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from trainer.envs.interface import EnvFactory
from trainer.envs.vector import STEP_TIMEOUT
from trainer.errors import WorkerError
from trainer.evaluation.process import EvaluatorProcess, Goals, Setup
from trainer.evaluation.result import Evaluation
from trainer.nn.actor import Actor

_MOST_PENDING = 2
_LOOK = 0.1
"""Seconds between two polls while waiting."""


@dataclass(frozen=True)
class Finished:
    """A finished evaluation.

    Attributes:
        step: environment steps that the weights had been trained for.
        evaluation: the result.
        notes: numbers that were submitted with it.
        seconds: time it took to play.
    """

    step: int
    evaluation: Evaluation
    notes: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class _EvaluationJob:
    step: int
    weights: Mapping[str, Tensor]
    goals: Goals
    notes: Mapping[str, float]


class BackgroundEvaluator:
    """Evaluates weights in a separate process.

    Args:
        factory: makes the environments.
        policy: of the shape that is to be evaluated; copied.
        episodes: most episodes per task that will be asked for.
        workers: environment workers of the evaluator, 0 for none.
        threads: PyTorch's, in the evaluator.
        max_steps: length of an episode; None for the environment's own limit.
        step_timeout: seconds after which an environment worker that does not answer counts as hung.

    Raises:
        WorkerError: there is no shared memory for the weights.
    """

    def __init__(
        self,
        factory: EnvFactory,
        policy: Actor,
        episodes: int,
        workers: int,
        threads: int,
        *,
        max_steps: int | None = None,
        step_timeout: float = STEP_TIMEOUT,
    ) -> None:
        self._policy = deepcopy(policy).cpu().requires_grad_(False).eval()
        try:
            self._policy.share_memory()
        except RuntimeError as error:
            raise WorkerError(
                f"the evaluator has no shared memory for the weights: {error}",
                hint="the machine or its container has too little of it (df /dev/shm)",
            ) from error
        self._setup = Setup(factory, self._policy, episodes, workers, threads, max_steps, step_timeout)
        self._jobs: deque[_EvaluationJob] = deque()  # the first of them is the one being played
        self._finished: list[tuple[_EvaluationJob, Finished]] = []
        self._process = EvaluatorProcess(self._setup)

    @property
    def pid(self) -> int:
        """Process id of the evaluator."""
        return self._process.pid

    def submit(
        self,
        step: int,
        weights: Mapping[str, Tensor],
        goals: npt.ArrayLike,
        notes: Mapping[str, float] | None = None,
        *,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Submits weights for evaluation; blocks while more than two evaluations are unfinished.

        Args:
            step: environment steps the weights were trained for.
            weights: a policy's `state_dict`; copied at once.
            goals: each episode's (episodes,), see `evaluation_goals`.
            notes: numbers to come back with the result.
            interrupted: asked several times a second while this blocks; if true it returns at once.

        Raises:
            WorkerError: the evaluator died, failed or hangs. What was submitted stays pending.
        """
        copied = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
        self._jobs.append(_EvaluationJob(step, copied, np.array(goals, np.int32), dict(notes or {})))
        self._send()
        while len(self._jobs) > _MOST_PENDING and not interrupted():
            self._listen(_LOOK)

    def poll(self) -> list[Finished]:
        """Returns evaluations finished since the last call, in order of submission; never blocks.

        Raises:
            WorkerError: the evaluator died, failed or hangs, and nothing finished before.
        """
        try:
            while self._listen(0.0):
                pass
        except WorkerError:
            if not self._finished:
                raise
        return self._hand_out()

    def wait(self, interrupted: Callable[[], bool] = lambda: False) -> list[Finished]:
        """Waits until all evaluations are finished, or until interrupted, and returns the finished ones.

        Args:
            interrupted: asked several times a second.

        Raises:
            WorkerError: the evaluator died, failed or hangs; what finished before comes with the next `poll`.
        """
        while self._jobs and not interrupted():
            self._listen(_LOOK)
        return self._hand_out()

    def pending(self) -> list[dict[str, Any]]:
        """Returns unfinished submissions as keyword arguments of `submit`.

        They are plain values and tensors, for a checkpoint.
        """
        return [
            {
                "step": job.step,
                "weights": dict(job.weights),
                "goals": job.goals.tolist(),
                "notes": dict(job.notes),
            }
            for job in (*(job for job, _ in self._finished), *self._jobs)
        ]

    def restart(self) -> None:
        """Replaces the evaluator, dead or alive, by a new one that plays the unfinished evaluations."""
        self.close()
        self._process = EvaluatorProcess(self._setup)
        self._send()

    def close(self) -> None:
        """Ends the evaluator and its workers, whatever they are doing, within two seconds."""
        self._process.close()

    def __enter__(self) -> BackgroundEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self) -> None:
        """Sends the next evaluation if the evaluator is free."""
        if self._jobs and not self._process.playing:
            self._policy.load_state_dict(self._jobs[0].weights)
            self._process.play(self._jobs[0].goals)

    def _listen(self, timeout: float) -> bool:
        """Waits for an answer; returns whether one came."""
        played = self._process.listen(timeout)
        if played is None:
            return False
        job = self._jobs.popleft()
        self._finished.append((job, Finished(job.step, played.evaluation, job.notes, played.seconds)))
        self._send()
        return True

    def _hand_out(self) -> list[Finished]:
        finished = [result for _, result in self._finished]
        self._finished.clear()
        return finished
