"""Videos from frames: GIF with Pillow, which comes with Meta-World, or MP4 where there is `ffmpeg`."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trainer.errors import TrainerError, UsageError

_GREEN, _GREY = (40, 150, 60), (60, 60, 60)


@dataclass(frozen=True)
class Caption:
    """What stands over a frame.

    Attributes:
        left: text at the left.
        right: text at the right.
        good: whether the bar is green.
    """

    left: str
    right: str
    good: bool


def choose_path(wanted: Path) -> tuple[Path, str]:
    """Returns where the video goes, and what to tell the user if that is not as asked.

    Raises:
        UsageError: the name ends in neither `.gif` nor `.mp4`.
    """
    if wanted.suffix not in (".gif", ".mp4"):
        raise UsageError(f"{wanted}: a video is a .gif or an .mp4")
    if wanted.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        gif = wanted.with_suffix(".gif")
        return gif, f"ffmpeg is not installed, which an mp4 needs: writing {gif}"
    return wanted, ""


class VideoWriter:
    """Writes frames, all of one size, to a `.gif` or `.mp4` file; it is whole when the context is left.

    Frames of an MP4 go to ffmpeg one by one; those of a GIF are held to the end, 0.1 MB each at 320x320.

    Args:
        path: the file; its directory is made.
        milliseconds: how long a frame stays; a GIF rounds it to hundredths of a second.

    Raises:
        TrainerError: nothing was filmed, or ffmpeg failed.
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, milliseconds: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._milliseconds = milliseconds
        self._frames: list[Any] = []
        self._ffmpeg: subprocess.Popen[bytes] | None = None

    def add(self, frame: npt.NDArray[np.uint8], caption: Caption) -> None:
        """Adds a frame of shape (height, width, 3) with its caption over it."""
        from PIL import Image, ImageDraw

        picture = Image.fromarray(frame)
        draw = ImageDraw.Draw(picture)
        draw.rectangle((0, 0, picture.width, 15), fill=_GREEN if caption.good else _GREY)
        draw.text((4, 2), caption.left, fill="white")
        draw.text((picture.width - 4, 2), caption.right, fill="white", anchor="ra")
        if self._path.suffix == ".gif":
            # A palette per frame is a third of the memory, and all that a GIF holds anyway.
            self._frames.append(picture.quantize(128))
            return
        self._ffmpeg = self._ffmpeg or self._start_ffmpeg(picture.size)
        assert self._ffmpeg.stdin is not None
        # When ffmpeg has ended already, its own message at the end says why.
        with contextlib.suppress(BrokenPipeError):
            self._ffmpeg.stdin.write(picture.tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ffmpeg is not None:
            _, stderr = self._ffmpeg.communicate()
            if self._ffmpeg.returncode and error is None:
                last = stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
                raise TrainerError(f"ffmpeg ended with code {self._ffmpeg.returncode}: {last[0]}")
        elif self._frames and error is None:
            first, *rest = self._frames
            first.save(self._path, save_all=True, append_images=rest, duration=self._milliseconds, loop=0)
        elif error is None:
            raise TrainerError("no frame was filmed")

    def _start_ffmpeg(self, size: tuple[int, int]) -> subprocess.Popen[bytes]:
        command = [
            *("ffmpeg", "-loglevel", "error", "-y"),
            *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}"),
            *("-r", f"{1000 / self._milliseconds:g}", "-i", "-"),
            # Browsers play yuv420p only, and that needs even sizes.
            *("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", str(self._path)),
        ]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
