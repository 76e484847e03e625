"""`clusterkit why` of runs on this machine, through the real command line."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.jobs import JobState
from tests.commands.conftest import Project
from tests.doubles.slurm_site import Member, SlurmSite

pytestmark = pytest.mark.slow

FAULT = """
import sys
print("loading")
import nothing_like_it
"""


def why(project: Project, run_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(project.run("why", "--json", run_id).stdout)
    return answer


def test_a_run_that_failed(project: Project) -> None:
    (project.folder / "train.py").write_text(FAULT)
    run_id = project.submit()
    project.ended(run_id)
    answer = why(project, run_id)
    assert answer["schema"] == 1
    assert answer["state"] == "FAILED"
    assert answer["cause"] == "import-error"
    assert answer["trouble"] is True
    assert answer["evidence"][0]["source"] == "attempts/0/log"
    assert answer["next"] == f"clusterkit logs {run_id} -n 200"
    shown = project.run("why", "last").stdout
    assert "nothing_like_it" in shown
    assert shown.splitlines()[-1] == f"next  clusterkit logs {run_id} -n 200"


def test_a_wrong_option_of_the_settings_is_named_with_its_line(project: Project) -> None:
    (project.folder / "train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    settings = project.folder / "clusterkit.toml"
    settings.write_text(settings.read_text().replace('"train.py"', '"train.py", "--logdir"'))
    run_id = project.submit()
    project.ended(run_id)
    line = [line.startswith("program") for line in settings.read_text().splitlines()].index(True) + 1
    wanted = f"change --logdir in `program` of the settings (clusterkit.toml:{line})"
    assert why(project, run_id)["cure"] == wanted


def test_a_log_cannot_give_orders_to_the_terminal(project: Project) -> None:
    (project.folder / "train.py").write_text(r"""raise ValueError("\x1b]0;owned\x07 \x1b[31mred")""")
    run_id = project.submit()
    project.ended(run_id)
    shown = project.run("why", run_id).stdout
    assert "program-failed" in shown
    assert shown.count(r"\x1b[31mred") >= 2  # in the sentence, and where it was seen
    assert "\x1b" not in shown


def test_a_run_that_is_well_and_one_that_was_cancelled(project: Project) -> None:
    run_id = project.submit("--", "sleep")
    project.until((project.run_dir(run_id) / "heartbeat.json").exists)
    answer = why(project, run_id)
    assert (answer["cause"], answer["trouble"]) == ("running", False)
    assert "40%" in answer["sentence"]
    project.run("cancel", run_id)
    project.ended(run_id)
    assert why(project, run_id)["cause"] == "cancelled-by-you"


def test_runs_of_a_group_that_wait_for_others(project: Project) -> None:
    project.run("submit", "--seeds", "1,2", "--max-parallel", "1", "--", "sleep")
    document = json.loads(project.run("status", "--json").stdout)
    first, second = (run["run_id"] for run in document["runs"])
    project.run("submit", "--after", first, "--", "sleep")
    project.until((project.run_dir(first) / "heartbeat.json").exists)
    assert why(project, first)["cause"] == "running"
    waiting, after = why(project, second), why(project, "last")
    assert (waiting["state"], waiting["cause"], waiting["trouble"]) == ("PENDING", "waiting", False)
    assert waiting["evidence"] == [{"source": "scheduler", "text": "PENDING, reason JobArrayTaskLimit"}]
    assert (after["state"], after["cause"]) == ("PENDING", "dependency")
    project.run("cancel", "--all", "--yes")


def test_a_run_that_completed_and_its_documented_json(project: Project) -> None:
    run_id = project.submit()
    project.ended(run_id)
    answer = why(project, run_id)
    assert (answer["cause"], answer["next"]) == ("completed", f"clusterkit sync-results {run_id}")
    project.run("sync-results", "--no-wandb")
    assert why(project, run_id)["next"] == f"clusterkit report {run_id}"
    page = (Path(__file__).resolve().parents[2] / "docs" / "why.md").read_text()
    section = page[page.index("## JSON") :]
    for key in answer:
        assert f'"{key}"' in section


@pytest.mark.needs("sshd")
def test_the_job_of_another_laptop_is_the_one_that_is_told_of(tmp_path: Path) -> None:
    run = Member(1, JobState.RUNNING)
    with closing(SlurmSite(tmp_path / "site")) as site:
        site.remember([run])
        site.resume(run, "800001")
        answer = json.loads(site.types("why", "--json", run.run_id).stdout)
    assert (answer["job_id"], answer["attempt"]) == ("800001", 1)


def test_the_next_command_of_a_refused_argument_succeeds(project: Project) -> None:
    (project.folder / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--note')\np.parse_args()\n"
    )
    run_id = project.submit("--name", "mine", "--time", "3m", "--", "--note", "it's mine", "--sede", "4")
    project.ended(run_id)
    told = json.loads(project.run("why", run_id, "--json").stdout)
    assert told["cause"] == "wrong-argument"
    assert told["cure"].startswith("change `--sede 4`")
    words = shlex.split(told["next"])
    assert words[:2] == ["clusterkit", "submit"]
    assert words[words.index("--") :] == ["--", "--note", "it's mine"]
    again = project.run(*words[1:]).stdout.strip()
    project.ended(again)
    assert again.startswith("mine-")
    (state,) = json.loads(project.run("status", again, "--json").stdout)["runs"]
    assert (state["state"], state["limit_seconds"]) == ("COMPLETED", 180)


# Where no GPU is, clusterkit submits no program of which it sees that it wants one.
LEARNS = """
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
OUT_OF_MEMORY = """
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


def test_the_causes_that_programs_name(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the trainer, PyTorch and W&B really say; a program says in PyTorch's stead what needs a GPU."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (project.folder / "clusterkit.toml").write_text(LEARNS.replace("PYTHON", sys.executable))
    (project.folder / "fault.py").write_text(OUT_OF_MEMORY)
    runs = {cause: project.submit("--name", cause, *words) for cause, words in CAUSES.items()}
    project.ended(*runs.values())
    named = {cause: why(project, run_id)["cause"] for cause, run_id in runs.items()}
    assert named == {cause: cause for cause in CAUSES}
