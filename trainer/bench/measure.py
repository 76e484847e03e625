"""The measurements themselves, each made in a process of its own: a loop of the real thing, timed.

What is timed is the trainer's own code, with its own settings: `VectorEnv` for the environments, `Learner`
for the updates, `OffPolicyRun` for the whole loop. Only the warm-up is cut short, and nothing is evaluated.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from trainer.checkpoint import Checkpoints
from trainer.device import configure, describe, has_bf16, seed_everything
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.schedule import Schedule
from trainer.envs.vector import VectorEnv
from trainer.errors import TrainerError
from trainer.evaluation.background import BackgroundEvaluator
from trainer.loops.course import follow
from trainer.loops.learner import Learner
from trainer.loops.off_policy import OffPolicyRun
from trainer.preemption import StopSignals
from trainer.processors import usable_processors
from trainer.recipe import replay_bytes
from trainer.replay import Replay
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry
from trainer.telemetry.processes import resident_bytes

Result = dict[str, Any]

SETTLE = 0.2
"""Share of the time measured that goes by before: caches fill, graphs are captured, clocks rise."""
_ENDLESS = 10**12
_WARM_UP_STEPS = 20
"""Vector steps before learning begins. A run's warm-up is longer, and tells nothing about its speed."""
_SAMPLE_SECONDS = 0.1


