"""The vector of MT10's environments, two workers, against the usual vectors of the official ones.

`ratio_async_10`, `ratio_async_40`: environment steps a second with random actions and 10 or 40
environments, whole episodes with their resets, against gymnasium's AsyncVectorEnv; `ratio_subproc_10`: the
same against stable-baselines3's SubprocVecEnv. `ratio_contact_10`: 10 environments that replay what the
scripted policies do, which is rich in contacts. `share_of_limit_40`, `share_of_limit_10`: of ours with 40
and 10 environments, against two processes that do nothing but the official physics of ten such
environments, five physics steps and a forward pass each; `share_of_own_limit_40` and `..._10`: against our
physics, which marks nothing for a viewer. Interleaved; the median block counts.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from metaworld.env_dict import ALL_V3_ENVIRONMENTS, MT10_V3
from metaworld.policies import ENV_POLICY_MAP
from stable_baselines3.common.vec_env import SubprocVecEnv

from tests.benchmarks._physics import PurePhysics
from tests.benchmarks._report import arguments, report
from trainer.envs.fast_metaworld import fast_class
from trainer.envs.metaworld import MAX_EPISODE_STEPS, MetaworldFactory
from trainer.envs.official import goal_vectors, official_task
from trainer.envs.schedule import Orders, Schedule, WorkerCommand
from trainer.envs.vector import VectorEnv

TASKS = tuple(MT10_V3)
WORKERS = 2
LIMIT_STEPS = 400


class Official(gymnasium.Wrapper):
    """The official environment of a task, with a goal of its list for each episode."""

    def __init__(self, task: str) -> None:
        super().__init__(ALL_V3_ENVIRONMENTS[task]())
        self._goals = [official_task(task, goal) for goal in goal_vectors(task, 50, 42)]
        self._rng = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        goal = (options or {}).get("goal", self._rng.integers(len(self._goals)))
        self.env.set_task(self._goals[goal])
        return self.env.reset()


class Race:
    """Ours and the peer's vector of the same environments; rates in environment steps a second."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.rates: dict[str, list[float]] = {}
        makers = [partial(Official, TASKS[env % len(TASKS)]) for env in range(num_envs)]
        self.peer = AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        self.other = SubprocVecEnv(makers, "spawn") if num_envs == len(TASKS) else None
        self.ours = VectorEnv(MetaworldFactory(TASKS), num_envs, workers=WORKERS)

    def random(self, rng: np.random.Generator) -> None:
        """Whole episodes, the reset that ends them included."""
        shape = MAX_EPISODE_STEPS, self.num_envs, 4
        actions = rng.uniform(-1, 1, shape).astype(np.float32)
        schedule = Schedule(self.num_envs, len(TASKS), MAX_EPISODE_STEPS, 50, rng)
        self.ours.reset(schedule.first())
        self._clock("ours random", lambda: [self._step(schedule.advance(), each) for each in actions])
        self.peer.reset()
        self._clock("peer random", lambda: [self.peer.step(each) for each in actions])
        if self.other is not None:
            self.other.reset()
            self._clock("other random", lambda: [self.other.step(each) for each in actions])

    def contact(self, actions: np.ndarray) -> None:
        """Replays actions (steps, environments, 4) on each task's first goal, short of an episode's end."""
        zeros = np.zeros(self.num_envs, np.int32)
        tasks = (np.arange(self.num_envs) % len(TASKS)).astype(np.int32)

        def orders(command: WorkerCommand) -> Orders:
            return Orders(np.full(self.num_envs, command, np.int8), tasks, zeros)

        self.ours.reset(orders(WorkerCommand.RESET))
        self._clock(
            "ours contact", lambda: [self._step(orders(WorkerCommand.STEP), each) for each in actions]
        )
        self.peer.reset(options={"goal": 0})
        self._clock("peer contact", lambda: [self.peer.step(each) for each in actions])

    def __getitem__(self, what: str) -> float:
        return statistics.median(self.rates[what])

    def close(self) -> None:
        """Ends all sides' processes."""
        self.ours.close()
        self.peer.close()
        if self.other is not None:
            self.other.close()

    def _step(self, orders: Orders, action: np.ndarray) -> None:
        self.ours.start(orders, action)
        self.ours.wait()

    def _clock(self, what: str, work: Callable[[], list[Any]]) -> None:
        start = time.perf_counter()
        steps = len(work())
        self.rates.setdefault(what, []).append(steps * self.num_envs / (time.perf_counter() - start))


