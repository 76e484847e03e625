"""Ctrl-C ends every command with 130, no run with it, and says what the command had changed by then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clusterkit import interruption
from clusterkit.cli.catalogue import SHORT
from clusterkit.runs.ledger import LedgerRun
from tests import forked
from tests.allowing import allow
from tests.commands.conftest import Project
from tests.doubles.slurm_site import SlurmSite
from tests.killing import ended_at
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "line",
    [
        "status --watch",
        "status --watch --json",
        "logs --follow",
        "top --json",
        "sync-results --watch --no-wandb",
        "sync-results --watch --no-wandb --json",
        "shell -- sleep 60",
    ],
)
def test_ctrl_c_ends_a_command_that_goes_on_with_130(running: tuple[Project, str], line: str) -> None:
    project, run_id = running
    process = forked.start(line.split(), folder=project.folder, program="clusterkit")
    time.sleep(2)  # it has begun to wait
    assert process.poll() is None, process.communicate(timeout=60)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    if line.startswith("sync-results") and "--json" in line:
        assert json.loads(said)["runs"][0]["run_id"] == run_id
    assert project.states(run_id) == ["RUNNING"]


def test_ctrl_c_while_it_is_still_being_imported_is_said_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'clusterkit.interruption': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "clusterkit", "submit"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "\ninterrupted; nothing was done\n")


HELD = "interrupted: waiting for the answer; Ctrl-C again ends this at once"


def interrupted(project: Project, points: str, *words: str) -> str:
    """What a command says that gets a Ctrl-C at these points; see tests/doubles/kill_point.py."""
    done = ended_at(f"INT@{points}", *words, folder=project.folder)
    assert done.returncode == 130, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def submitted(project: Project) -> list[str]:
    """The runs that have a job or had one."""
    return [run["run_id"] for run in project.rows() if run["state"] != "NOT_SUBMITTED"]


@pytest.mark.parametrize("point", [0, 1, 4, 8, 12, 16])
def test_ctrl_c_while_a_run_is_submitted_says_whether_it_was(project: Project, point: int) -> None:
    said = interrupted(project, str(point), "submit", "--", "sleep")
    assert HELD in said
    (run_id,) = submitted(project)
    assert f"interrupted; {run_id} was submitted\n" in said
    assert f"`clusterkit cancel {run_id}` ends it" in said
    project.run("cancel", run_id, "--yes")


@pytest.mark.parametrize("point", [0, 4, 12])
def test_ctrl_c_while_the_job_of_a_session_is_submitted_cancels_it(project: Project, point: int) -> None:
    said = interrupted(project, str(point), "dev", "--keep")
    assert HELD in said
    assert "the job is cancelled" in said
    assert "was submitted" not in said
    assert project.states() == ["CANCELLED"]


def test_ctrl_c_before_a_submission_says_that_nothing_was_submitted(project: Project) -> None:
    slow = '\n[secrets]\nnames = ["TOKEN"]\n[secrets.commands]\n'
    slow += 'TOKEN = ["sh", "-c", "touch asked; exec sleep 60"]\n'
    project.add(slow)
    allow(project.folder)
    process = forked.start(["submit"], folder=project.folder, program="clusterkit")
    project.until(lambda: any(project.folder.rglob("asked")) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said == "interrupted; nothing was submitted\n"


def test_ctrl_c_while_a_group_is_submitted_says_how_many_of_it_were(project: Project) -> None:
    said = interrupted(project, "9", "submit", "--sweep", "word=a,b,c", "--yes", "--", "0", "{word}")
    runs = submitted(project)
    group = runs[0].rpartition("-")[0]
    assert len(runs) == 3
    assert f"interrupted; 3 runs of {group} were submitted\n" in said


def test_a_part_of_a_group_that_follows_is_not_submitted_after_ctrl_c(project: Project) -> None:
    project.add('[profiles.second]\nextends = "tiny"\n')
    said = interrupted(project, "3", "submit", "--then", "second", "--", "sleep")
    (first,) = submitted(project)
    assert f"interrupted; 1 of 2 runs of {first.rpartition('-')[0]} were submitted\n" in said
    project.run("cancel", first, "--yes")


def test_a_second_ctrl_c_ends_at_once_and_claims_nothing(project: Project) -> None:
    said = interrupted(project, "5,12", "submit", "--", "0")
    assert "reached the scheduler is not known\n" in said
    assert "next:  `clusterkit status` finds out; do not submit again before then" in said
    assert len(submitted(project)) <= 1  # and `status` did find out


def test_ctrl_c_during_resume_says_what_it_submitted(project: Project) -> None:
    run_id = project.submit("--", "1")
    project.ended(run_id)
    assert f"interrupted; {run_id} was submitted\n" in interrupted(project, "9", "resume", run_id)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
def test_ctrl_c_while_a_distant_scheduler_thinks(site: SlurmSite, transport: str, times: int) -> None:
    """On a terminal Ctrl-C also reaches each program that the command has started."""
    with (site.project / "clusterkit.toml").open("a") as file:
        file.write(f'transport = "{transport}"\n[profiles.mine]\ntime = "5m"\n')
    asked = site.folder / "asked"
    site.tool("sbatch", f"touch {asked}\nsleep 4\necho 4711")
    process = forked.start(["submit", "--profile", "mine"], folder=site.project, program="clusterkit")
    until(asked.exists)
    began = time.monotonic()
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert HELD in said
    (run,) = ledger_runs(site)
    if times == 1:
        assert f"interrupted; {run.run_id} was submitted\n" in said
        assert run.job_id == "4711"
        return
    assert time.monotonic() - began < 3.5, "it waited for the scheduler"
    assert f"interrupted; whether {run.run_id} reached the scheduler is not known\n" in said
    until(lambda: site.types("status", "--json") and ledger_runs(site)[0].job_id == "4711")


def ledger_runs(site: SlurmSite) -> list[LedgerRun]:
    with site.ledger() as ledger:
        return ledger.runs()


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_during_cancel_says_what_was_cancelled(project: Project, times: int) -> None:
    (project.folder / "train.py").write_text(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(os.environ['CLUSTERKIT_RUN_DIR'] + '/deaf', 'w').close()\ntime.sleep(600)\n"
    )
    run_id = project.submit()
    project.until((project.run_dir(run_id) / "deaf").exists)
    process = forked.start(["cancel", run_id, "--yes"], folder=project.folder, program="clusterkit")
    project.until((project.run_dir(run_id) / "attempts" / "0" / "cancel.json").exists)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert HELD in said
    if times == 1:
        assert f"interrupted; {run_id} cancelled\n" in said
    else:
        assert f"interrupted; whether {run_id} had been cancelled is not known\n" in said
        project.run("cancel", run_id, "--yes")
    assert project.states(run_id) == ["CANCELLED"]


def test_ctrl_c_during_the_demo_says_that_its_run_goes_on(tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "200"}
    process = forked.start(
        ["demo", "--total-steps", "64000"], folder=tmp_path, env=environment, program="clusterkit"
    )
    until(lambda: any(tmp_path.rglob("heartbeat.json")))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    (run_id,) = (path.parent.name for path in tmp_path.rglob("heartbeat.json"))
    forked.run(["cancel", "--yes", run_id], folder=tmp_path, env=environment)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert f"interrupted; {run_id} was submitted\n" in said
    assert f"`clusterkit cancel {run_id}` ends it" in said


def test_a_command_that_had_changed_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "_tellers", [])  # of commands that this process ran before
    commands = {name.partition(" ")[0] for name in SHORT}
    assert commands >= interruption.UNCHANGED.keys()
    assert interruption.words("deploy").startswith("interrupted; what was sent stays")
    assert interruption.words("status") == ""
