"""The peers' own environment, `build/peers/venv`, with pinned versions and our constraints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BASE = ("torch", "numpy", "gymnasium[mujoco]", "mujoco", "nvidia-ml-py")
PEERS = {
    "sb3": ("stable-baselines3",),
    "skrl": ("skrl==2.1.1",),
    "rsl_rl": ("rsl-rl-lib==5.5.1",),
    "rl_games": ("rl-games==1.6.5",),
    "metaworld": ("metaworld",),
}
"""What is not pinned here is in constraints.txt."""


def interpreter(folder: Path) -> Path:
    """Returns the peers' Python."""
    return folder / "venv" / "bin" / "python"


def install(folder: Path) -> dict[str, str]:
    """Makes the environment if it is not there, and returns what could not be installed: name -> reason.

    Raises:
        SystemExit: not even PyTorch and Gymnasium can be installed.
    """
    constraints = ROOT / "constraints.txt"
    wanted = {"base": BASE, "peers": PEERS, "constraints": constraints.read_text(), "python": sys.version}
    asked, record = json.loads(json.dumps(wanted)), folder / "installed.json"
    if record.exists() and interpreter(folder).exists():
        known = json.loads(record.read_text())
        if known["asked"] == asked and not known["failed"]:
            return {}
    folder.mkdir(parents=True, exist_ok=True)
    print(f"installing the peers into {folder / 'venv'} (minutes, once)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")], check=True)
    problem = _pip(folder, BASE)
    if problem:
        raise SystemExit(f"the peers' environment cannot be made: {problem}")
    problems = {name: _pip(folder, packages) for name, packages in PEERS.items()}
    failed = {name: problem for name, problem in problems.items() if problem}
    for name, problem in failed.items():
        print(f"{name} cannot be installed here: {problem}", flush=True)
    record.write_text(json.dumps({"asked": asked, "failed": failed}, indent=1) + "\n")
    return failed


def _pip(folder: Path, packages: tuple[str, ...]) -> str:
    """Installs; returns what pip says is wrong, or nothing."""
    argv = [str(interpreter(folder)), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    argv += ["-c", str(ROOT / "constraints.txt"), *packages]
    done = subprocess.run(argv, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})
    if done.returncode == 0:
        return ""
    said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in said if line.startswith("ERROR")] or said or [f"exit code {done.returncode}"]
    return errors[0].removeprefix("ERROR: ")[:300]
