"""`python -m trainer play`: videos of a trained policy at work, and whether it succeeds."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.arguments import Parser, at_least, nearest
from trainer.camera.filming import FRAMES_A_SECOND, ContactSheet, Episode, film_gymnasium
from trainer.camera.filming import SheetEpisode as SheetEpisode
from trainer.camera.rendering import INSTALL_HINT, Camera, environment, probe_all
from trainer.camera.video import Caption, VideoWriter, choose_path
from trainer.envs.own_module import add_whose_code, refuse_foreign
from trainer.errors import TrainerError, UsageError
from trainer.recipe.environments import GYMNASIUM, METAWORLD, environment_of

Frame = npt.NDArray[np.uint8]

MAX_STEPS = 500
STEPS_PER_FRAME = 4
"""A step is 1/80 of a second of simulation: one frame in four plays in real time at 20 frames a second."""
_MILLISECONDS = 1000 // FRAMES_A_SECOND
SHEET = "contact-sheet.png"

AFTER_SUCCESS = 20
"""Steps an episode goes on once it is solved, so that one can see it."""


def main(argv: Sequence[str]) -> int:
    """Plays episodes, writes the video, prints a line for each; returns the exit code.

    Raises:
        UsageError: an argument is wrong, or the model's environment is not the user's code.
        TrainerError: the model cannot be read, nothing can be rendered, or the video cannot be written.
    """
    given = _parser().read(argv)
    out, said = choose_path(given.out)
    if said and given.folder is None:
        sys.stderr.write(f"{said}\n")
    probe = probe_all()[-1]
    if probe.works:
        # MuJoCo reads these when it is imported, which nothing has done so far.
        os.environ.update(environment(probe.backend))
    from trainer.checkpoint.model import load_model
    from trainer.machine.device import configure

    # One observation at a time: a second thread would only wait for the first.
    model = load_model(given.model, configure("cpu", threads=1))
    refuse_foreign(model.path, model.recipe["values"], named=given.environment, pulled=given.pulled)
    if not probe.works and environment_of(model.recipe["values"]) is METAWORLD:
        raise TrainerError(f"nothing can be rendered here: {probe.backend}: {probe.fault}", hint=INSTALL_HINT)
    tasks = _tasks(given.task, model.tasks)
    films = _one_film(out) if given.folder is None else _film_each(given.folder, tasks)
    episodes: list[Episode] = []
    with films as film_of:
        for task in tasks:
            with film_of(task) as film:
                for number in range(given.episodes):
                    episode = _film(model, task, number, given.size, film)
                    film.end(episode.verdict, bool(episode.success))
                    episodes.append(episode)
                    sys.stdout.write(f"{episode.verdict}, mean reward {episode.mean_reward:.2f}\n")
                    sys.stdout.flush()
    where = f"video: {out}" if given.folder is None else f"videos and {SHEET}: {given.folder}"
    sys.stdout.write(f"{_summary(episodes)}; {where}\n")
    return 0


def _summary(episodes: Sequence[Episode]) -> str:
    if any(episode.success is None for episode in episodes):
        mean = float(np.mean([episode.mean_reward * episode.steps for episode in episodes]))
        return f"mean return {mean:.1f}"
    return f"{sum(bool(episode.success) for episode in episodes)} of {len(episodes)} episodes succeeded"


class _TaskFilm:
    """Where the frames of a task go: its video, and the sheet, which shows its first episode."""

    def __init__(self, video: VideoWriter, sheet: ContactSheet | None = None) -> None:
        self._video, self._sheet = video, sheet
        self._shown = SheetEpisode() if sheet else None

    def add(self, frame: Frame, caption: Caption) -> None:
        self._video.add(frame, caption)
        if self._shown:
            self._shown.add(frame, caption)

    def end(self, verdict: str, success: bool) -> None:
        """An episode is over."""
        if self._sheet and self._shown:
            self._sheet.add(verdict, success, self._shown)
            self._shown = None


_FilmOf = Callable[[str], AbstractContextManager[_TaskFilm]]


@contextmanager
def _one_film(out: Path) -> Iterator[_FilmOf]:
    """All tasks in one video."""
    with VideoWriter(out, _MILLISECONDS) as video:
        yield lambda _task: nullcontext(_TaskFilm(video))


@contextmanager
def _film_each(folder: Path, tasks: Sequence[str]) -> Iterator[_FilmOf]:
    """A video for each task, MP4 where it can be made, and the contact sheet."""
    sheet, kind = ContactSheet(len(tasks)), "mp4" if shutil.which("ffmpeg") else "gif"

    @contextmanager
    def film_of(task: str) -> Iterator[_TaskFilm]:
        name = re.sub(r"[^\w.+-]", "-", task)
        with VideoWriter(folder / f"{name}.{kind}", _MILLISECONDS) as video:
            yield _TaskFilm(video, sheet)

    yield film_of
    sheet.save(folder / SHEET)


def _parser() -> Parser:
    parser = Parser(prog="python -m trainer play", description="Film a trained policy.")
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a run, a checkpoint of it, or its final_model.pt")
    add(
        "--task",
        action="append",
        metavar="NAME",
        help="play this task; may be repeated (all the model knows)",
    )
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
    add(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help=f"instead of --out: a video for each task and {SHEET}, into this folder",
    )
    add("--size", type=at_least(64), default=320, metavar="N", help="width and height in pixels (320)")
    add_whose_code(parser)
    return parser


def _tasks(wanted: Sequence[str] | None, tasks: Sequence[str]) -> list[str]:
    if not wanted:
        return list(tasks)
    chosen = []
    for name in wanted:
        full = name if name in tasks or name.endswith("-v3") else f"{name}-v3"
        if full not in tasks:
            raise UsageError(
                f"the model does not know the task {name!r}{nearest(full, tasks)}",
                hint=f"it knows {', '.join(tasks)}",
            )
        chosen.append(full)
    return list(dict.fromkeys(chosen))


def _film(model: Any, task: str, number: int, size: int, film: _TaskFilm) -> Episode:
    """Plays one episode with the deterministic policy and adds it to the film."""
    if environment_of(model.recipe["values"]) is GYMNASIUM:
        from trainer.envs.choice import factory_for

        factory = factory_for(model.entry, model.recipe["values"], (task,))
        return film_gymnasium(model.policy, factory.for_evaluation(), number, size, film)
    from trainer.envs.metaworld import MetaworldFactory

    goals = int(model.recipe["values"]["goals_per_task"])
    goal = number % goals
    env = MetaworldFactory(model.tasks, model.goal_seed, goals)(model.tasks.index(task))
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
                film.add(camera.frame(data), Caption(task, f"step {step}", solved_at is not None))
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
