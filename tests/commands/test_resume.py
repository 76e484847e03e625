"""resume on the local cluster, through the real command line."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.commands.conftest import Project
from tests.results.node_runs import make_checkpoint

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each

STEPS = """
import os, pathlib, signal, sys, time
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
attempt = os.environ["CLUSTERKIT_ATTEMPT"]
(run / f"arguments-{attempt}").write_text(repr(sys.argv[1:]))
(run / f"threads-{attempt}").write_text(os.environ["OMP_NUM_THREADS"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(85))
(run / f"ready-{attempt}").touch()
while attempt == "0" and "quick" not in sys.argv:
    time.sleep(0.05)
"""


@pytest.fixture
def steps(project: Project) -> Project:
    """A project whose program waits for a signal when it starts for the first time."""
    (project.folder / "train.py").write_text(STEPS)
    return project


def cancelled(project: Project, *arguments: str) -> str:
    run_id = project.submit(*arguments)
    project.until((project.run_dir(run_id) / "ready-0").exists)
    project.run("cancel", run_id)
    return run_id


def completed(project: Project, run_id: str, attempt: int = 1, root: Path | None = None) -> None:
    """Wait for the end of an attempt, below another work root than this machine's if there is one."""
    run_dir = project.run_dir(run_id) if root is None else root / "runs" / run_id
    project.until((run_dir / "attempts" / str(attempt) / "exit.json").exists)
    project.until(lambda: project.row(run_id)["state"] == "COMPLETED")


def test_a_cancelled_run_goes_on_in_its_directory(steps: Project) -> None:
    run_id = cancelled(steps, "--time", "7m", "--", "two words")
    again = steps.run("resume", run_id)
    assert again.stdout.strip() == run_id
    assert "CANCELLED" in again.stderr
    completed(steps, run_id)
    run_dir = steps.run_dir(run_id)
    assert (run_dir / "arguments-1").read_text() == "['two words']"
    requests = [steps.request(run_id, number) for number in (0, 1)]
    assert [request["kind"] for request in requests] == ["first", "resume"]
    assert requests[0]["options"] == requests[1]["options"]
    start = json.loads((run_dir / "attempts/1/start.json").read_text())
    assert start["submission"] == 1
    assert steps.row(run_id)["job_id"] == start["job_id"]


PARSER = """
import argparse, os
print(os.environ["CLUSTERKIT_SEED"])
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.parse_args()
raise SystemExit(1)
"""


def test_arguments_that_the_program_refused_are_not_submitted_again(project: Project) -> None:
    (project.folder / "train.py").write_text(PARSER)
    run_id = project.submit("--seed", "3", "--", "--lr", "fast")
    project.ended(run_id)
    said = project.run("resume", run_id, code=8).stderr
    assert "invalid float value: 'fast'; `resume` would pass the same arguments again" in said
    assert "clusterkit submit --cluster local --profile tiny --seed 3 -- --lr VALUE`" in said
    assert not (project.run_dir(run_id) / "submissions/1").exists()


def test_a_run_that_failed_for_another_reason_is_submitted_again(project: Project) -> None:
    (project.folder / "train.py").write_text(PARSER)
    run_id = project.submit("--", "--lr", "1")
    project.ended(run_id)
    project.run("resume", run_id)
    assert (project.run_dir(run_id) / "submissions/1").exists()


def test_what_is_asked_to_be_different_is(steps: Project) -> None:
    steps.add('\n[profiles.big]\ntime = "2h"\nthreads = 3\n')
    run_id = cancelled(steps)
    steps.run("resume", "last", "--profile", "big", "--time", "9m", "--until-done", "--sbatch", "qos=long")
    completed(steps, run_id)
    request = steps.request(run_id, 1)
    assert {"--time-limit=540", "--qos=long", "--requeue"} <= set(request["options"])
    assert request["until_done"] == "requeue"
    assert (steps.run_dir(run_id) / "threads-1").read_text() == "3"


def test_it_may_be_resumed_again_and_keeps_what_was_changed(steps: Project) -> None:
    run_id = cancelled(steps)
    steps.run("resume", run_id, "--time", "9m", "--until-done")
    completed(steps, run_id)
    record = steps.run_dir(run_id) / "attempts/1/exit.json"
    record.write_text('{"code": 1, "signal": null, "why": "failed", "ended": 1}')
    (steps.run_dir(run_id) / "stopped.json").write_text('{"why": "no progress", "time": 1}')
    # What had ended is not asked about again, but by a laptop that knows nothing.
    (steps.folder / ".clusterkit" / "ledger.sqlite3").unlink()
    steps.run("status")
    assert steps.row(run_id)["state"] == "FAILED"
    steps.run("resume", run_id)
    completed(steps, run_id, 2)
    request = steps.request(run_id, 2)
    assert "--time-limit=540" in request["options"]
    assert request["until_done"] == "requeue"
    assert not (steps.run_dir(run_id) / "stopped.json").exists()


def test_what_cannot_be_resumed_says_why(steps: Project) -> None:
    run_id = steps.submit()
    steps.until((steps.run_dir(run_id) / "ready-0").exists)
    active = steps.run("resume", run_id, code=8).stderr
    assert "RUNNING" in active
    assert f"clusterkit cancel {run_id}" in active
    steps.run("cancel", run_id)
    assert "{total_steps}" in steps.run("resume", run_id, "--total-steps", "5", code=3).stderr
    assert "not a duration" in steps.run("resume", run_id, "--time", "5", code=3).stderr
    done = steps.submit("--", "quick")
    completed(steps, done, 0)
    assert "COMPLETED" in steps.run("resume", done, code=8).stderr
    early = steps.submit("--total-steps", "1000", "--", "quick", "{total_steps}")
    completed(steps, early, 0)
    beat = {"attempt": 0, "step": 400, "total_steps": 1000}
    (steps.run_dir(early) / "heartbeat.json").write_text(json.dumps(beat))
    assert "is COMPLETED with 400 of 1,000 steps" in steps.run("resume", early, code=8).stderr
    shutil.rmtree(steps.run_dir(run_id))
    assert "no run directory" in steps.run("resume", run_id, code=8).stderr
    assert not (steps.run_dir(done) / "submissions/1").exists()


def test_the_code_it_began_with_and_its_run_json_must_be_there(steps: Project) -> None:
    run_id = cancelled(steps)
    snapshots = steps.folder / ".clusterkit/local/snapshots"
    snapshots.rename(snapshots.with_name("gone"))
    snapshots.mkdir()
    assert "no longer exists" in steps.run("resume", run_id, code=8).stderr
    (steps.run_dir(run_id) / "run.json").write_text("[1]")
    for words in (("resume", run_id), ("diff", run_id, run_id)):
        assert "run.json on local cannot be read" in steps.run(*words, code=8).stderr


@pytest.fixture
def elsewhere(steps: Project) -> Path:
    """The work root of a second cluster, `other`, on this machine."""
    root = steps.folder.parent / "other root"
    steps.add(f'\n[clusters.other]\nkind = "local"\ncontainer = "none"\nroot = "{root}"\n')
    return root


def test_a_damaged_document_is_named_and_nothing_is_submitted(project: Project) -> None:
    run_id = project.submit("--", "1")
    project.ended(run_id)
    described = project.run_dir(run_id) / "run.json"
    asked = project.run_dir(run_id) / "submissions" / "0" / "request.json"
    for path, name, value in (
        (described, "argv", None),
        (described, "name", 5),
        (described, "profile", {}),
        (described, "env", ["A"]),
        (asked, "options", "--time=1"),
        (asked, "env", {"A": 1}),
    ):
        before = path.read_text()
        path.write_text(json.dumps(json.loads(before) | {name: value}))
        for command in ("resume", "rerun", "export") if path == described else ("resume", "rerun"):
            said = project.run(command, run_id, code=8).stderr
            assert path.name in said
            assert name in said
            assert "next:" in said
        path.write_text(before)
        shutil.rmtree(project.folder / "results", ignore_errors=True)
    assert len(list(project.run_dir(run_id).parent.iterdir())) == 1
    assert not (project.run_dir(run_id) / "submissions" / "1").exists()


def test_a_run_moves_to_another_cluster_with_all_it_needs(steps: Project, elsewhere: Path) -> None:
    run_id = cancelled(steps, "--until-done")
    old, new = steps.run_dir(run_id), elsewhere / "runs" / run_id
    (old / "model.bin").write_bytes(b"weights")
    (old / "metrics.jsonl").write_text('{"kind": "event", "step": 1}\n')
    steps.run("resume", run_id, "--cluster", "other")
    completed(steps, run_id, root=elsewhere)
    assert (new / "model.bin").read_bytes() == b"weights"
    assert (new / "arguments-1").exists()
    assert not (new / "attempts/0/log").exists()
    request = json.loads((new / "submissions/1/request.json").read_text())
    assert request["workdir"].startswith(f"{elsewhere}/snapshots/")
    assert request["env"]["WANDB_DIR"] == str(new)
    assert request["until_done"] == "requeue"
    assert json.loads((old / "moved.json").read_text())["run_dir"] == str(new)
    row = steps.row(run_id)
    assert (row["cluster"], row["run_dir"]) == ("other", str(new))
    assert (steps.folder / "results" / run_id / "attempts/0/log").exists()
    shutil.rmtree(steps.folder / ".clusterkit/local")  # nothing of the old place is needed any more
    (new / "attempts/1/exit.json").write_text('{"code": 1, "signal": null, "why": "failed", "ended": 1}')
    steps.run("resume", run_id)
    steps.until((new / "attempts/2/exit.json").exists)
    assert (new / "arguments-2").exists()


def test_it_may_move_back(steps: Project, elsewhere: Path) -> None:
    run_id = cancelled(steps)
    steps.run("resume", run_id, "--cluster", "other")
    completed(steps, run_id, root=elsewhere)
    new = elsewhere / "runs" / run_id
    (new / "attempts/1/exit.json").write_text('{"code": 1, "signal": null, "why": "failed", "ended": 1}')
    steps.run("resume", run_id, "--cluster", "local")
    completed(steps, run_id, 2)
    old = steps.run_dir(run_id)
    assert (old / "arguments-2").exists()
    assert not (old / "moved.json").exists()
    assert steps.request(run_id, 2)["workdir"] is None


def test_what_was_left_behind_does_not_go_on_as_a_second_run(steps: Project, elsewhere: Path) -> None:
    run_id = cancelled(steps)
    ledger = steps.folder / ".clusterkit" / "ledger.sqlite3"
    with sqlite3.connect(ledger) as connection:
        before = connection.execute(
            "SELECT cluster, run_dir, job_id, submission, state, last FROM runs"
        ).fetchone()
    steps.run("resume", run_id, "--cluster", "other")
    completed(steps, run_id, root=elsewhere)
    with sqlite3.connect(ledger) as connection:  # as another laptop knows it
        names = "cluster = ?, run_dir = ?, job_id = ?, submission = ?, state = ?, last = ?"
        connection.execute(f"UPDATE runs SET {names}", before)
    for more in ((), ("--cluster", "other")):
        said = steps.run("resume", run_id, *more, code=8).stderr
        assert "moved" in said
        assert "moved.json" in said
    assert not (steps.run_dir(run_id) / "submissions/1").exists()


def test_what_cannot_move_stays(steps: Project, elsewhere: Path) -> None:
    settings = steps.folder / "clusterkit.toml"
    text = settings.read_text()
    run_id = cancelled(steps)
    os.mkfifo(steps.run_dir(run_id) / "pipe")
    assert "pipe: " in steps.run("resume", run_id, "--cluster", "other", code=8).stderr
    assert not (steps.run_dir(run_id) / "moved.json").exists()
    settings.write_text(text.replace('container = "none"', 'container = "apptainer"'))
    assert 'container = "apptainer"' in steps.run("resume", run_id, "--cluster", "other", code=3).stderr
    settings.write_text(text + 'max_time = "1m"\n')
    assert "allows 1m" in steps.run("resume", run_id, "--cluster", "other", code=3).stderr
    assert list((elsewhere / "runs").iterdir()) == []
    assert steps.row(run_id)["state"] == "CANCELLED"
    assert "there is no cluster" in steps.run("resume", run_id, "--cluster", "nowhere", code=3).stderr


def test_a_run_that_never_reached_the_scheduler_starts(steps: Project) -> None:
    run_id = cancelled(steps)
    shutil.rmtree(steps.run_dir(run_id) / "attempts/0")
    with sqlite3.connect(steps.folder / ".clusterkit/ledger.sqlite3") as ledger:
        ledger.execute("UPDATE runs SET job_id = '', state = 'NOT_SUBMITTED'")
    again = steps.run("resume", run_id)
    assert "from the beginning" in again.stderr
    steps.until((steps.run_dir(run_id) / "ready-0").exists)
    steps.run("cancel", run_id)


def test_a_run_whose_newest_checkpoint_was_removed_does_not_begin_again(steps: Project) -> None:
    run_id = cancelled(steps)
    run_dir, here = steps.run_dir(run_id), steps.folder / "results" / run_id
    newest = f"checkpoints/{make_checkpoint(run_dir, 2000).name}"
    steps.run("sync-results", "--no-wandb", "--checkpoints", "all")
    steps.run("storage", "clean", "--yes", "--last-checkpoint", run_id)
    assert not (run_dir / "checkpoints").exists()
    refused = steps.run("resume", run_id, code=8).stderr
    assert "clean --last-checkpoint" in refused
    assert "step-000000002000" in refused
    make_checkpoint(run_dir, 1000)  # one that is older does not count when the heartbeat knows of a newer one
    (run_dir / "heartbeat.json").write_text(json.dumps({"schema": 1, "checkpoint": newest}))
    assert "step-000000002000" in steps.run("resume", run_id, code=8).stderr
    assert not (run_dir / "submissions/1").exists()
    shutil.copytree(here / "checkpoints", run_dir / "checkpoints", dirs_exist_ok=True)
    steps.run("resume", run_id)
    completed(steps, run_id)
