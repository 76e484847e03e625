"""What must not come into the processes of a run: megabytes and seconds for something that nobody uses."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.runs import changed
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.envs.interface import EnvFactory
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.schedule import Orders, WorkerCommand
from trainer.envs.vector import VectorEnv

UNUSED = ("torch._dynamo", "sympy", "metaworld", "mujoco", "scipy", "wandb", "matplotlib", "pandas")
"""Of a run on a small environment. PyTorch's own optimisers import the first two at their first use, and
`torch.autograd.grad` the second when it is given a weight."""


@pytest.mark.slow
def test_a_run_imports_only_what_it_uses(tmp_path):
    small = {"ppo": {"rollout_size": 64, "epochs": 1}, "sac": {"warmup_steps": 20, "batch_size": 8}}
    runs = []
    for recipe, values in small.items():
        runs.append(
            [
                *("train", "--recipe", recipe, *changed(values), "--total-steps", "64", "--num-envs", "1"),
                *("--eval-every", "0", "--wandb", "disabled", "--device", "cpu", "--threads", "1"),
                *("--run-dir", str(tmp_path / recipe)),
            ]
        )
    script = (
        "import sys\n"
        "from trainer.__main__ import main\n"
        f"codes = [main(words) for words in {runs!r}]\n"
        f"print(codes, [name for name in {UNUSED!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 0] []"


@pytest.mark.slow
@pytest.mark.needs("procfs")
@pytest.mark.parametrize(
    ("factory", "unused"),
    [
        (GymnasiumFactory("Pendulum-v1", actions="scaled", seed=0), ("libtorch", "libmujoco", "/scipy/")),
        (MetaworldFactory(("reach-v3",), goals_per_task=1), ("libtorch",)),
    ],
    ids=["gymnasium", "metaworld"],
)
def test_a_worker_loads_only_what_it_uses(factory: EnvFactory, unused: tuple[str, ...]):
    orders = Orders(np.full(1, WorkerCommand.RESET, np.int8), np.zeros(1, np.int32), np.zeros(1, np.int32))
    with VectorEnv(factory, 1, workers=1) as vector:
        vector.reset(orders)
        loaded = Path(f"/proc/{vector.pids[0]}/maps").read_text()
    assert "numpy" in loaded
    assert [name for name in unused if name in loaded] == []
