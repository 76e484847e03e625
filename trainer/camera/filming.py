"""Episodes on film: their outcome, frames of Gymnasium environments, and contact sheets, a row an episode."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainer.camera.rendering import INSTALL_HINT
from trainer.camera.video import Caption
from trainer.errors import TrainerError, UsageError

FRAMES_A_SECOND = 20
_LONGEST = 1000
"""Steps that are filmed where the environment sets no limit."""


class Film(Protocol):
    """Where the frames go."""

    def add(self, frame: npt.NDArray[np.uint8], caption: Caption) -> None:
        """Takes a frame of shape (height, width, 3)."""


@dataclass(frozen=True)
class Episode:
    """How an episode went.

    Attributes:
        task: full task name.
        goal: index of the goal, or the number of the seed.
        success: solved at any step; None where the environment knows no success.
        steps: steps played.
        mean_reward: per step.
    """

    task: str
    goal: int
    success: bool | None
    steps: int
    mean_reward: float

    @property
    def verdict(self) -> str:
        """How it went, in words."""
        if self.success is None:
            total = self.mean_reward * self.steps
            return f"{self.task} seed {self.goal}: return {total:.1f} in {self.steps} steps"
        how = f"success after {self.steps} steps" if self.success else "no success"
        return f"{self.task} goal {self.goal}: {how}"


def film_gymnasium(policy: Any, factory: Any, number: int, size: int, film: Film) -> Episode:
    """Plays one episode of a Gymnasium environment with the deterministic policy and adds it to a film.

    Args:
        policy: acts.
        factory: a `GymnasiumFactory` for evaluations.
        number: of the episode's seed; evaluations begin with the same episodes.
        size: width and height in pixels.
        film: where the frames go.

    Raises:
        UsageError: the environment has no pictures.
        TrainerError: it cannot draw them here.
    """
    from trainer.envs.gymnasium_env import GymnasiumEnv

    task = factory.environment
    modes = factory(0).env.metadata.get("render_modes", [])
    if "rgb_array" not in modes:
        raise UsageError(
            f"{task} cannot be filmed: it can render {', '.join(modes) or 'nothing'}",
            hint="the environment must offer the render mode rgb_array; `evaluate` does not need it",
        )
    env = GymnasiumEnv(factory, render_mode="rgb_array")
    every = max(1, round(env.env.metadata.get("render_fps", FRAMES_A_SECOND) / FRAMES_A_SECOND))
    rewards: list[float] = []
    solved, task_id = False, np.zeros(1, np.int32)
    try:
        observation, over = env.reset(number), False
        while not over:
            action = policy.act(observation[None].astype(np.float32), task_id, greedy=True)[0]
            observation, reward, success = env.step(action)
            rewards.append(reward)
            solved |= success
            over = env.terminated or env.truncated or len(rewards) >= (factory.horizon or _LONGEST)
            if over or len(rewards) % every == 1 % every:
                film.add(_picture(env.env, task, size), Caption(task, f"step {len(rewards)}", solved))
    finally:
        env.close()
    outcome = solved if factory.reports_success else None
    return Episode(task, number, outcome, len(rewards), float(np.mean(rewards)))


def _picture(env: Any, task: str, size: int) -> npt.NDArray[np.uint8]:
    """The environment's picture, fitted into a square."""
    from gymnasium.error import DependencyNotInstalled
    from PIL import Image, ImageOps

    try:
        drawn = np.asarray(env.render(), np.uint8)
    except DependencyNotInstalled as error:
        missing, _, advice = str(error).partition(", run ")
        # of the pip of this Python, which need not be the one on PATH
        command = advice.strip("`").removeprefix("pip install ") or "'gymnasium[all]'"
        raise TrainerError(
            f"{task} cannot be drawn here: {missing}", hint=f"{sys.executable} -m pip install {command}"
        ) from error
    except Exception as error:  # of somebody else's code, often of a package that is not there
        simulated = hasattr(env.unwrapped, "mujoco_renderer")
        raise TrainerError(
            f"{task} cannot be drawn here: {(str(error) or repr(error)).splitlines()[0]}",
            hint=INSTALL_HINT if simulated else None,
        ) from error
    return np.asarray(ImageOps.pad(Image.fromarray(drawn), (size, size)))


_CELL, _BAR, _GAP = 176, 20, 4
"""Pixels: width and height of a moment, height of the bar over a row, space between."""
_ROWS = 10
"""More rows than these go on in a block at the right."""
_GREEN, _GREY, _INK, _PAPER = (40, 150, 60), (90, 90, 90), (255, 255, 255), (255, 255, 255)


class SheetEpisode:
    """The frames of one episode as they are filmed; only as many as may be needed are kept."""

    _MOST = 64

    def __init__(self) -> None:
        self._frames: list[tuple[Any, str]] = []
        self._every, self._seen = 1, 0

    def add(self, frame: npt.NDArray[np.uint8], caption: Caption) -> None:
        """Takes a frame of shape (height, width, 3)."""
        from PIL import Image

        if self._seen % self._every == 0:
            self._frames.append((Image.fromarray(frame).resize((_CELL, _CELL)), caption.right))
            if len(self._frames) > self._MOST:
                self._frames = self._frames[::2]
                self._every *= 2
        self._last = (frame, caption.right)
        self._seen += 1

    def moments(self, count: int) -> list[tuple[Any, str]]:
        """Returns `count` pictures and what stands at them, evenly spread from the first to the last."""
        from PIL import Image

        frames = list(self._frames)
        if frames[-1][1] != self._last[1]:
            frames.append((Image.fromarray(self._last[0]).resize((_CELL, _CELL)), self._last[1]))
        places = np.linspace(0, len(frames) - 1, count).round().astype(int)
        return [frames[place] for place in places]


class ContactSheet:
    """Collects rows and draws them.

    Args:
        rows: how many there will be at most.
    """

    def __init__(self, rows: int) -> None:
        self._moments = 5 if rows <= _ROWS else 3
        self._rows: list[tuple[str, bool, list[tuple[Any, str]]]] = []

    def add(self, title: str, good: bool, episode: SheetEpisode) -> None:
        """Adds a row; its bar is green when it is good."""
        self._rows.append((title, good, episode.moments(self._moments)))

    def save(self, path: Path) -> None:
        """Writes a PNG.

        Raises:
            OSError: it cannot be written.
        """
        from PIL import Image, ImageDraw

        blocks = -(-len(self._rows) // _ROWS)
        height = -(-len(self._rows) // blocks)
        wide, tall = self._moments * (_CELL + _GAP), _BAR + _CELL + 2 * _GAP
        sheet = Image.new("RGB", (blocks * (wide + _GAP) + _GAP, height * tall + _GAP), _PAPER)
        draw = ImageDraw.Draw(sheet)
        for number, (title, good, moments) in enumerate(self._rows):
            left = _GAP + number // height * (wide + _GAP)
            top = _GAP + number % height * tall
            draw.rectangle(
                (left, top, left + wide - _GAP - 1, top + _BAR - 1), fill=_GREEN if good else _GREY
            )
            draw.text((left + 6, top + 4), title, fill=_INK)
            for place, (picture, label) in enumerate(moments):
                x, y = left + place * (_CELL + _GAP), top + _BAR
                sheet.paste(picture, (x, y))
                width = draw.textlength(label) + 8
                draw.rectangle((x, y + _CELL - 16, x + width, y + _CELL - 1), fill=_GREY)
                draw.text((x + 4, y + _CELL - 14), label, fill=_INK)
        sheet.save(path)
