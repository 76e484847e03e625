"""The measurements themselves, each made in a process of its own: a loop of the real thing, timed.

What is timed is the trainer's own code, with its own settings: `VectorEnv` for the environments, `Learner` or
`RolloutLearner` for the updates, `OffPolicyRun` or `OnPolicyRun` for the whole loop. Only the warm-up is cut
short, and nothing is evaluated.
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

from trainer.bench.filling import fill_replay, fill_rollout
from trainer.checkpoint import CheckpointStore
from trainer.envs.choice import factory_for
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Autoreset, Schedule
from trainer.envs.spaces import drawn
from trainer.envs.vector import VectorEnv
from trainer.errors import TrainerError
from trainer.evaluation.background import BackgroundEvaluator
from trainer.loops.checkpointed import plan_episodes
from trainer.loops.learner import Learner
from trainer.loops.off_policy import OffPolicyRun
from trainer.loops.on_policy import OnPolicyRun
from trainer.loops.rollout_learner import RolloutLearner
from trainer.machine.device import configure, describe, has_bf16, precision_on, seed_everything
from trainer.machine.processors import usable_processors
from trainer.nn.actor import Actor
from trainer.preemption import StopSignals
from trainer.ranks.parallel import Ranks
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry
from trainer.telemetry.usage import resident_bytes

Result = dict[str, Any]

_ENDLESS = 10**12
_WARM_UP_STEPS = 20
"""Vector steps before learning begins. A run's warm-up is longer, and tells nothing about its speed."""


def envs(settings: TrainSettings, seconds: float, _deadline: float) -> Result:
    """Environment steps a second of the environments alone, with random actions and their resets."""
    peak = Peak()
    factory = _factory(settings)
    rng = np.random.default_rng(settings.seed)
    schedule = _schedule(settings, factory, rng)
    helping = settings.recipe.entry.loop == "on-policy"  # as in such a run, where the learner steps a share
    with VectorEnv(factory, settings.num_envs, workers=settings.workers, helping=helping) as vector:
        vector.reset(schedule.first())

        def step() -> None:
            action = drawn(factory.action_space, rng, settings.num_envs)
            vector.start(schedule.advance(), action)
            vector.wait()

        steps = settings.num_envs * rate(step, seconds)
        return {"env_steps_per_second": steps, "host_bytes": peak.close()}


def updates(settings: TrainSettings, seconds: float, _deadline: float) -> Result:
    """Updates a second of the learner alone, from random transitions."""
    peak = Peak()
    device = _device(settings)
    factory = _factory(settings)
    rng = np.random.default_rng(settings.seed)
    if settings.recipe.entry.loop == "on-policy":
        rollouts = RolloutLearner(settings, factory, device, Ranks())
        made = fill_rollout(rollouts, factory, rng)
        count = rate(made.learn, seconds, waiting(device)) * made.each
    else:
        learner = Learner(settings, factory, device, lambda _: None)
        fill_replay(learner.replay, settings, factory, _schedule(settings, factory, rng), rng)
        count = rate(lambda: learner.update(), seconds, waiting(device))
    return _used(settings, factory, device, peak) | {"updates_per_second": count}


def evaluation(settings: TrainSettings, _seconds: float, deadline: float) -> Result:
    """Memory that evaluating beside training adds."""
    configure("cpu", threads=1)
    factory = _factory(settings)
    entry, sizes = settings.recipe.entry, (factory.observation_dim, factory.action_space, len(settings.tasks))
    policy: Actor = entry.policy(settings.recipe.values, *sizes)
    before, peak = resident_bytes(), Peak()
    workers = usable_processors() if settings.workers else 0
    with BackgroundEvaluator(
        factory, policy, settings.eval_episodes, workers, threads=1, max_steps=2
    ) as evaluator:
        evaluator.submit(0, policy.state_dict(), np.zeros(settings.eval_episodes, np.int32))
        evaluator.wait(lambda: time.monotonic() > deadline)
        return {"host_bytes": max(0, peak.close() - before)}


