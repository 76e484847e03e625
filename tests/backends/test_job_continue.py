"""Whether job.sh lets a run go on after an attempt, and how. Scripts stand in for the commands of Slurm."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.backends.sites import FURTHER, site, stopped
from tests.waiting import until


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


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("sys.exit(0)", "completed"),
        ("sys.exit(1)", "failed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signalled"),
    ],
)
def test_an_end_of_its_own_is_the_end(tmp_path: Path, program: str, why: str) -> None:
    here = site(tmp_path, FURTHER, program)
    here.attempt()
    assert here.run.exit["why"] == why
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
    here = site(tmp_path, "save(attempt + 1)", "sys.exit(85)", number=1)
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


@pytest.mark.slow
def test_two_attempts_without_progress_stop_the_run(tmp_path: Path) -> None:
    here = site(tmp_path, "if attempt == 0: save(100)", "sys.exit(85)")
    for _ in range(3):
        here.attempt()
    assert here.calls == ["scontrol requeue 7"] * 2
    assert stopped(here.run) == "no progress in two attempts: the newest checkpoint is still that of step 100"
    assert "the run does not go on: no progress" in here.run.log(2)


@pytest.mark.slow
def test_progress_in_between_forgives(tmp_path: Path) -> None:
    even = "if attempt % 2 == 0: "
    here = site(tmp_path, even + FURTHER, "sys.exit(85)")
    for _ in range(5):
        here.attempt()
    assert len(here.calls) == 5


@pytest.mark.slow
def test_without_checkpoints_the_heartbeat_tells(tmp_path: Path) -> None:
    beat = "open(f'{run_dir}/heartbeat.json', 'w').write('{\"total_steps\": 9999, \"step\": %d}' % steps)"
    steps = "steps = [500, 480, 500][attempt]"
    here = site(tmp_path, steps, beat, "sys.exit(85)")
    for _ in range(3):
        here.attempt()
    assert here.calls == ["scontrol requeue 7"] * 2
    assert stopped(here.run) == "no progress in two attempts: no checkpoint, and no step beyond 500"


@pytest.mark.slow
def test_a_first_checkpoint_is_progress_whatever_its_step(tmp_path: Path) -> None:
    beat = "open(f'{run_dir}/heartbeat.json', 'w').write('{\"step\": 500}')"
    last = "if attempt == 2: save(5)"
    here = site(tmp_path, beat, last, "sys.exit(85)")
    for _ in range(3):
        here.attempt()
    assert len(here.calls) == 3


@pytest.mark.slow
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


@pytest.mark.slow
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


# --- in a pack


@pytest.mark.parametrize(
    ("program", "code", "over"),
    [
        ("sys.exit(85)", 85, False),
        ("sys.exit(1)", 1, True),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, True),
    ],
)
def test_a_run_of_a_pack_tells_the_pack_whether_it_goes_on(
    tmp_path: Path, program: str, code: int, over: bool
) -> None:
    here = site(tmp_path, FURTHER, program)
    here.request()
    assert here.attempt(CLUSTERKIT_PACKED="2") == code
    assert (here.run.dir / "submissions/0/over").exists() is over
    assert here.calls == []


# --- on this machine


@pytest.mark.slow
def test_the_local_supervisor_is_asked_by_the_exit_code(tmp_path: Path) -> None:
    here = site(tmp_path, "if attempt == 0: " + FURTHER, "sys.exit(85)")
    codes = [here.attempt(CLUSTERKIT_JOB_ID="1-2") for _ in range(3)]
    assert codes == [85, 85, 1]
    assert here.calls == []
    until(lambda: stopped(here.run))
