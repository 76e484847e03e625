"""`python -m trainer play`: a video of a trained policy at work, and whether it succeeds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.arguments import Parser, at_least, nearest
from trainer.errors import TrainerError, UsageError
from trainer.rendering import INSTALL_HINT, Camera, environment, probe_all
from trainer.video import Caption, VideoWriter, choose_path

Frame = npt.NDArray[np.uint8]

MAX_STEPS = 500
STEPS_PER_FRAME = 4
"""A step is 1/80 of a second of simulation: one frame in four plays in real time at 20 frames a second."""

AFTER_SUCCESS = 20
"""Steps an episode goes on once it is solved, so that one can see it."""


@dataclass(frozen=True)
class Episode:
    """How an episode went.

    Attributes:
        task: full task name.
        goal: index of the goal.
        success: solved at any step.
        steps: steps played.
        mean_reward: per step, 0..10.
    """

    task: str
    goal: int
    success: bool
    steps: int
    mean_reward: float


def main(argv: Sequence[str]) -> int:
    """Plays episodes, writes the video, prints a line for each; returns the exit code.

    Raises:
        UsageError: an argument is wrong.
        TrainerError: the model cannot be read, nothing can be rendered, or the video cannot be written.
    """
    given = _parser().read(argv)
    out, said = choose_path(given.out)
    if said:
        sys.stderr.write(f"{said}\n")
    probe = probe_all()[-1]
    if not probe.works:
        raise TrainerError(f"nothing can be rendered here: {probe.backend}: {probe.fault}", hint=INSTALL_HINT)
    # MuJoCo reads these when it is imported, which nothing has done so far.
    os.environ.update(environment(probe.backend))
    from trainer.device import configure
    from trainer.model import load_model

    # One observation at a time: a second thread would only wait for the first.
    model = load_model(given.model, configure("cpu", threads=1))
    tasks = _tasks(given.task, model.tasks)
    solved = 0
    with VideoWriter(out, 1000 * STEPS_PER_FRAME // 80) as video:
        for task in tasks:
            for number in range(given.episodes):
                episode = _film(model, task, number, given.size, video)
                solved += episode.success
                verdict = f"success after {episode.steps} steps" if episode.success else "no success"
                line = f"{episode.task} goal {episode.goal}: {verdict}, mean reward {episode.mean_reward:.2f}"
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
    count = len(tasks) * given.episodes
    sys.stdout.write(f"{solved} of {count} episodes succeeded; video: {out}\n")
    return 0


def _parser() -> Parser:
    parser = Parser(prog="python -m trainer play", description="Film a trained policy.")
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a run, a checkpoint of it, or its final_model.pt")
    add("--task", metavar="NAME", help="play this task only (all the model knows)")
    add(
        "--episodes",
        type=at_least(1),
        default=1,
        metavar="N",
        help="episodes a task, each with its own goal (1)",
    )
    add(
        "--out",
        type=Path,
        default=Path("play.gif"),
        metavar="FILE",
        help="a .gif, or .mp4 with ffmpeg (play.gif)",
    )
    add("--size", type=at_least(64), default=320, metavar="N", help="width and height in pixels (320)")
    return parser


def _tasks(wanted: str | None, known: Sequence[str]) -> list[str]:
    if wanted is None:
        return list(known)
    full = wanted if wanted.endswith("-v3") else f"{wanted}-v3"
    if full not in known:
        raise UsageError(
            f"the model does not know the task {wanted!r}{nearest(full, known)}",
            hint=f"it knows {', '.join(known)}",
        )
    return [full]


def _film(model: Any, task: str, number: int, size: int, video: VideoWriter) -> Episode:
    """Plays one episode with the deterministic policy and adds it to the video."""
    from trainer.envs.metaworld import MetaworldFactory

    goals = int(model.recipe["values"]["goals_per_task"])
    goal = number % goals
    env = MetaworldFactory(model.tasks, goals_per_task=goals)(model.tasks.index(task))
    world, data = env.simulation
    camera = Camera(world, size, size)
    rewards: list[float] = []
    solved_at: int | None = None
    try:
        for step, (reward, success) in enumerate(_rollout(model, env, task, goal), start=1):
            rewards.append(reward)
            if success and solved_at is None:
                solved_at = step
            if step % STEPS_PER_FRAME == 1:
                video.add(camera.frame(data), Caption(task, f"step {step}", solved_at is not None))
            if solved_at is not None and step >= solved_at + AFTER_SUCCESS:
                break
    finally:
        camera.close()
        env.close()
    return Episode(task, goal, solved_at is not None, solved_at or len(rewards), float(np.mean(rewards)))


def _rollout(model: Any, env: Any, task: str, goal: int) -> Iterator[tuple[float, bool]]:
    """Yields reward and success of each step of an episode."""
    index = np.array([model.tasks.index(task)], np.int32)
    observation = env.reset(goal)
    for _ in range(MAX_STEPS):
        action = model.policy.act(observation[None].astype(np.float32), index, greedy=True)[0]
        observation, reward, success = env.step(action)
        yield reward, success