def loop(settings: TrainSettings, seconds: float, deadline: float) -> Result:
    """Steps and updates a second of the whole loop, from when it learns.

    The checkpoint that it leaves with counts in its memory, and so does the replay, as if it were full.
    """
    peak = Peak()
    device = _device(settings)
    factory = _factory(settings)
    values = dict(settings.recipe.values)
    if "warmup_steps" in values:
        warm_up = max(len(settings.tasks), _WARM_UP_STEPS * settings.num_envs)
        values["warmup_steps"] = min(values["warmup_steps"], warm_up)
    recipe = dataclasses.replace(settings.recipe, values=MappingProxyType(values))
    settings = dataclasses.replace(settings, recipe=recipe)
    seed_everything(settings.seed)
    stop = StopSignals()
    window = _Window(seconds, deadline, stop, waiting(device))
    store = CheckpointStore(settings.run_dir, run_id=settings.run_id, recipe=recipe.name, keep=1)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        telemetry = _WatchedRun.open(
            settings.run_dir, {}, settings.total_steps, 0, settings.wandb, stream=nowhere
        )
        telemetry.window = window
        arguments = settings, factory, device, telemetry, stop, store
        kind = OnPolicyRun if settings.recipe.entry.loop == "on-policy" else OffPolicyRun
        with telemetry, kind(*arguments) as run:
            run.train()
    return _used(settings, factory, device, peak) | window.rates()


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
        self._updates = 0
        self._marks: list[tuple[float, int, int]] = []

    def look(self, step: int, updates: int) -> None:
        """Takes note of where the run is; called after each vector step."""
        now = time.monotonic()
        learnt, self._updates = updates > self._updates, updates
        if learnt and self._learns is None:
            self._learns = now
        # only behind updates, for a rollout's steps are all made before it is learnt from
        due = (
            learnt
            and self._learns is not None
            and (
                now - self._marks[0][0] >= self._seconds
                if self._marks
                else now - self._learns >= SETTLE * self._seconds
            )
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
            raise TrainerError("the time was up before it had trained long enough")
        (begin, step, updates), (end, last_step, last_updates) = self._marks
        return {
            "steps_per_second": (last_step - step) / (end - begin),
            "updates_per_second": (last_updates - updates) / (end - begin),
        }


class _WatchedRun(Telemetry):
    """Telemetry of a run that is timed."""

    window: _Window | None = None

    def heartbeat(self, *, step: int | None = None, updates: int | None = None, **facts: Any) -> None:
        """Says where the run is, also to the window."""
        super().heartbeat(step=step, updates=updates, **facts)
        if self.window is not None and step is not None and updates is not None:
            self.window.look(step, updates)


def _factory(settings: TrainSettings) -> EnvFactory:
    recipe = settings.recipe
    return factory_for(recipe.entry, recipe.values, settings.tasks, settings.seed, settings.goal_seed)


def _schedule(settings: TrainSettings, factory: EnvFactory, rng: np.random.Generator) -> Schedule | Autoreset:
    return plan_episodes(settings, factory, Ranks(), rng, 0, None)


def _device(settings: TrainSettings) -> torch.device:
    return configure(settings.device, settings.precision, settings.threads_on)


def _used(settings: TrainSettings, factory: EnvFactory, device: torch.device, peak: Peak) -> Result:
    """Returns the memory taken and the device's description."""
    host, held = peak.close(), None
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # what the allocator has given back since its peak was held as well
        held = total - free + torch.cuda.max_memory_reserved(device) - torch.cuda.memory_reserved(device)
    else:
        spaces = Spaces(factory.observation_dim, factory.action_dim)
        layout = Sizes(settings.recipe, settings.num_envs, given=spaces).layout
        host += layout.nbytes if layout else 0
    facts = describe(device) | {"bf16": has_bf16(device)}
    precision = precision_on(device, settings.precision)
    return {"host_bytes": host, "device_bytes": held, "device": facts, "precision": precision}


SETTLE = 0.2
"""Share of the time measured that goes by before: caches fill, graphs are captured, clocks rise."""
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


def rate(work: Callable[[], object], seconds: float, wait: Callable[[], None] = lambda: None) -> float:
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


def waiting(device: torch.device) -> Callable[[], None]:
    """Returns what waits until a device has done all that it was given."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None
