"""A program of somebody else's, in a repository of its own, through the commands of docs/own-project.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Project
from tests.documented import fences
from tests.results.run_dirs import make_run_dir
from tests.snapshots.conftest import commit, git

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "own-project"
PAGE = "docs/own-project.md"


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A git repository that knows nothing of ours but its clusterkit.toml."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    folder = tmp_path / "their work"
    shutil.copytree(EXAMPLE, folder)
    commit(folder)
    return Project(folder)


def test_the_page_shows_the_files() -> None:
    assert fences(PAGE, "toml")[0] == (EXAMPLE / "clusterkit.toml").read_text()


def test_the_commands_of_the_page(foreign: Project) -> None:
    commands = [shlex.split(line)[1:] for line in fences(PAGE, "sh")[0].splitlines()]
    names = "submit logs status why sync-results report rerun"
    assert [words[0] for words in commands] == names.split()
    said = {words[0]: foreign.run(*words).stdout for words in commands}
    run_id, again = said["submit"].strip(), said["rerun"].strip()
    first = foreign.described(run_id)
    out = ["--out", f"{foreign.run_dir(run_id)}/out", "--seed", "3"]
    assert first["argv"] == ["python", "train.py", *out, "--lr", "0.3"]
    assert "step 200: reward" in said["logs"]
    assert "COMPLETED" in said["status"]
    assert "100%" in said["status"]
    home = foreign.folder / "results" / run_id
    assert len((home / "out" / "progress.csv").read_text().splitlines()) == 20
    assert json.loads((home / "out" / "checkpoint.json").read_text())["step"] == 200
    page = (home / "report" / "report.html").read_text()
    assert "<figcaption>reward</figcaption>" in page
    assert (home / "report" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"mine +1 +200 +-", said["report"])
    second = foreign.described(again)
    out = ["--out", f"{foreign.run_dir(again)}/out", "--seed", "4"]
    assert (second["argv"], second["seed"]) == (["python", "train.py", *out, "--lr", "0.3"], 4)
    assert second["env"]["CLUSTERKIT_SEED"] == "4"
    shown = foreign.run("curves", run_id, "--once").stdout
    assert "reward" in shown
    foreign.run("cancel", again, "--yes")
    assert "your own program" in foreign.run("evaluate", run_id, code=8).stderr
    differs = foreign.run("diff", run_id, again).stdout
    assert re.search(r"argv\[5\] +3 +4", differs)
    assert "argv[3]" not in differs


def test_an_export_says_how_to_run_it_by_hand(foreign: Project) -> None:
    run_id = foreign.submit("--", "--steps", "10")
    foreign.ended(run_id)
    foreign.run("export", run_id, "-o", "all.tar.gz")
    (foreign.folder / "theirs").mkdir()
    subprocess.run(["tar", "-xzf", "../all.tar.gz"], cwd=foreign.folder / "theirs", check=True)
    (text,) = (foreign.folder / "theirs").glob("*/README.txt")
    block = text.read_text().partition("by hand")[2].partition("run.json, job.sh")[0].partition("\n")[2]
    by_hand = block.replace("    python ", f"    {shlex.quote(sys.executable)} ")
    shutil.rmtree(foreign.folder / ".clusterkit")
    subprocess.run(["bash", "-euc", by_hand], check=True, cwd=text.parent)
    assert (text.parent / "out" / "out" / "progress.csv").is_file()
    assert (text.parent / "out" / "metrics.jsonl").is_file()


def test_progress_of_a_run_that_is_stopped_and_goes_on(foreign: Project) -> None:
    run_id = foreign.submit("--time", "1m", "--", "--steps", "10000", "--pause", "0.02")
    foreign.until(lambda: foreign.row(run_id)["steps_per_second"] is not None)  # its second look or so
    state = foreign.row(run_id)
    assert state["state"] == "RUNNING"
    assert 0 < state["steps_per_second"] < 60
    assert state["eta_seconds"] > 100
    assert re.fullmatch(r"will not finish: stops at its time limit at \d+%", state["outlook"])
    start = json.loads((foreign.run_dir(run_id) / "attempts/0/start.json").read_text())
    os.kill(start["pid"], signal.SIGUSR1)
    foreign.ended(run_id)  # by its record; its job may still be removing its scratch
    foreign.until(lambda: foreign.row(run_id)["state"] != "RUNNING")
    assert foreign.row(run_id)["why"].endswith("it checkpointed and can be resumed")
    refused = foreign.run("resume", run_id, "--total-steps", "5", code=3).stderr
    assert "no {total_steps} among its arguments" in refused
    foreign.run("resume", run_id)
    log = foreign.run_dir(run_id) / "attempts/1/log"
    foreign.until(lambda: log.is_file() and "going on from step" in log.read_text())
    foreign.run("cancel", run_id, "--yes")


def test_no_python_and_no_option_for_the_seed(foreign: Project) -> None:
    heartbeat = fences(PAGE, "sh")[1]
    assert "heartbeat.json" in heartbeat
    script = f'set -e\nstep=40\n{heartbeat}echo "$CLUSTERKIT_SEED" >"$1/seed.csv"\nexit 3\n'
    (foreign.folder / "run.sh").write_text(script)
    settings = foreign.folder / "clusterkit.toml"
    shell = 'time = "5m"\nprogram = ["bash", "run.sh", "{run_dir}"]\ntotal_steps = 100\n'
    settings.write_text(f"{settings.read_text()}\n[profiles.shell]\n{shell}")
    run_id = foreign.submit("-p", "shell", "--seed", "7")
    foreign.ended(run_id)
    assert foreign.row(run_id)["progress"] == 0.4
    assert "exit code 3" in foreign.run("why", run_id).stdout
    assert (foreign.run_dir(run_id) / "seed.csv").read_text() == "7\n"
    astray = foreign.submit("--", "--out", "runs", "--steps", "10")
    foreign.ended(astray)
    foreign.run("sync-results", run_id, astray)
    assert (foreign.folder / "results" / astray / "work" / "runs" / "progress.csv").is_file()
    assert "no run has logged a number" in foreign.run("report", run_id).stderr


def test_results_are_not_committed_whichever_command_made_them(project: Project, tmp_path: Path) -> None:
    git(project.folder, "init", "-q")
    run_id = project.submit("--", "0")
    project.ended(run_id)
    elsewhere = [str(make_run_dir(tmp_path, f"demo-{number}")) for number in (1, 2)]
    for made_by in (["sync-results", run_id], ["export", run_id], ["report", *elsewhere]):
        shutil.rmtree(project.folder / "results", ignore_errors=True)
        project.run(*made_by)
        assert any((project.folder / "results").glob("[!.]*"))
        git(project.folder, "add", "-A")
        assert git(project.folder, "ls-files").split() == ["clusterkit.toml", "train.py"], made_by
