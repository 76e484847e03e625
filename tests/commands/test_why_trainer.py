"""`clusterkit why` of what the trainer, PyTorch and W&B really say when they fail, on this machine.

What cannot be had without a GPU, PyTorch's words about its memory, a program says in PyTorch's stead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Project

# Where no GPU is, clusterkit submits no program of which it sees that it wants one.
CONFIG = """
[project]
name = "failing"
default_profile = "learner"

[clusters.local]
python = "PYTHON"

[profiles.learner]
time = "10m"
recipe = "sac"
total_steps = 4000
num_envs = 2
workers = 0
device = "cpu"
eval_every = 4000
eval_episodes = 1
checkpoint_every = 4000

[profiles.cuda]
time = "10m"
program = ["sh", "-c", "exec PYTHON -m trainer train --recipe sac --device cuda"]

[profiles.fault]
time = "10m"
program = ["python", "fault.py"]
"""
# PyTorch's own class and words (c10/cuda/CUDACachingAllocator.cpp).
FAULT = """
import sys
if sys.argv[1] == "logs-in":
    import wandb
    wandb.init(project="journey", mode="online")
import torch
raise torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 44.42 GiB of which"
    " 11.06 GiB is free. Including non-PyTorch memory, this process has 33.35 GiB memory in use. Of the"
    " allocated memory 32.90 GiB is allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but"
    " unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory"
    " Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
"""
WILD = {
    "environment": "Pendulum-v1",
    "reward_scale": "1e30",
    "warmup_steps": "80",
    "env_steps_per_update": "1",
    "batch_size": "16",
}
CAUSES = {
    "diverged": [
        *(word for key, value in WILD.items() for word in ("--set", f"{key}={value}", "--unlock", key)),
        *("--", "--log-every", "40", "--wandb", "disabled"),
    ],
    "no-gpu": ["--profile", "cuda"],
    "wrong-argument": ["--", "--learning-rate", "3"],
    "gpu-out-of-memory": ["--profile", "fault", "--", "small-gpu"],
    "wandb-login": ["--profile", "fault", "--", "logs-in"],
}


@pytest.mark.slow
def test_the_causes_that_programs_name(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (project.folder / "clusterkit.toml").write_text(CONFIG.replace("PYTHON", sys.executable))
    (project.folder / "fault.py").write_text(FAULT)
    runs = {cause: project.submit("--name", cause, *words) for cause, words in CAUSES.items()}
    named = {}
    for cause, run_id in runs.items():
        project.ended(run_id)
        named[cause] = json.loads(project.run("why", "--json", run_id).stdout)["cause"]
    assert named == {cause: cause for cause in CAUSES}
