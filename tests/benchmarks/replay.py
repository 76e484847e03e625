"""Sampling a full replay of MT10's size: ours against Stable-Baselines3's ReplayBuffer, on the CPU.

A million transitions of 39 observations and 4 actions in float32, from ten environments, tensors out, with
as many threads as torch takes. Ours is stratified by task and says of which task a transition is; the peer
draws plainly, from its default layout. Blocks are interleaved, the median block counts. `ratio_sample` is
that of batch size 512, `ratio_sample_1280` of 1280. `bytes_per_transition`: all that ours allocates, over
the transitions that can be drawn; the peer's are the sizes of its arrays.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from tests.benchmarks._report import arguments, report
from trainer.envs.schedule import Schedule
from trainer.replay import Replay

TASKS, CAPACITY, EPISODE, OBSERVATION, ACTION = 10, 1_000_000, 500, 39, 4
BLOCK = 30


class Ours:
    """Our replay, with the schedule that says where each transition belongs."""

    def __init__(self, batch_size: int) -> None:
        self.replay = Replay(TASKS, TASKS, CAPACITY, batch_size, EPISODE, OBSERVATION, ACTION)
        self._schedule = Schedule(TASKS, TASKS, EPISODE, 50, np.random.default_rng(0))

    def add(self, observation: np.ndarray, action: np.ndarray, reward: np.ndarray) -> None:
        schedule = self._schedule
        self.replay.add(observation, action, reward, observation, schedule.tasks, schedule.remaining)
        schedule.advance()

    def sample(self) -> object:
        return self.replay.sample()

    @property
    def nbytes(self) -> int:
        return self.replay.nbytes


class Theirs:
    """The peer, as its off-policy algorithms make it."""

    def __init__(self, batch_size: int) -> None:
        shown = spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        self._buffer = ReplayBuffer(
            CAPACITY, shown, spaces.Box(-1, 1, (ACTION,), np.float32), device="cpu", n_envs=TASKS
        )
        self._batch_size = batch_size
        self._dones = np.zeros(TASKS, np.bool_)
        self._infos = [{} for _ in range(TASKS)]

    def add(self, observation: np.ndarray, action: np.ndarray, reward: np.ndarray) -> None:
        self._buffer.add(observation, observation, action, reward, self._dones, self._infos)

    def sample(self) -> object:
        return self._buffer.sample(self._batch_size)

    @property
    def nbytes(self) -> int:
        held = self._buffer
        arrays = held.observations, held.next_observations, held.actions, held.rewards, held.dones
        return sum(array.nbytes for array in (*arrays, held.timeouts))


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call, in a block of several."""
    start = time.perf_counter()
    for _ in range(BLOCK):
        work()
    return (time.perf_counter() - start) / BLOCK


def filled(batch_size: int) -> dict[str, Ours | Theirs]:
    """Both sides, full to the last row and a little beyond."""
    rng = np.random.default_rng(0)
    steps = [
        (
            rng.standard_normal((TASKS, OBSERVATION), np.float32),
            rng.uniform(-1, 1, (TASKS, ACTION)).astype(np.float32),
            rng.random(TASKS, np.float32),
        )
        for _ in range(500)
    ]
    sides = {"ours": Ours(batch_size), "SB3": Theirs(batch_size)}
    for side in sides.values():
        for step in range(CAPACITY // TASKS + EPISODE // 3):
            side.add(*steps[step % len(steps)])
    return sides


def main() -> None:
    """Run and report."""
    chosen = arguments(__doc__)
    rows, metrics = [], {}
    for batch_size, suffix in ((512, ""), (1280, "_1280")):
        sides = filled(batch_size)
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(60 if chosen.quick else 300):
            for name, side in sides.items():
                times[name].append(seconds(side.sample))
        ours, theirs = (statistics.median(each) for each in times.values())
        rows.append((f"sample {batch_size}", "ours", ours * 1e6, "SB3", theirs * 1e6, "us"))
        metrics[f"ratio_sample{suffix}"] = theirs / ours
    sizes = [side.nbytes / CAPACITY for side in sides.values()]
    rows.append(("transition", "ours", sizes[0], "SB3", sizes[1], "bytes"))
    report("replay", rows, {**metrics, "bytes_per_transition": sizes[0]})


if __name__ == "__main__":
    main()