def scripted_actions(steps: int) -> np.ndarray:
    """What the scripted policies do on each task's first goal, shape (steps, tasks, 4)."""
    actions = np.zeros((steps, len(TASKS), 4), np.float32)
    for number, task in enumerate(TASKS):
        env, policy = fast_class(task)(), ENV_POLICY_MAP[task]()
        env.set_task(official_task(task, goal_vectors(task, 50, 42)[0]))
        observation = env.reset()[0]
        for step in range(steps):
            wanted = policy.get_action(observation.copy())
            actions[step, number] = np.clip(wanted, -1, 1)
            observation = env.step(actions[step, number])[0]
    return actions


def pure_physics(share: int, orders: Any, answers: Any) -> None:
    """One of the processes that give the limit: for each order, puts its steps a second into the queue."""
    rng = np.random.default_rng(share)
    actions = rng.uniform(-1, 1, (LIMIT_STEPS, 4)).astype(np.float32)
    simulations = [PurePhysics(task, actions) for task in TASKS[share::WORKERS]]
    answers.put(0.0)
    while (official := orders.get()) is not None:
        for simulation in simulations:
            simulation.rewind(official=official)
        start = time.perf_counter()
        for number in range(LIMIT_STEPS):
            for simulation in simulations:
                simulation.step(number)
        answers.put(LIMIT_STEPS * len(simulations) / (time.perf_counter() - start))


class Limit:
    """Processes that do nothing but the physics; steps a second of all of them together."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._orders = [context.Queue() for _ in range(WORKERS)]
        self._answers = context.Queue()
        self._processes = [
            context.Process(target=pure_physics, args=(share, orders, self._answers), daemon=True)
            for share, orders in enumerate(self._orders)
        ]
        for process in self._processes:
            process.start()
        self._gathered()
        self._rates: dict[bool, list[float]] = {True: [], False: []}

    def measure(self) -> None:
        """Lets all of them run at once, by the official physics and by ours."""
        for official, rates in self._rates.items():
            for orders in self._orders:
                orders.put(official)
            rates.append(WORKERS * min(self._gathered()))  # in lock-step the slower half decides

    def rate(self, *, official: bool) -> float:
        """Returns the median."""
        return statistics.median(self._rates[official])

    def close(self) -> None:
        """Ends the processes."""
        for orders in self._orders:
            orders.put(None)
        for process in self._processes:
            process.join()

    def _gathered(self) -> list[float]:
        return [self._answers.get(timeout=120) for _ in self._processes]


def main() -> None:
    """Run and report."""
    repetitions = 2 if arguments(__doc__).quick else 5
    warnings.simplefilter("ignore")  # some scripted policies say that they ask for more than 1
    rng = np.random.default_rng(0)
    scripted = scripted_actions(MAX_EPISODE_STEPS - 1)
    races = {}
    pure = Limit()
    for num_envs in (10, 40):
        race = races[num_envs] = Race(num_envs)
        try:
            for _ in range(repetitions):
                pure.measure()
                race.random(rng)
                pure.measure()
                if num_envs == len(TASKS):
                    race.contact(scripted)
        finally:
            race.close()
    pure.close()
    small, large = races[10], races[40]
    limit, own_limit = (pure.rate(official=official) for official in (True, False))
    peer, other = "AsyncVectorEnv", "SubprocVecEnv"
    alone, own_alone = "official physics only", "our physics only"
    report(
        "envs",
        [
            ("10 environments, random", "ours", small["ours random"], peer, small["peer random"], "steps/s"),
            (
                "10 environments, random",
                "ours",
                small["ours random"],
                other,
                small["other random"],
                "steps/s",
            ),
            ("40 environments, random", "ours", large["ours random"], peer, large["peer random"], "steps/s"),
            (
                "10 environments, scripted",
                "ours",
                small["ours contact"],
                peer,
                small["peer contact"],
                "steps/s",
            ),
            ("40 environments, random", "ours", large["ours random"], alone, limit, "steps/s"),
            ("40 environments, random", "ours", large["ours random"], own_alone, own_limit, "steps/s"),
        ],
        {
            "ratio_async_10": small["ours random"] / small["peer random"],
            "ratio_async_40": large["ours random"] / large["peer random"],
            "ratio_subproc_10": small["ours random"] / small["other random"],
            "ratio_contact_10": small["ours contact"] / small["peer contact"],
            "share_of_limit_40": large["ours random"] / limit,
            "share_of_limit_10": small["ours random"] / limit,
            "share_of_own_limit_40": large["ours random"] / own_limit,
            "share_of_own_limit_10": small["ours random"] / own_limit,
        },
    )


if __name__ == "__main__":
    main()
