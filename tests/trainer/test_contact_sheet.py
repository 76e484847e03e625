from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainer.camera.filming import ContactSheet, SheetEpisode
from trainer.camera.video import Caption


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