class Peak:
    """The most memory this process and its descendants held, looked at several times a second."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> int:
        """Ends the watch; returns the peak in bytes."""
        self.nbytes = max(self.nbytes, resident_bytes())
        self._stop.set()
        self._thread.join()
        return self.nbytes

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self.nbytes = max(self.nbytes, resident_bytes())


def envs(settings: TrainSettings, seconds: float, _deadline: float) -> Result:
    """Environment steps a second of the environments alone, with random actions and their resets."""
    peak = Peak()
    factory = _factory(settings)
    rng = np.random.default_rng(settings.seed)
    schedule = _schedule(settings, rng)
    with VectorEnv(factory, settings.num_envs, workers=settings.workers) as vector:
        vector.reset(schedule.first())

        def step() -> None:
            action = rng.uniform(-1.0, 1.0, (settings.num_envs, factory.action_dim)).astype(np.float32)
            vector.start(schedule.advance(), action)
            vector.wait()

        rate = settings.num_envs * _rate(step, seconds)
        return {"env_steps_per_second": rate, "host_bytes": peak.close()}


def updates(settings: TrainSettings, seconds: float, _deadline: float) -> Result:
    """Updates a second of the learner alone, from a replay of random transitions."""
    peak = Peak()
    device = _device(settings)
    factory = _factory(settings)
    rng = np.random.default_rng(settings.seed)
    learner = Learner(settings, factory, device, lambda _: None)
    assert isinstance(learner.replay, Replay), "only recipes on Meta-World are measured"
    schedule = _schedule(settings, rng)
    shape = settings.num_envs, factory.observation_dim
    while learner.replay.sizes.min() < settings.recipe.values["batch_size"] // len(settings.tasks):
        now, then = rng.standard_normal((2, *shape), np.float32)
        action = rng.uniform(-1.0, 1.0, (settings.num_envs, factory.action_dim)).astype(np.float32)
        reward = rng.standard_normal(settings.num_envs, np.float32)
        learner.replay.add(now, action, reward, then, schedule.tasks, schedule.remaining)
        schedule.advance()
    rate = _rate(lambda: learner.update(), seconds, _waiting(device))
    return _used(settings, device, peak) | {"updates_per_second": rate}


def evaluation(settings: TrainSettings, _seconds: float, deadline: float) -> Result:
    """Memory that evaluating beside training adds."""
    device = configure("cpu", threads=1)
    policy = Learner(settings, _factory(settings), device, lambda _: None).agent.policy
    before, peak = resident_bytes(), Peak()
    workers = usable_processors() if settings.workers else 0
    with BackgroundEvaluator(
        _factory(settings), policy, settings.eval_episodes, workers, threads=1, max_steps=2
    ) as it:
        it.submit(0, policy.state_dict(), np.zeros(settings.eval_episodes, np.int32))
        it.wait(lambda: time.monotonic() > deadline)
        return {"host_bytes": max(0, peak.close() - before)}


def loop(settings: TrainSettings, seconds: float, deadline: float) -> Result:
    """Steps and updates a second of the whole loop, from when it learns.

    The checkpoint that it leaves with counts in its memory, and so does the replay, as if it were full.
    """
    peak = Peak()
    device = _device(settings)
    values = dict(settings.recipe.values)
    warm_up = max(len(settings.tasks), _WARM_UP_STEPS * settings.num_envs)
    values["warmup_steps"] = min(values["warmup_steps"], warm_up)
    recipe = dataclasses.replace(settings.recipe, values=MappingProxyType(values))
    settings = dataclasses.replace(settings, recipe=recipe)
    seed_everything(settings.seed)
    stop = StopSignals()
    window = _Window(seconds, deadline, stop, _waiting(device))
    store = Checkpoints(settings.run_dir, run_id=settings.run_id, recipe=recipe.name, keep=1)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        telemetry = _Watched.open(
            settings.run_dir, {}, settings.total_steps, 0, settings.wandb, stream=nowhere
        )
        telemetry.window = window
        arguments = settings, _factory(settings), device, telemetry, stop, store
        with telemetry, OffPolicyRun(*arguments) as run:
            follow(run.course())
    return _used(settings, device, peak) | window.rates()


KINDS: dict[str, Callable[[TrainSettings, float, float], Result]] = {
    "loop": loop,
    "envs": envs,
    "updates": updates,
    "evaluation": evaluation,
}
"""What can be measured: called with settings, seconds to measure, and when to give up (monotonic)."""


def adapted(settings: TrainSettings) -> TrainSettings:
    """Returns the settings of a run that is never saved, evaluated or logged before it is stopped."""
    return dataclasses.replace(
        settings, total_steps=_ENDLESS, eval_every=0, checkpoint_every=0, log_every=_ENDLESS, resume=None
    )


class _Window:
    """Times a stretch of a run that has begun to learn, and then asks it to stop."""

    def __init__(self, seconds: float, deadline: float, stop: StopSignals, wait: Callable[[], None]) -> None:
        self._seconds, self._deadline, self._stop, self._wait = seconds, deadline, stop, wait
        self._learns: float | None = None
        self._marks: list[tuple[float, int, int]] = []

    def look(self, step: int, updates: int) -> None:
        """Takes note of where the run is; called after each vector step."""
        now = time.monotonic()
        if updates and self._learns is None:
            self._learns = now
        due = self._learns is not None and (
            now - self._marks[0][0] >= self._seconds
            if self._marks
            else now - self._learns >= SETTLE * self._seconds
        )
        if due and len(self._marks) < 2:
            self._wait()
            self._marks.append((time.monotonic(), step, updates))
        if len(self._marks) == 2 or now > self._deadline:
            self._stop.received = signal.SIGTERM

    def rates(self) -> Result:
        """Returns the rates.

        Raises:
            TrainerError: the time was too short.
        """
        if len(self._marks) < 2:
            raise TrainerError("the time was over before it had learnt for long enough")
        (begin, step, updates), (end, last_step, last_updates) = self._marks
        return {
            "steps_per_second": (last_step - step) / (end - begin),
            "updates_per_second": (last_updates - updates) / (end - begin),
        }


class _Watched(Telemetry):
    """Telemetry of a run that is timed."""

    window: _Window | None = None

    def heartbeat(self, *, step: int | None = None, updates: int | None = None, **facts: Any) -> None:
        """Says where the run is, also to the window."""
        super().heartbeat(step=step, updates=updates, **facts)
        if self.window is not None and step is not None and updates is not None:
            self.window.look(step, updates)


def _rate(work: Callable[[], object], seconds: float, wait: Callable[[], None] = lambda: None) -> float:
    """Returns calls a second, at least three of them."""
    work()
    wait()
    for _ in _until(SETTLE * seconds):
        work()
    wait()
    begun, count = time.perf_counter(), 0
    for _ in _until(seconds):
        work()
        count += 1
    wait()
    return count / (time.perf_counter() - begun)


def _until(seconds: float) -> Iterator[None]:
    end = time.perf_counter() + seconds
    yield from (None, None, None)
    while time.perf_counter() < end:
        yield


def _factory(settings: TrainSettings) -> MetaworldFactory:
    return MetaworldFactory(settings.tasks, goals_per_task=settings.recipe.values["goals_per_task"])


def _schedule(settings: TrainSettings, rng: np.random.Generator) -> Schedule:
    values = settings.recipe.values
    return Schedule(
        settings.num_envs,
        len(settings.tasks),
        values["episode_steps"],
        values["goals_per_task"],
        rng,
        stagger=values["stagger_episodes"],
    )


def _device(settings: TrainSettings) -> torch.device:
    return configure(settings.device, settings.precision, settings.threads)


def _waiting(device: torch.device) -> Callable[[], None]:
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def _used(settings: TrainSettings, device: torch.device, peak: Peak) -> Result:
    """Returns the memory taken and the device's description."""
    host, held = peak.close(), None
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # what the allocator has given back since its peak was held as well
        held = total - free + torch.cuda.max_memory_reserved(device) - torch.cuda.memory_reserved(device)
    else:
        host += replay_bytes(settings.recipe, settings.num_envs)
    facts = describe(device) | {"bf16": has_bf16(device)}
    return {"host_bytes": host, "device_bytes": held, "device": facts}
