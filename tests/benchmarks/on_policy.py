"""Environment steps a second of PPO and A2C: our whole loop against Stable-Baselines3's, in turn.

Both sides have the same networks, rollouts, batches and numbers of environments, on the same processors: ours
with the worker processes that it chooses, and beside it Stable-Baselines3 with environments in its own
process and in processes (`SubprocVecEnv`), of which the faster counts. `ratio_wall_`: of wall time, the
median of neighbouring rounds. `ratio_cpu_`: of processor time with environments in the own process on both
sides, which holds on a busy machine too.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

from tests.benchmarks._report import Row, arguments, report
from trainer.checkpoint import CheckpointStore
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.loops.on_policy import OnPolicyRun
from trainer.machine.processors import usable_processors
from trainer.preemption import StopSignals
from trainer.recipe.processes import helper_processes, quick
from trainer.settings import read_settings
from trainer.telemetry import Telemetry

ENVS = 8
CASES = (("ppo", "CartPole-v1"), ("ppo", "HalfCheetah-v5"), ("a2c", "CartPole-v1"), ("a2c", "HalfCheetah-v5"))
ROLLOUTS = {"ppo": 2, "a2c": 60}
"""Phases of learning in a round."""


class Ours:
    """Our loop, stepped from here; no round begins or ends within a rollout."""

    def __init__(self, algorithm: str, environment: str, workers: int | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        factory = GymnasiumFactory(environment, actions="clipped", seed=0)
        if workers is None:  # as a run chooses
            helpers = helper_processes(ENVS, usable_processors())
            workers = 0 if quick(ENVS, factory.step_seconds) else helpers
        settings = read_settings(
            [
                *("--recipe", algorithm, "--set", f"environment={environment}", "--unlock", "environment"),
                *("--total-steps", "1000000000", "--num-envs", str(ENVS), "--workers", str(workers)),
                *("--run-dir", str(folder), "--eval-every", "0", "--checkpoint-every", "0"),
                *("--log-every", "100000000", "--wandb", "disabled"),
            ],
            {},
        )
        with contextlib.redirect_stdout(io.StringIO()):
            telemetry = Telemetry.open(folder, {}, settings.total_steps, 0, "disabled", stream=io.StringIO())
        store = CheckpointStore(folder, run_id="bench", recipe=algorithm, keep=1)
        device = torch.device("cpu")
        self._run = OnPolicyRun(settings, factory, device, telemetry, StopSignals(), store)
        self._vector_steps = self._run._rollout.steps * ROLLOUTS[algorithm]
        self.steps = self._vector_steps * ENVS
        self._run.begin()

    def __call__(self) -> None:
        """Makes a round, with all that the loop does after a vector step."""
        for _ in range(self._vector_steps):
            self._run.step()
            self._run.report()

    def close(self) -> None:
        """Ends the workers."""
        self._run.__exit__(None, None, None)
        self._folder.cleanup()


class Theirs:
    """Stable-Baselines3's `learn`, with its defaults and as large rollouts."""

    def __init__(self, algorithm: str, environment: str, *, processes: bool) -> None:
        kind = SubprocVecEnv if processes else None
        envs = make_vec_env(environment, ENVS, seed=0, vec_env_cls=kind)
        steps = 2048 // ENVS if algorithm == "ppo" else 5
        learner: Any = stable_baselines3.PPO if algorithm == "ppo" else stable_baselines3.A2C
        self._learner = learner("MlpPolicy", envs, n_steps=steps, device="cpu", seed=0)
        self.steps = steps * ENVS * ROLLOUTS[algorithm]

    def __call__(self) -> None:
        """Makes a round."""
        self._learner.learn(self.steps, reset_num_timesteps=False)

    def close(self) -> None:
        """Ends the processes."""
        self._learner.env.close()


def rates(sides: dict[str, Ours | Theirs], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Steps a second of each side, in turn, after a round that does not count."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            begun = clock()
            side()
            if number:
                found[name].append(side.steps / (clock() - begun))
    for side in sides.values():
        side.close()
    return found


def main() -> None:
    """Measures and reports."""
    rounds = 3 if arguments(__doc__).quick else 7
    torch.set_num_threads(1)
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    for algorithm, environment in CASES:
        name = f"{algorithm}_{environment.partition('-')[0].lower()}"
        wall = rates(
            {
                "ours": Ours(algorithm, environment),
                "sb3": Theirs(algorithm, environment, processes=False),
                "sb3 in processes": Theirs(algorithm, environment, processes=True),
            },
            rounds,
            time.perf_counter,
        )
        cpu = rates(
            {
                "ours": Ours(algorithm, environment, 0),
                "sb3": Theirs(algorithm, environment, processes=False),
            },
            rounds,
            time.process_time,
        )
        peer = max(("sb3", "sb3 in processes"), key=lambda side: statistics.median(wall[side]))
        for kind, found, against in (("wall", wall, peer), ("cpu", cpu, "sb3")):
            ours, theirs = found["ours"], found[against]
            metrics[f"ratio_{kind}_{name}"] = statistics.median(
                a / b for a, b in zip(ours, theirs, strict=True)
            )
            rows.append(
                (
                    f"steps a second of {kind} time, {algorithm} {environment}",
                    *("trainer", statistics.median(ours), against, statistics.median(theirs), "1/s"),
                )
            )
    report("on_policy", rows, metrics)


if __name__ == "__main__":
    main()
