"""Pictures of Meta-World without a display: which OpenGL works here, and a camera that sees the table.

MuJoCo binds to one OpenGL (`egl` on a GPU or Mesa, `osmesa` in software) when it is imported and cannot
change it later, and a broken driver may end the process. So each is tried in a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.ranks.place import python

BACKENDS = ("cgl",) if sys.platform == "darwin" else ("egl", "osmesa")
"""Tried in this order when `$MUJOCO_GL` does not name one: the GPU first."""

CAMERA = "corner4"
INSTALL_HINT = "apt-get install libegl1 libgl1 (for egl) or libosmesa6 (for osmesa), or set MUJOCO_GL"
_PROBE_SECONDS = 60.0


@dataclass(frozen=True)
class RenderProbe:
    """How one OpenGL did.

    Attributes:
        backend: a value of `$MUJOCO_GL`.
        size: width and height of the frame in pixels; (0, 0) without one.
        contrast: standard deviation of the frame, 0..255; a frame of one colour has 0.
        fault: why there is no frame, one line; empty if there is one.
    """

    backend: str
    size: tuple[int, int] = (0, 0)
    contrast: float = 0.0
    fault: str = ""

    @property
    def works(self) -> bool:
        """Whether a frame came, and shows something."""
        return not self.fault and self.contrast > 1.0


def probe_all(environ: Mapping[str, str] | None = None) -> list[RenderProbe]:
    """Tries `$MUJOCO_GL`, or else `BACKENDS` until one works; the last probe tells whether one does."""
    environ = os.environ if environ is None else environ
    probes: list[RenderProbe] = []
    for backend in [environ["MUJOCO_GL"]] if environ.get("MUJOCO_GL") else BACKENDS:
        probes.append(probe(backend, environ))
        if probes[-1].works:
            break
    return probes


def probe(backend: str, environ: Mapping[str, str] | None = None) -> RenderProbe:
    """Renders one frame of a task in a child process with this OpenGL."""
    environ = os.environ if environ is None else environ
    try:
        process = subprocess.run(
            [*python(), "-m", "trainer.camera.rendering"],
            env={**environ, **environment(backend)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return RenderProbe(backend, fault=f"no frame within {_PROBE_SECONDS:.0f} s")
    if process.returncode < 0:
        return RenderProbe(backend, fault=f"crashed with {signal.Signals(-process.returncode).name}")
    if not process.stdout:
        last = process.stderr.strip().splitlines()[-1:] or ["no message"]
        return RenderProbe(backend, fault=f"ended with code {process.returncode}: {last[0]}")
    seen = json.loads(process.stdout.splitlines()[-1])
    return RenderProbe(backend, tuple(seen["size"]), seen["contrast"], seen["fault"])


def environment(backend: str) -> dict[str, str]:
    """Returns the variables that make MuJoCo take this OpenGL; they must be set before it is imported."""
    if backend == "cgl":  # macOS's own, which MuJoCo takes unasked, and Gymnasium does not know by this name
        return {}
    return {"MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}


class Camera:
    """Renders the simulation of one environment. One process should have one at a time.

    Args:
        model: the `mujoco.MjModel`.
        width: of a frame in pixels.
        height: of a frame in pixels.
        name: a camera of the model.
    """

    def __init__(self, model: Any, width: int, height: int, name: str = CAMERA) -> None:
        import mujoco  # type: ignore[import-untyped]

        model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, height)
        self._renderer = mujoco.Renderer(model, height, width)
        # Three quarters of the time of a frame in software, and little to see.
        for costly in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[costly] = False
        self._name = name

    def frame(self, data: Any) -> npt.NDArray[np.uint8]:
        """Returns the picture of a `mujoco.MjData`, shape (height, width, 3)."""
        self._renderer.update_scene(data, camera=self._name)
        picture: npt.NDArray[np.uint8] = self._renderer.render()
        # Meta-World hangs its corner cameras upside down.
        return np.ascontiguousarray(picture[::-1, ::-1] if self._name.startswith("corner") else picture)

    def close(self) -> None:
        """Frees the OpenGL context."""
        self._renderer.close()


def main() -> None:
    """Renders one frame and prints a `RenderProbe` as JSON; the child of `probe`."""
    seen: dict[str, Any] = {"size": (0, 0), "contrast": 0.0, "fault": ""}
    # A missing OpenGL library surfaces as any exception at all, an AttributeError of None among them.
    try:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        env: Any = ALL_V3_ENVIRONMENTS["reach-v3"]()
        picture = Camera(env.model, 320, 240).frame(env.data)
        seen |= {"size": (picture.shape[1], picture.shape[0]), "contrast": float(picture.std())}
    except Exception as fault:
        seen["fault"] = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
