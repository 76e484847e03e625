"""The tutorial, the cookbook and the page for those who have sbatch scripts, typed as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from clusterkit.backends.slurm.options import sbatch_options
from clusterkit.config.settings import load_settings
from tests.commands.conftest import Project
from tests.commands.test_their_logs import EVENTS, LIGHTNING, MONITOR
from tests.documented import ROOT, fences
from tests.doubles.wheels import index, wheel

TUTORIAL, COOKBOOK, SBATCH = "docs/first-cluster.md", "docs/cookbook.md", "docs/from-sbatch.md"
_ARGUMENTS = """
import argparse; parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int); parser.parse_args()
"""
_TYRO = """
import sys

def cli(kind):
    return kind(**dict(zip((word[2:].replace("-", "_") for word in sys.argv[1::2]), sys.argv[2::2])))
"""
_SINGLE_FILE = """
import dataclasses, tyro
@dataclasses.dataclass
class Args:
    seed: int = 1
    env_id: str = ""
    total_timesteps: int = 0
    learning_rate: float = 0

args = tyro.cli(Args)
assert args.total_timesteps in (0, "100000")
""" + EVENTS.replace('os.environ["CLUSTERKIT_SEED"]', "args.seed")
_HYDRA = """
import hydra
@hydra.main(version_base=None, config_path=".", config_name="config")
def main(config):
    with open("progress.csv", "w") as file:
        file.write("step,loss\\n" + "".join(f"{n},{config.lr * config.seed / n}\\n" for n in range(1, 9)))

main()
"""
_WANDB = """
import wandb
with wandb.init() as run:
    for step in range(10):
        run.log({"train_loss": 1 / (1 + step), "trainer/global_step": step})
"""


def typed(page: str, number: int) -> list[list[str]]:
    """The commands of a page's block: their words behind the program's name."""
    lines = [line.partition("  #")[0] for line in fences(page, "sh")[number].splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("clusterkit ")]


@pytest.fixture
def newcomer(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder without settings."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (project.folder / "clusterkit.toml").unlink()
    (project.folder / "train.py").unlink()
    return project


def packages_of_this_python(folder: Path, names: list[str]) -> None:
    """Writes wheels of these names that show an environment the packages that are installed here."""
    for name in names:
        path = wheel(folder, name)
        with zipfile.ZipFile(path) as archive:
            kept = {one: archive.read(one).decode() for one in archive.namelist() if one != f"{name}.py"}
        with zipfile.ZipFile(path, "w") as archive:
            record, here = f"{name}-1.0.dist-info/RECORD", f"{name}-here.pth"
            kept |= {record: f"{here},,\n{record},,\n", here: f"{sysconfig.get_path('purelib')}\n"}
            for inside, text in kept.items():
                archive.writestr(inside, text)


@pytest.mark.slow
def test_the_tutorial(newcomer: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cluster is this machine under another name, without a GPU, and three episodes are enough."""
    requirements, program = fences(TUTORIAL, "text")[0], fences(TUTORIAL, "python")[0]
    (newcomer.folder / "requirements.txt").write_text(requirements)
    (newcomer.folder / "train.py").write_text(program.replace("default=200", "default=3"))
    packages_of_this_python(tmp_path / "index", requirements.split())
    for name, value in index(tmp_path / "index").items():
        monkeypatch.setenv(name, value)
    (first,) = typed(TUTORIAL, 0)
    said = newcomer.run(*first)
    shown = fences(TUTORIAL, "text")[1].splitlines()
    assert {shown[1], shown[2]} <= set(said.stderr.splitlines())
    assert said.stderr.count("RUNNING") + said.stdout.count("COMPLETED") >= 3
    ours = fences(TUTORIAL, "toml")[0]
    here = ours.replace('host = "uni"', 'kind = "local"').replace("/share/$USER", str(tmp_path))
    here = here.replace('gpu = "a40"', 'gpu = "none"')
    (newcomer.folder / "clusterkit.toml").write_text(here)
    *_, check, results = range(len(fences(TUTORIAL, "sh")))
    _, dry, *others = typed(TUTORIAL, check)
    assert "requirements.txt: 2 packages, environment " in newcomer.run(*dry).stdout
    for words in others[:-1]:
        newcomer.run(*words)
    for words in typed(TUTORIAL, results):
        said = newcomer.run(*words)
    assert re.search(r"^a40 +3 +\d", said.stdout, re.MULTILINE)
    newest = sorted((newcomer.folder / "results").glob("a40-*"))
    assert [len((run / "work/progress.csv").read_text().splitlines()) for run in newest] == [4] * 3
    logs = [(run / "attempts/0/log").read_text() for run in newest]
    assert sum("the environment is built" in log for log in logs) == 1
    assert all("training on cpu" in log for log in logs)
    assert "completed" in newcomer.run(*others[-1]).stdout.lower()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "files", "metric"),
    [
        (0, {"ppo.py": _SINGLE_FILE, "tyro.py": _TYRO}, "charts/episodic_return"),
        (1, {"sb3.py": _ARGUMENTS + MONITOR}, "r"),
        (2, {"main.py": _HYDRA, "config.yaml": "lr: 0.1\nseed: 0\n"}, "loss"),
        (3, {"fit.py": _ARGUMENTS + LIGHTNING + _WANDB}, "train_loss"),
    ],
    ids=["single file", "stable-baselines3", "hydra", "lightning and w&b"],
)
def test_a_program_of_the_cookbook(
    newcomer: Project, number: int, files: dict[str, str], metric: str
) -> None:
    """Programs that take the arguments and write the logs of such programs stand for them."""
    for name, text in files.items():
        (newcomer.folder / name).write_text(text)
    started, *others = typed(COOKBOOK, number)
    said = newcomer.run(*started)
    assert said.stdout.count("COMPLETED") == 3
    assert re.search(rf"^group +runs +steps +{re.escape(metric)} ", said.stdout, re.MULTILINE)
    runs = sorted((newcomer.folder / "results").glob("here-*"))
    seeds = [json.loads((run / "run.json").read_text())["argv"] for run in runs]
    assert [[word for word in argv if word.endswith(str(n))] for n, argv in enumerate(seeds, 1)]
    assert len({tuple(argv) for argv in seeds}) == 3
    for words in others:
        said = newcomer.run(*words)
        if words[0] == "submit":
            group = said.stdout.strip()
            rows = newcomer.rows(group)
            assert len(rows) == 6
            newcomer.run("cancel", "--group", group, "--yes")


