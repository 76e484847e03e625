"""Replays filled as a run fills them, beside a plain list of everything that went in."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext

import numpy as np
import torch
from hypothesis import strategies as st

from trainer.envs.schedule import Schedule
from trainer.replay import Batch, Replay
from trainer.replay.draw import BatchSampler, DeviceDraw
from trainer.replay.transfer import Sender


def draw_as_on_a_device(replay: Replay, sampler: BatchSampler | None = None) -> None:
    """Has a replay on the host draw, and be told of what is added, as one on a GPU does."""
    device = torch.device("cpu")
    replay._draw, replay._sender = DeviceDraw(replay._layout, replay._lanes, device), Sender(device)
    if sampler is not None:
        replay._sampler = sampler
        alone = [replay], [nullcontext()], replay.window[None], replay._task[None]
        replay._fill = Replay.filling(*alone)


class Filled:
    """A replay, and beside it the episodes of each lane.

    An observation is (task, its serial number, environment). Action and reward follow from the serial
    number of the observation before them.
    """

    def __init__(
        self, num_tasks: int, num_envs: int, share: int, episode_steps: int, *, stagger: bool, extra: int
    ) -> None:
        self.num_tasks, self.num_envs, self.share = num_tasks, num_envs, share
        self.episode_steps, self.stagger = episode_steps, stagger
        self.batch_size = num_tasks + extra
        self.replay = self.make()
        self.lanes: dict[tuple[int, int], list[list[tuple[int, int]]]] = defaultdict(list)
        self.serial = 0
        self.start()

    def __repr__(self) -> str:
        return (
            f"Filled({self.num_tasks}, {self.num_envs}, {self.share}, {self.episode_steps}, {self.stagger})"
        )

    def make(self, num_envs: int | None = None) -> Replay:
        """An empty replay of the same kind."""
        # what does not divide is lost, never more than a transition a task
        capacity = self.num_tasks * self.share + self.num_tasks - 1
        envs = num_envs or self.num_envs
        return Replay(self.num_tasks, envs, capacity, self.batch_size, self.episode_steps, 3, 2)

    def start(self) -> None:
        """Every environment starts an episode."""
        rng = np.random.default_rng(0)
        self.schedule = Schedule(
            self.num_envs, self.num_tasks, self.episode_steps, 1, rng, stagger=self.stagger
        )
        self.shown = [self.show() for _ in range(self.num_envs)]
        self.stored = [False] * self.num_envs
        self.fresh = [True] * self.num_envs

    def show(self) -> int:
        self.serial += 1
        return self.serial

    def episodes(self, env: int) -> list[list[tuple[int, int]]]:
        """Those of the lane that an environment fills now."""
        return self.lanes[int(self.schedule.tasks[env]), min(env, self.fixed) // self.num_tasks]

    @property
    def fixed(self) -> int:
        return self.num_envs - self.num_envs % self.num_tasks

    def step(self, times: int = 1, replays: tuple[Replay, ...] = ()) -> None:
        """Steps every environment; further replays are filled alike."""
        for _ in range(times):
            task, remaining = self.schedule.tasks, self.schedule.remaining
            following = [self.show() for _ in range(self.num_envs)]
            for env in range(self.num_envs):
                episodes = self.episodes(env)
                if self.fresh[env]:
                    # an episode that begins in the middle has room only at the beginning of a lane
                    self.stored[env] = not episodes or remaining[env] == self.episode_steps
                    if self.stored[env]:
                        episodes.append([])
                if self.stored[env]:
                    episodes[-1].append((self.shown[env], following[env]))
                self.fresh[env] = remaining[env] == 1
            serial = np.array(self.shown, np.float32)
            column = np.arange(self.num_envs, dtype=np.float32)
            for replay in (self.replay, *replays):
                replay.add(
                    np.stack([task, serial, column], 1).astype(np.float32),
                    np.stack([serial / 4, -serial], 1),
                    serial * 2,
                    np.stack([task, following, column], 1).astype(np.float32),
                    task,
                    remaining,
                )
            self.shown = [
                self.show() if cut else shown for cut, shown in zip(self.fresh, following, strict=True)
            ]
            self.schedule.advance()

    def cut(self) -> None:
        """Breaks off all running episodes and starts others."""
        for env in range(self.num_envs):
            if self.stored[env] and not self.fresh[env]:
                self.episodes(env).pop()
        self.start()

    def expected(self, task: int) -> dict[int, int]:
        """The newest transitions of a task, as many of each lane as it has room for."""
        own, spare = divmod(self.num_envs, self.num_tasks)
        ends = [self.share * self.num_tasks * lane // self.num_envs for lane in range(own + 1)]
        found: list[tuple[int, int]] = []
        for lane, capacity in enumerate(np.diff([*ends, self.share] if spare else ends)):
            held = [pair for episode in self.lanes[task, lane] for pair in episode]
            found += held[max(0, len(held) - capacity) :]
        return dict(found)

    @property
    def ready(self) -> bool:
        """Whether every task holds something that can be drawn."""
        return all(self.expected(task) for task in range(self.num_tasks))

    def check(self, batch: Batch) -> None:
        """Every transition of the batch is whole, of its task and among the newest."""
        share = torch.bincount(batch.task, minlength=self.num_tasks)
        assert share.sum() == self.batch_size
        assert share.max() - share.min() <= 1
        self.check_whole(batch)
        following = batch.next_observation[:, 1].int().tolist()
        expected = [self.expected(task) for task in range(self.num_tasks)]
        for task, serial, after in zip(batch.task, batch.observation[:, 1].int(), following, strict=True):
            assert expected[task][int(serial)] == after

    def check_whole(self, batch: Batch) -> None:
        """The parts of each transition belong together."""
        serial = batch.observation[:, 1]
        assert torch.equal(batch.observation[:, 0].long(), batch.task)
        assert torch.equal(batch.next_observation[:, 0].long(), batch.task)
        assert torch.equal(batch.observation[:, 2], batch.next_observation[:, 2])
        assert torch.equal(batch.action, torch.stack([serial / 4, -serial], 1))
        assert torch.equal(batch.reward, serial * 2)


def filled(max_share: int = 40) -> st.SearchStrategy[Filled]:
    """Small replays of all kinds."""
    return st.builds(
        Filled,
        num_tasks=st.integers(1, 4),
        num_envs=st.integers(1, 9),
        share=st.integers(3, max_share),
        episode_steps=st.integers(1, 9),
        stagger=st.booleans(),
        extra=st.integers(0, 9),
    )


few_or_many = st.integers(0, 9) | st.integers(0, 70)
"""Vector steps: within an episode, or over several."""


def same_draws(one: Replay, other: Replay, batches: int = 3) -> bool:
    """Whether two replays draw the same from now on."""
    for _ in range(batches):
        ours = [part.clone() for part in one.sample().tensors]
        if not all(
            torch.equal(left, right) for left, right in zip(ours, other.sample().tensors, strict=True)
        ):
            return False
    return True
