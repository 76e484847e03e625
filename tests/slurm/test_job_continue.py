"""Whether job.sh lets a run go on after an attempt, and how. Scripts stand in for the commands of Slurm."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.runs import Run, python, until

SETTING = (
    "def save(step): os.makedirs(f'{run_dir}/checkpoints/step-{step:012d}')",
    "attempt = int(os.environ['CLUSTERKIT_ATTEMPT'])",
)
FURTHER = "save((attempt + 1) * 100)"
"""Each attempt of such a program gets a hundred steps further."""


class Site:
    """A run, and a Slurm around it that answers as told."""

    def __init__(self, root: Path, argv: list[str], way: str, **job: Any) -> None:
        self.run = Run(root, argv, job={"until_done": way, **job})
        self.bin = root / "bin"
        self.bin.mkdir()
        self.calls_file = root / "calls"
        self.calls_file.touch()
        self.number = 7
        for name in ("scontrol", "scancel"):
            self.answers(name, "")
        self.answers("squeue", "echo RUNNING")

    def answers(self, name: str, script: str) -> None:
        """Let a command do this after it has noted its arguments."""
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >>{self.calls_file}\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self) -> list[str]:
        """The commands that change something, in order."""
        lines = self.calls_file.read_text().splitlines()
        return [line for line in lines if not line.startswith("squeue")]

    def env(self, **more: str) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "SLURM_JOB_ID": str(self.number), **more}

    def attempt(self, **env: str) -> int:
        """One attempt, to its end."""
        return self.run.run(**self.env(**env))

    def request(self) -> None:
        """request.json as clusterkit leaves it."""
        folder = self.run.dir / "submissions/0"
        folder.mkdir(parents=True)
        document = {
            "schema": 1,
            "number": 0,
            "kind": "first",
            "created": "x",
            "options": ["--a=b"],
            "argv": None,
        }
        (folder / "request.json").write_text(json.dumps(document, indent=2))


def site(tmp_path: Path, *lines: str, way: str = "requeue", **job: Any) -> Site:
    return Site(tmp_path, python(*SETTING, *lines), way, **job)


def stopped(run: Run) -> str | None:
    path = run.dir / "stopped.json"
    if not path.exists():
        return None
    record = json.loads(path.read_text())
    assert abs(record["time"] - time.time()) < 60
    return str(record["why"])


def test_a_checkpointed_attempt_is_requeued_when_its_record_and_clean_up_are_done(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)")
    here.answers(
        "scontrol", f"cat {here.run.dir}/attempts/0/exit.json; ls -A {here.run.scratch} >{tmp_path}/left"
    )
    assert here.attempt() == 85
    assert here.calls == ["scontrol requeue 7"]
    assert (tmp_path / "left").read_text() == ""
    assert here.run.exit["why"] == "requeue"
    assert stopped(here.run) is None


@pytest.mark.parametrize(("program", "why"), [("sys.exit(0)", "completed"), ("sys.exit(1)", "failed")])
def test_an_end_of_its_own_is_the_end(tmp_path: Path, program: str, why: str) -> None:
    here = site(tmp_path, FURTHER, program)
    here.attempt()
    assert here.run.exit["why"] == why
    assert here.calls == []


def test_a_killed_program_is_the_end(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "os.kill(os.getpid(), signal.SIGKILL)")
    assert here.attempt() == 137
    assert here.calls == []


def test_a_program_without_manners_goes_on_after_its_time_limit(tmp_path: Path) -> None:
    """It dies of SIGTERM, but its checkpoints grow."""
    here = site(tmp_path, FURTHER, "ready()", "while True: time.sleep(1)")
    env = here.env(SLURM_JOB_END_TIME=str(int(time.time())))
    assert here.run.signalled(signal.SIGTERM, **env) == 143
    assert here.run.exit["why"] == "timeout"
    assert here.calls == ["scontrol requeue 7"]
    assert list(here.run.scratch.iterdir()) == []


def test_a_program_that_dies_of_the_warning_goes_on_too(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "ready()", "while True: time.sleep(1)")
    assert here.run.signalled(signal.SIGUSR1, **here.env()) == 138
    assert here.run.exit["why"] == "signalled"
    assert here.calls == ["scontrol requeue 7"]


def test_a_cancelled_run_does_not_come_back(tmp_path: Path) -> None:
    here = site(
        tmp_path, FURTHER, "open(f'{run_dir}/attempts/0/cancel.json', 'w').write('{}')", "sys.exit(85)"
    )
    here.attempt()
    assert here.calls == []
    assert "it was cancelled" in here.run.log()


@pytest.mark.parametrize("identifier", ["7", "7;cluster"])
def test_a_cancel_that_came_before_the_start_counts(tmp_path: Path, identifier: str) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)")
    folder = here.run.dir / "attempts/0"
    folder.mkdir(parents=True)
    (folder / "cancel.json").write_text(json.dumps({"requested": 1, "job_id": identifier}))
    here.attempt()
    assert here.run.record.attempts[1].start is not None
    assert here.calls == []


def test_the_cancel_of_an_earlier_submission_does_not_count(tmp_path: Path) -> None:
    here = site(tmp_path, "save(attempt + 1)", "sys.exit(85)", submission=1)
    folder = here.run.dir / "attempts/0"
    folder.mkdir(parents=True)
    (folder / "start.json").write_text('{"attempt": 0, "job_id": "5", "submission": 0}')
    (folder / "cancel.json").write_text('{"requested": 1, "job_id": "5"}')
    here.attempt()
    assert here.calls == ["scontrol requeue 7"]


def test_a_job_that_slurm_is_ending_is_left_to_slurm(tmp_path: Path) -> None:
    """After `scancel` by hand a requeue would bring it back; a preempted job Slurm requeues itself."""
    here = site(
        tmp_path,
        FURTHER,
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(85))",
        "ready()",
        "while 1: time.sleep(1)",
    )
    here.answers("squeue", "echo COMPLETING")
    assert here.run.signalled(signal.SIGTERM, **here.env()) == 85
    assert here.calls == []
    assert stopped(here.run) is None


def test_two_attempts_without_progress_stop_the_run(tmp_path: Path) -> None:
    here = site(tmp_path, "if attempt == 0: save(100)", "sys.exit(85)")
    for _ in range(3):
        here.attempt()
    assert here.calls == ["scontrol requeue 7"] * 2
    assert stopped(here.run) == "no progress in two attempts: the newest checkpoint is still that of step 100"
    assert "the run does not go on: no progress" in here.run.log(2)


def test_progress_in_between_forgives(tmp_path: Path) -> None:
    even = "if attempt % 2 == 0: "
    here = site(tmp_path, even + FURTHER, "sys.exit(85)")
    for _ in range(5):
        here.attempt()
    assert len(here.calls) == 5


def test_without_checkpoints_the_heartbeat_tells(tmp_path: Path) -> None:
    beat = "open(f'{run_dir}/heartbeat.json', 'w').write('{\"total_steps\": 9999, \"step\": %d}' % steps)"
    steps = "steps = [500, 480, 500][attempt]"
    here = site(tmp_path, steps, beat, "sys.exit(85)")
    for _ in range(3):
        here.attempt()
    assert here.calls == ["scontrol requeue 7"] * 2
    assert stopped(here.run) == "no progress in two attempts: no checkpoint, and no step beyond 500"


def test_a_first_checkpoint_is_progress_whatever_its_step(tmp_path: Path) -> None:
    beat = "open(f'{run_dir}/heartbeat.json', 'w').write('{\"step\": 500}')"
    last = "if attempt == 2: save(5)"
    here = site(tmp_path, beat, last, "sys.exit(85)")
    for _ in range(3):
        here.attempt()
    assert len(here.calls) == 3


def test_where_nothing_can_be_told_a_hundred_attempts_are_enough(tmp_path: Path) -> None:
    here = site(tmp_path, "sys.exit(85)")
    for number in range(98):
        folder = here.run.dir / "attempts" / str(number)
        folder.mkdir(parents=True)
        (folder / "start.json").write_text(f'{{"attempt": {number}, "submission": 0}}')
    here.attempt()
    assert stopped(here.run) is None
    here.attempt()
    assert stopped(here.run) == "100 attempts, and no checkpoint yet"


def test_attempts_that_left_no_record_count_at_the_next_start(tmp_path: Path) -> None:
    """Their nodes failed, and Slurm started the job again each time."""
    here = site(tmp_path, "open(f'{run_dir}/started', 'w')", "sys.exit(0)")
    for number in (0, 1):
        folder = here.run.dir / "attempts" / str(number)
        folder.mkdir(parents=True)
        start = {"attempt": number, "submission": 0, "checkpoint": "step-000000000100", "step": 100}
        (folder / "start.json").write_text(json.dumps(start))
    (here.run.dir / "checkpoints/step-000000000100").mkdir(parents=True)
    assert here.attempt() == 1
    assert not (here.run.dir / "started").exists()
    why = "no progress in two attempts: the newest checkpoint is still that of step 100"
    assert (here.run.exit["why"], here.run.exit["detail"]) == ("failed", why)
    assert stopped(here.run) == why


def test_the_start_record_says_where_the_run_was(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(0)")
    for step in (9, 100):
        (here.run.dir / f"checkpoints/step-{step:012d}").mkdir(parents=True)
    (here.run.dir / "checkpoints/step-not-a-number").mkdir()
    (here.run.dir / "heartbeat.json").write_text('{\n  "total_steps": 7,\n  "step": 123\n}\n')
    here.run.run(**here.env())
    start = here.run.record.attempts[0].start
    assert start is not None
    assert (start["checkpoint"], start["step"], start["submission"]) == ("step-000000000100", 123, 0)


def test_a_slow_controller_is_asked_again(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)")
    here.answers(
        "scontrol", f"test -e {tmp_path}/again || {{ touch {tmp_path}/again; echo timed out >&2; exit 1; }}"
    )
    here.attempt()
    assert here.calls == ["scontrol requeue 7"] * 2
    assert stopped(here.run) is None


@pytest.mark.parametrize("words", ["Requested operation is presently disabled", "Invalid job id specified"])
def test_a_requeue_that_slurm_refuses_ends_the_run_with_its_words(tmp_path: Path, words: str) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)")
    here.answers("scontrol", f"echo '{words} for job 7' >&2; exit 1")
    here.attempt()
    assert here.calls == ["scontrol requeue 7"]
    assert stopped(here.run) == f"Slurm did not requeue the job: {words} for job 7"


def test_a_job_that_slurm_has_requeued_already_is_content(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)")
    here.answers("scontrol", "echo 'Job is pending execution for job 7' >&2; exit 1")
    here.attempt()
    assert stopped(here.run) is None


def test_a_node_without_scontrol(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)")
    (here.bin / "scontrol").unlink()
    here.attempt()
    assert "scontrol" in str(stopped(here.run))
    assert "not found" in str(stopped(here.run))


# --- tasks of an array


def task(number: int, of: int = 3) -> dict[str, str]:
    return {
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": str(number),
        "SLURM_ARRAY_TASK_MAX": str(of - 1),
    }


def test_the_next_task_goes_on(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(0 if attempt == 1 else 85)", way="array")
    (here.run.dir / "submissions/0").mkdir(parents=True)
    assert here.attempt(**task(0)) == 85
    assert here.calls == []
    assert here.attempt(**task(1)) == 0
    assert here.calls == ["scancel -Q --state=PENDING 7"]
    assert here.attempt(**task(2)) == 0  # scancel came too late
    assert len(here.run.record.attempts) == 2
    assert "nothing to do" in here.run.output


def test_the_last_task_says_so(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)", way="array")
    (here.run.dir / "submissions/0").mkdir(parents=True)
    here.attempt(**task(2))
    assert stopped(here.run) == "this was the last of the array's tasks; clusterkit resume goes on"


@pytest.mark.parametrize(
    "program", ["sys.exit(1)", "open(f'{run_dir}/attempts/0/cancel.json', 'w'); sys.exit(85)"]
)
def test_the_rest_of_the_array_goes_when_the_run_ends(tmp_path: Path, program: str) -> None:
    here = site(tmp_path, FURTHER, program, way="array")
    (here.run.dir / "submissions/0").mkdir(parents=True)
    here.attempt(**task(0))
    assert here.calls == ["scancel -Q --state=PENDING 7"]


def test_a_task_whose_predecessor_was_cancelled_by_hand_does_not_start(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)", way="array")
    (here.run.dir / "submissions/0").mkdir(parents=True)
    here.attempt(**task(0))
    here.answers("squeue", "echo CANCELLED")
    assert here.attempt(**task(1)) == 0
    assert len(here.run.record.attempts) == 1


# --- links of a chain


def chain(tmp_path: Path, *lines: str) -> Site:
    here = site(tmp_path, *lines, way="chain")
    here.request()
    here.answers("sbatch", "env | grep -c '^S[BL][A-Z]*_' >>$0.env; echo 'Welcome'; echo '8;cluster'")
    return here


def test_a_link_submits_its_successor_before_its_program_starts(tmp_path: Path) -> None:
    seen = f"print(open({str(tmp_path / 'calls')!r}).read())"
    here = chain(tmp_path, seen, FURTHER, "sys.exit(85)")
    here.attempt(SBATCH_PARTITION="wrong")
    script = here.run.path
    assert here.calls == [f"sbatch --parsable --job-name=run-1.1 --dependency=afterany:7 {script} 1"]
    assert f"--dependency=afterany:7 {script} 1" in here.run.log()
    assert (here.bin / "sbatch.env").read_text() == "0\n"
    folder = here.run.dir / "submissions/1"
    request = json.loads((folder / "request.json").read_text())
    assert (request["number"], request["kind"], request["options"]) == (1, "chain", ["--a=b"])
    assert (folder / "status").read_text() == "0\n"
    assert "job 8 goes on" in here.run.log()


def test_a_link_that_is_started_again_has_asked_already(tmp_path: Path) -> None:
    here = chain(tmp_path, FURTHER, "sys.exit(85)")
    here.attempt()
    here.attempt()
    assert len(here.calls) == 1


def test_the_second_link_counts_with_the_first(tmp_path: Path) -> None:
    here = chain(tmp_path, "if attempt == 0: save(100)", "sys.exit(85)")
    for number, link in enumerate(["0", "1", "2"]):
        here.number = 7 + number
        here.run.start(link, **here.env()).communicate()
    assert [attempt.start["submission"] for attempt in here.run.record.attempts if attempt.start] == [0, 1, 2]
    assert "no progress in two attempts" in str(stopped(here.run))
    assert here.calls[-1] == "scancel -Q 8"


@pytest.mark.parametrize("answer", ["8", "8;cluster"])
def test_a_finished_link_takes_its_successor_away(tmp_path: Path, answer: str) -> None:
    here = chain(tmp_path, FURTHER, "sys.exit(0)")
    here.answers("sbatch", f"echo 'Welcome'; echo '{answer}'")
    assert here.attempt() == 0
    assert here.calls[-1] == "scancel -Q 8"


def test_a_refused_successor_is_said(tmp_path: Path) -> None:
    here = chain(tmp_path, FURTHER, "sys.exit(85)")
    here.answers("sbatch", "echo 'sbatch: error: too many jobs' >&2; exit 1")
    here.attempt()
    assert stopped(here.run) == "the job that would go on was refused: sbatch: error: too many jobs"


# --- on this machine


def test_the_local_supervisor_is_asked_by_the_exit_code(tmp_path: Path) -> None:
    here = site(tmp_path, "if attempt == 0: " + FURTHER, "sys.exit(85)")
    codes = [here.attempt(CLUSTERKIT_JOB_ID="1-2") for _ in range(3)]
    assert codes == [85, 85, 1]
    assert here.calls == []
    until(lambda: stopped(here.run))
