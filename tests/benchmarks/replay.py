"""Sampling a full replay of MT10's size: ours against Stable-Baselines3's ReplayBuffer, on the CPU.

A million transitions of 39 observations and 4 actions in float32, from ten environments, tensors out. Ours is
stratified by task and says of which task a transition is; the peer draws plainly, from its default layout.
Blocks are interleaved, the median block counts. `ratio_sample` is that of batch size 512 and
`ratio_sample_1280` of 1280, with the threads that torch takes by itself, for both; `ratio_sample_one_thread`
of 512 with one, as the trainer uses beside workers. `bytes_per_transition`: what ours allocates, over the
transitions that can be drawn; the peer's are the sizes of its arrays.

What binds is memory: of a batch of 512 on one thread the gather takes four fifths and the draw a tenth, and
from a replay that fits the cache the same batch takes a third of the time. `embedding_bag`, whose kernel
prefetches, gains no more than its doubled indices take to build. On a busy machine two threads
are slower than one, for torch waits for both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from tests.benchmarks._report import arguments, report
from trainer.envs.schedule import Schedule
from trainer.replay import Replay

TASKS, CAPACITY, EPISODE, OBSERVATION, ACTION = 10, 1_000_000, 500, 39, 4
BATCH_SIZES = 512, 1280
BLOCK = 30


def fill(ours: list[Replay], theirs: ReplayBuffer) -> None:
    """Adds the same to all, until they are full and a little beyond."""
    rng = np.random.default_rng(0)
    schedule = Schedule(TASKS, TASKS, EPISODE, 50, rng)
    dones = np.zeros(TASKS, np.bool_)
    infos = [{} for _ in range(TASKS)]
    for _ in range(CAPACITY // TASKS + EPISODE // 3):
        shown, following = rng.standard_normal((2, TASKS, OBSERVATION), np.float32)
        action, reward = rng.random((TASKS, ACTION), np.float32), rng.random(TASKS, np.float32)
        task, remaining = schedule.tasks, schedule.remaining
        for replay in ours:
            replay.add(shown, action, reward, following, task, remaining)
        theirs.add(shown, following, action, reward, dones, infos)
        schedule.advance()


def medians(sides: list[Callable[[], object]], blocks: int) -> list[float]:
    """Seconds a call of each side."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(blocks):
        for work, found in zip(sides, times, strict=True):
            start = time.perf_counter()
            for _ in range(BLOCK):
                work()
            found.append((time.perf_counter() - start) / BLOCK)
    return [statistics.median(found) for found in times]


def main() -> None:
    """Run and report."""
    blocks = 100 if arguments(__doc__).quick else 500
    shape = EPISODE, OBSERVATION, ACTION
    ours = [Replay(TASKS, TASKS, CAPACITY, batch_size, *shape) for batch_size in BATCH_SIZES]
    shown = spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
    acted = spaces.Box(-1, 1, (ACTION,), np.float32)
    theirs = ReplayBuffer(CAPACITY, shown, acted, device="cpu", n_envs=TASKS)
    fill(ours, theirs)

    rows, metrics = [], {}
    both = list(zip(BATCH_SIZES, ours, strict=True))
    threads = torch.get_num_threads()
    for name, (batch_size, replay), count in (
        ("ratio_sample", both[0], threads),
        ("ratio_sample_1280", both[1], threads),
        ("ratio_sample_one_thread", both[0], 1),
    ):
        torch.set_num_threads(count)
        mine, peer = medians([replay.sample, partial(theirs.sample, batch_size)], blocks)
        rows.append((f"sample {batch_size}, threads: {count}", "ours", mine * 1e6, "SB3", peer * 1e6, "us"))
        metrics[name] = peer / mine
    arrays = theirs.observations, theirs.next_observations, theirs.actions, theirs.rewards, theirs.dones
    peer = sum(array.nbytes for array in (*arrays, theirs.timeouts)) / CAPACITY
    metrics["bytes_per_transition"] = ours[0].nbytes / CAPACITY
    rows.append(("transition", "ours", metrics["bytes_per_transition"], "SB3", peer, "bytes"))
    report("replay", rows, metrics)


if __name__ == "__main__":
    main()