def logged(project: Project, run_id: str) -> list[dict[str, int]]:
    """What a run has logged, whole lines only."""
    lines = (project.run_dir(run_id) / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.slow
def test_the_loop_of_the_cookbook_goes_on_where_it_was(newcomer: Project) -> None:
    (newcomer.folder / "train.py").write_text(fences(COOKBOOK, "python")[0])
    newcomer.run("init", "--local")
    newcomer.add(fences(COOKBOOK, "toml")[0].replace("until_done = true\n", ""))
    (started,) = typed(COOKBOOK, 4)
    whole = newcomer.run(*started, "--steps", "300").stdout
    assert whole.count("COMPLETED") == 3
    run_id = newcomer.submit("--profile", "long", "--seed", "1", "--", "--steps", "3000000")
    newcomer.begun(run_id)
    pid = json.loads((newcomer.run_dir(run_id) / "attempts/0/start.json").read_text())["pid"]
    os.kill(pid, signal.SIGUSR1)
    newcomer.until(lambda: newcomer.states(run_id) != ["RUNNING"])
    assert json.loads((newcomer.run_dir(run_id) / "attempts/0/exit.json").read_text())["why"] == "requeue"
    newcomer.run("resume", run_id)
    newcomer.until(lambda: [row for row in logged(newcomer, run_id) if row["attempt"] == 1])
    newcomer.run("cancel", run_id, "--yes")
    steps = [row["step"] for row in logged(newcomer, run_id)]
    assert steps == [*range(100, steps[-1] + 1, 100)]


def test_what_becomes_of_the_lines_of_an_sbatch_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    text = fences(SBATCH, "toml")[0]
    (tmp_path / "clusterkit.toml").write_text(text)
    settings = load_settings(config=tmp_path / "clusterkit.toml")
    profile = settings.profile("cartpole")
    ours = set(sbatch_options(settings.cluster(), profile))
    script = fences(SBATCH, "bash")[0]
    theirs = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script, re.MULTILINE))
    for name in ("account", "partition", "gres", "cpus-per-task", "mem", "time"):
        assert f"--{name}={theirs[name]}" in ours
    assert theirs["signal"] == f"B:{profile.signal}@{profile.signal_before}"
    prelude = tomllib.loads(text)["clusters"]["uni"]["prelude"]
    assert all(line in script.splitlines() for line in prelude)
    named = (ROOT / SBATCH).read_text().partition("| In the script")[2]
    assert all(f"--{name}" in named for name in theirs)
