"""Tests inside the container which modules import and work. Prints one JSON object.

    python inside.py REQUEST.json

It is copied to the cluster and run by the image's interpreter, with a minimal standard library (Debian's
python3-minimal has no tempfile) of Python 3.8. Each import runs in its own process, which a broken driver may
kill.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

SECONDS = 60
"""Time limit of one import."""
IN_ALL = 80
"""Time limit of all imports, so that the rest is reported before the job's limit."""
TORCH = """
import json, torch
found = {"version": torch.__version__, "cuda": torch.version.cuda, "available": False}
found["hip"] = getattr(torch.version, "hip", None)
try:
    ones = torch.ones(64, 64, device="cuda")
    found["available"] = bool((ones @ ones == 64).all())
    found["device"] = torch.cuda.get_device_name()
except Exception as error:
    found["why"] = " ".join(str(error).split())[:300]
print(json.dumps(found))
"""
RENDERING = """
import json, mujoco
scene = '<mujoco><worldbody><light pos="0 0 3"/><geom size=".5" rgba="1 0 0 1"/></worldbody></mujoco>'
model = mujoco.MjModel.from_xml_string(scene)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 48, 64)
renderer.update_scene(data)
print(json.dumps({"version": mujoco.__version__, "contrast": float(renderer.render().std())}))
"""
WANDB = "import json, wandb; print(json.dumps({'version': wandb.__version__}))"
IMPORTS = {"torch": TORCH, "wandb": WANDB}
TOOLS = "sh cat chmod cp cut date du find grep ln ls mkdir mkfifo mv od readlink rm sed sleep tail tee tr wc"
"""What templates/environment.sh needs."""
BACKENDS = ("cgl",) if sys.platform == "darwin" else ("egl", "osmesa")


def tried(code: str, env: dict[str, str], end: float) -> dict[str, object]:
    """A program's output, or one line with its `fault`."""
    seconds = min(float(SECONDS), end - time.monotonic())
    if seconds <= 0:
        return {"fault": "no time was left for it"}
    try:
        done = subprocess.run(
            [sys.executable, "-X", "utf8", "-c", code],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"fault": "it took more than %.0f s" % seconds}
    if done.returncode < 0:
        return {"fault": "it crashed with " + signal.Signals(-done.returncode).name}
    if done.returncode:
        return {"fault": (done.stderr.strip().splitlines() or ["no reason given"])[-1][:300]}
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def rendering(env: dict[str, str], end: float) -> dict[str, object]:
    """The first working OpenGL backend, starting with the configured one, and the faults of the others."""
    faults: dict[str, object] = {}
    asked = env.get("MUJOCO_GL")
    for backend in dict.fromkeys(([asked] if asked else []) + list(BACKENDS)):
        chosen = {} if backend == "cgl" else {"MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
        found = tried(RENDERING, dict(env, **chosen), end)
        contrast = found.get("contrast")
        if isinstance(contrast, float) and contrast > 1:
            return {"backend": backend, "version": found["version"], "faults": faults}
        faults[backend] = found.get("fault", "the frame is empty")
    return {"backend": "", "faults": faults}


def temporary() -> dict[str, object]:
    """Whether a temporary file can be written."""
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - the very folder that is looked at
    path = os.path.join(folder, ".clusterkit-doctor-%d" % os.getpid())
    try:
        with open(path, "wb") as file:
            file.write(bytes(1 << 20))
        os.remove(path)
    except OSError as error:
        return {"fault": str(error)}
    return {"folder": folder}


def installers() -> dict[str, object]:
    """Whether this Python could build an environment, which conda there is, and which tools are missing."""
    try:
        import shutil
        from importlib.util import find_spec
    except ImportError:  # Debian's python3-minimal can build none
        return {}
    missing = [name for name in TOOLS.split() if not shutil.which(name)]
    conda = next((name for name in ("micromamba", "mamba", "conda") if shutil.which(name)), "")
    found: dict[str, object] = {name: find_spec(name) is not None for name in ("venv", "ensurepip", "pip")}
    return dict(found, conda=conda, missing=missing)


def tested(name: str, env: dict[str, str], end: float) -> dict[str, object]:
    """What a test finds."""
    if name == "installers":
        return installers()
    return rendering(env, end) if name == "rendering" else tried(IMPORTS[name], env, end)


def main(path: str) -> None:
    """Run the tests that are asked for and print the result."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    env, end = dict(os.environ, **request["env"]), time.monotonic() + IN_ALL
    found: dict[str, object] = {"python": sys.version.split()[0], "temporary": temporary()}
    found.update({name: tested(name, env, end) for name in request["tests"]})
    print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
