from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from trainer import play, recipe
from trainer.camera.filming import ContactSheet, SheetEpisode
from trainer.camera.video import Caption, VideoWriter, choose_path
from trainer.errors import TrainerError, UsageError


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an untrained final model."""
    from trainer.algorithms import sac_learner
    from trainer.checkpoint import model
    from trainer.envs.spaces import unit_box

    home = tmp_path_factory.mktemp("run")
    demo = recipe.load("local-demo")
    tasks = recipe.task_names(demo.values["tasks"])
    learner = sac_learner.SAC(sac_learner.SACConfig.from_values(demo.values), 39, 4, len(tasks))
    model.save_final(home, model.about(demo.as_json(), tasks, 39, 4, 0, unit_box(4)), learner.state_dict())
    return home


@pytest.mark.slow
def test_a_film_of_a_model_is_the_right_way_up(run_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "videos" / "play.gif"
    arguments = [str(run_dir), "--task", "reach", "--out", str(out), "--size", "96"]
    # A process of its own: MuJoCo binds to the OpenGL of the environment it is imported in.
    code = f"from trainer import play; play.MAX_STEPS = 40; play.main({arguments})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "nothing can be rendered here" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("reach-v3 goal 0: no success, mean reward ")
    assert done.stdout.splitlines()[1] == f"0 of 1 episodes succeeded; video: {out}"
    with Image.open(out) as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (10, (96, 96), 50)
        picture = np.asarray(film.convert("RGB"), np.float32)
    assert picture[16:].std() > 20
    # The table's wood, more red than blue, fills the lower edge; the background is grey.
    assert picture[-12:, :, 0].mean() - picture[-12:, :, 2].mean() > 20


class Scripted:
    """A policy that solves reach: the hand goes straight to the goal, which the observation ends with."""

    def act(self, observation: npt.NDArray[Any], task: npt.NDArray[Any], *, greedy: bool) -> npt.NDArray[Any]:
        assert greedy
        way = (observation[:, 36:39] - observation[:, 0:3]) * 10
        return np.concatenate([np.clip(way, -1, 1), np.zeros((len(way), 1))], axis=1).astype(np.float32)


class Frames:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.captions: list[Caption] = []

    def add(self, frame: npt.NDArray[np.uint8], caption: Caption) -> None:
        self.captions.append(caption)


def test_success_is_seen_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    # The camera is left out: this test is of the episode, and another one may have bound MuJoCo to no OpenGL.
    black = np.zeros((8, 8, 3), np.uint8)
    camera = SimpleNamespace(frame=lambda data: black, close=lambda: None)
    monkeypatch.setattr(play, "Camera", lambda *arguments: camera)
    model = SimpleNamespace(
        policy=Scripted(),
        tasks=("push-v3", "reach-v3"),
        recipe={"values": {"goals_per_task": 50}},
        goal_seed=42,
    )
    film = Frames()
    episode = play._film(model, "reach-v3", 52, 8, film)  # type: ignore[arg-type]
    assert episode.success
    assert episode.goal == 2
    assert episode.steps < 200
    assert episode.mean_reward > 5
    assert [caption.good for caption in film.captions[:3]] == [False] * 3
    assert film.captions[-1].good
    assert len(film.captions) == -(-(episode.steps + play.AFTER_SUCCESS) // play.STEPS_PER_FRAME)


def test_an_unknown_task_is_answered_with_those_known() -> None:
    known = ("reach-v3", "door-close-v3")
    assert play._tasks(None, known) == [*known]
    assert play._tasks(["reach", "reach-v3"], known) == ["reach-v3"]
    with pytest.raises(UsageError, match="did you mean door-close-v3") as caught:
        play._tasks(["door-open"], known)
    assert caught.value.hint == "it knows reach-v3, door-close-v3"


@pytest.mark.slow
def test_where_nothing_can_be_rendered(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "bogus")
    with pytest.raises(TrainerError, match="nothing can be rendered here: bogus") as caught:
        play.main([str(run_dir)])
    assert "apt-get" in (caught.value.hint or "")


def picture(shade: int) -> npt.NDArray[np.uint8]:
    return np.full((33, 47, 3), shade, np.uint8)


def test_a_gif(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "film.gif", 50) as video:
        for shade in (0, 100, 200):
            video.add(picture(shade), Caption("reach-v3", f"step {shade}", shade == 200))
    with Image.open(tmp_path / "film.gif") as film:
        assert (film.n_frames, film.size) == (3, (47, 33))
        film.seek(2)
        shown = np.asarray(film.convert("RGB"), int)
    assert abs(shown[30, 20] - 200).max() < 10
    assert shown[1, 1, 1] > shown[1, 1, 0] + 50, "the bar over a success is green"


@pytest.mark.needs("ffmpeg")
def test_an_mp4(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    with VideoWriter(path, 50) as video:
        for shade in range(0, 200, 10):
            video.add(picture(shade), Caption("reach-v3", "", False))
    argv = ["ffmpeg", "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run(argv, capture_output=True, check=True).stdout
    assert np.frombuffer(pixels, np.uint8).reshape(-1, 34, 48, 3).shape[0] == 20


@pytest.mark.needs("ffmpeg")
def test_ffmpeg_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "film.mp4").mkdir()

    def film() -> None:
        with VideoWriter(tmp_path / "film.mp4", 50) as video:
            video.add(picture(0), Caption("", "", False))

    with pytest.raises(TrainerError, match="ffmpeg ended with code"):
        film()


def test_nothing_filmed_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="no frame"), VideoWriter(tmp_path / "film.gif", 50):
        pass


def test_the_path_of_the_video(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert choose_path(Path("film.gif")) == (Path("film.gif"), "")
    with pytest.raises(UsageError, match=r"\.gif or an \.mp4"):
        choose_path(Path("film.avi"))
    monkeypatch.setenv("PATH", str(tmp_path))
    path, said = choose_path(Path("film.mp4"))
    assert path == Path("film.gif")
    assert "ffmpeg is not installed" in said


def episode(frames: int) -> SheetEpisode:
    one = SheetEpisode()
    for number in range(frames):
        shade = round(255 * number / max(1, frames - 1))
        one.add(np.full((64, 64, 3), shade, np.uint8), Caption("reach-v3", f"step {number}", False))
    return one


@pytest.mark.parametrize("frames", [1, 2, 5, 64, 65, 125, 1000])
def test_moments_are_spread_from_the_first_to_the_last(frames: int) -> None:
    labels = [int(label.removeprefix("step ")) for _, label in episode(frames).moments(5)]
    assert (labels[0], labels[-1], len(labels)) == (0, frames - 1, 5)
    if frames >= 5:
        assert labels == sorted(set(labels))
        assert max(np.diff(labels)) <= 0.4 * frames


def test_a_sheet_of_few(tmp_path: Path) -> None:
    sheet = ContactSheet(2)
    sheet.add("reach-v3: success", True, episode(30))
    sheet.add("push-v3: no success", False, episode(30))
    sheet.save(tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as picture:
        pixels = np.asarray(picture, int)
    height, width, _ = pixels.shape
    assert width > 5 * 170
    assert height > 2 * 170
    middles = pixels[100, [90 + 180 * place for place in range(5)], 0]
    assert (np.diff(middles) > 30).all(), "it grows bright from left to right"
    green, grey = pixels[6, width - 10], pixels[height // 2 + 6, width - 10]
    assert green[1] > green[0] + 50
    assert np.ptp(grey) == 0


def test_fifty_tasks_stand_in_blocks(tmp_path: Path) -> None:
    sheet, one = ContactSheet(50), episode(10)
    for number in range(50):
        sheet.add(f"task-{number}", number % 2 == 0, one)
    sheet.save(tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as picture:
        width, height = picture.size
    assert 0.5 < width / height < 2
