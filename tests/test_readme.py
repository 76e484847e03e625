"""The README is run: its commands, on the local cluster with the real trainer, and its configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.backends.slurm.options import sbatch_options
from clusterkit.config.settings import load_settings
from tests import forked
from tests.benchmarks import five_minutes
from tests.documented import fences

PAGES = {"README.md": "a40-2m", "docs/first-cluster.md": "a40"}
"""And a profile that their settings serve."""

# The profile that the README names, as small as it can be and without its GPU. Everything else is verbatim.
SMALL = """
[profiles.a40-2m]
gpu = "none"
device = "cpu"
precision = "fp32"
cpus = 2
memory = "4G"
recipe = "local-demo"
total_steps = 1000
num_envs = 4
workers = 0
eval_every = 1000
eval_episodes = 1
checkpoint_every = 1000
"""


@pytest.mark.slow
def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "clusterkit.toml").write_text(SMALL)
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "none")}
    environment.pop("WANDB_API_KEY", None)
    (block, *_) = fences("README.md", "")
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert len(commands) == 10
    site, *rest = commands
    assert site == "clusterkit init", "needs a host: tests/cluster/test_init.py"
    for command in rest:
        program, *words = command.split()
        assert program == "clusterkit"
        done = forked.run(words, folder=tmp_path, env=environment)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    (run,) = (path.parent for path in (tmp_path / "results").glob("*/run.json"))
    assert (run / "checkpoints" / "final_model.pt").is_file()
    assert list(run.glob("wandb/offline-run-*/*.wandb"))
    found = forked.run(["status", "--json"], folder=tmp_path, env=environment).stdout
    assert [one["state"] for one in json.loads(found)["runs"]] == ["COMPLETED"]
    pictures = list(tmp_path.rglob("curves.png"))
    assert pictures
    assert pictures[0].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("page", PAGES)
def test_the_configuration_of_the_pages(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (text,) = fences(page, "toml")
    file = tmp_path / "clusterkit.toml"
    file.write_text(text)
    settings = load_settings(config=file)
    options = sbatch_options(settings.cluster(), settings.profile(PAGES[page]))
    assert "--partition=GPU-a40" in options
    assert {"--gpus=a40:1", "--gres=gpu:a40:1"} & set(options), "as the page spells it"


@pytest.mark.slow
def test_the_program_of_the_first_page_reports_its_progress(tmp_path: Path) -> None:
    folder, run_dir = tmp_path / "mine", tmp_path / "run"
    run_dir.mkdir()
    five_minutes.project(folder)
    environment = {**os.environ, "CLUSTERKIT_RUN_DIR": str(run_dir), "CLUSTERKIT_ATTEMPT": "0"}
    subprocess.run([sys.executable, "train.py", "--seed", "1"], cwd=folder, env=environment, check=True)
    assert json.loads((run_dir / "heartbeat.json").read_text())["step"] == 200
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["reward"] < rows[-1]["reward"]
