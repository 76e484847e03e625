"""tune through the real command line: a real bench on this machine, killed; and what is refused."""

import os
import signal
import tomllib
from pathlib import Path

import pytest

from tests.commands.conftest import Project

SETTINGS = """# mine
[profiles.small]
recipe = "sac"
total_steps = 4000
device = "cpu"
gpu = "none"
time = "10m"
cpus = 8     # far too many
num_envs = 4
workers = 0
"""


def benches(run_dir: Path) -> list[int]:
    """Processes that measure for this run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            mine = f"CLUSTERKIT_RUN_DIR={run_dir}".encode() in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine and b"bench" in words:
            found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_what_a_killed_bench_has_measured_is_written_into_the_profile(project: Project) -> None:
    file = project.folder / "clusterkit.toml"
    file.write_text(SETTINGS)
    shown = project.run("tune", "-p", "small", "--dry-run").stdout
    assert "trainer bench" in shown.replace("\n", " ") or "bench" in shown
    run_id = project.run("tune", "-p", "small", "--minutes", "1", "--no-wait").stdout.strip()
    run_dir = project.run_dir(run_id)
    project.until((run_dir / "bench.json").exists, 300)
    for pid in benches(run_dir):
        os.kill(pid, signal.SIGKILL)
    project.ended(run_id)

    def told_by_tune() -> str:  # which nobody has told that the run has ended
        return project.run("tune", run_id, "--no-wait", "--dry-run").stderr

    project.until(lambda: "it is still measuring" not in told_by_tune())  # its job ends a moment after it
    assert "ended early" in told_by_tune()
    told = project.run("tune", run_id)
    assert "ended early" in told.stderr
    assert "nothing was written; --yes writes it" in told.stderr
    assert "-cpus = 8     # far too many" in told.stdout
    assert file.read_text() == SETTINGS
    assert "dry run" in project.run("tune", run_id, "--yes", "--dry-run").stderr
    assert file.read_text() == SETTINGS

    assert "chosen, as it is now" in project.run("tune", "last", "--yes").stdout
    changed = file.read_text()
    assert tomllib.loads(changed)["profiles"]["small"]["cpus"] == 2
    assert changed.startswith("# mine\n")
    assert "cpus = 2     # far too many\n" in changed
    assert "# clusterkit tune, 20" in changed
    assert "steps/s" in changed
    assert project.described(run_dir.name)["argv"][:4] == ["python", "-m", "trainer", "bench"]
    assert "needs no change" in project.run("tune", run_id).stdout


@pytest.mark.slow
def test_what_cannot_be_tuned_is_one_line(project: Project) -> None:
    assert "does not use clusterkit's trainer" in project.run("tune", "-p", "tiny", code=3).stderr
    own = project.run("tune", "-p", "local-demo", code=3).stderr
    assert "does not use clusterkit's trainer" in own
    assert "report --advice RUN" in own
    file = project.folder / "clusterkit.toml"
    file.write_text(file.read_text().replace('program = ["python", "train.py"]\n', ""))
    wrong = project.run("tune", "-p", "local-demo", "--num-envs", "a,b", code=3)
    assert "--num-envs a,b: must be whole numbers" in wrong.stderr
    none = project.run("tune", "-p", "local-demo", "--num-envs", "8,0", code=3)
    assert "--num-envs 8,0: must be whole numbers of at least 1" in none.stderr
    rollouts = project.run("tune", "-p", "fast", "--num-envs", "8,16", code=3).stderr
    assert "with guide-ppo-fast their number says how long a rollout is" in rollouts
    file.write_text(file.read_text() + '[profiles.two]\nextends = "heavy"\ngpus = 2\n')
    assert "learns on 2 GPUs together" in project.run("tune", "-p", "two", code=3).stderr
    file.write_text(file.read_text() + '[profiles.here]\nextends = "fast"\ngpu = "none"\n')
    locked = ["tune", "-p", "here", "--set", "environment=HalfCheetah-v5"]
    assert "environment is locked" in project.run(*locked, code=7).stderr
    shown = project.run(*locked, "--unlock", "environment", "--dry-run").stdout.replace("\n", " ")
    assert "environment=HalfCheetah-v5" in shown
    assert "leave RUN out" in project.run("tune", "last", "-p", "local-demo", code=3).stderr
    assert "none was submitted" in project.run("tune", "nothing", code=8).stderr


@pytest.mark.slow
def test_a_run_that_is_no_bench_is_refused(project: Project) -> None:
    run_id = project.submit()
    project.ended(run_id)
    assert f"{run_id} is not a run of `tune`" in project.run("tune", run_id, code=8).stderr
    same_name = project.submit("--name", "tune")
    project.ended(same_name)
    refused = project.run("tune", same_name, code=8).stderr
    assert "has measured nothing: it is COMPLETED" in refused
    assert "clusterkit why" in refused
