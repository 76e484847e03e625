"""Runs that go on as tasks of an array and as links of a chain; Slurm's commands are scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.backends.sites import FURTHER, chain, site, stopped

# --- tasks of an array


def task(number: int, of: int = 3) -> dict[str, str]:
    return {
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": str(number),
        "SLURM_ARRAY_TASK_MAX": str(of - 1),
    }


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_task_whose_predecessor_was_cancelled_by_hand_does_not_start(tmp_path: Path) -> None:
    here = site(tmp_path, FURTHER, "sys.exit(85)", way="array")
    (here.run.dir / "submissions/0").mkdir(parents=True)
    here.attempt(**task(0))
    here.answers("squeue", "echo CANCELLED")
    assert here.attempt(**task(1)) == 0
    assert len(here.run.record.attempts) == 1


# --- links of a chain


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


@pytest.mark.slow
def test_a_link_that_is_started_again_has_asked_already(tmp_path: Path) -> None:
    here = chain(tmp_path, FURTHER, "sys.exit(85)")
    here.attempt()
    here.attempt()
    assert len(here.calls) == 1


@pytest.mark.slow
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


def test_a_successor_whose_answer_was_lost(tmp_path: Path) -> None:
    """The link was killed while it asked, and Slurm started it again."""
    here = chain(tmp_path, FURTHER, "sys.exit(85)")
    (here.run.dir / "submissions/1").mkdir()
    (here.run.dir / "submissions/1/asked").touch()
    here.attempt()
    assert here.calls == []
    why = "nobody knows whether the job that would go on was submitted; clusterkit resume goes on"
    assert stopped(here.run) == why
