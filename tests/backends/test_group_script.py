"""The job script of a group, run for real by bash: which runs a task starts, and how a pack ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from clusterkit.backends.group_script import render_group
from clusterkit.backends.jobs import group_log
from tests.backends.runs import group_script
from tests.programs import write_program
from tests.waiting import until

# A stand-in for a run's own job.sh: claims an attempt, does as its file `do` says, leaves an exit record.
JOB = """
cd "$(dirname "$0")" || exit 9
n=0; while ! mkdir attempts/$n 2>/dev/null; do n=$((n + 1)); done
trap 'code=85; why=requeue' USR1
trap 'code=143; why=signalled' TERM
why=completed
echo "$CLUSTERKIT_PACKED $SLURM_CPUS_PER_TASK" >attempts/$n/started
. ./do
case ${code:=0},$why in 0,*) ;; *,completed) why=failed ;; esac
echo "{\\"code\\": $code, \\"why\\": \\"$why\\"}" >attempts/$n/exit.new
mv attempts/$n/exit.new attempts/$n/exit.json
exit $code
"""
WAIT = "while [ -z ${code:-} ] && [ ! -e ../../go ]; do sleep 0.05; done"


def meaning(options: object) -> dict[str, bool]:
    """What the options of a part say of its script."""
    words = str(options)
    return {"array": "--array" in words, "requeue": "--requeue" in words}


class Group:
    """A group's folder with its members, and a folder of fake commands on PATH; a pack naps more briefly."""

    def __init__(self, root: Path, *members: str, pack: int = 1, **fields: object) -> None:
        self.root = root / "with blanks"
        self.dir = self.root / "groups" / "g"
        self.dir.mkdir(parents=True)
        self.members = []
        for number, script in enumerate(members):
            folder = self.root / "runs" / f"g-{number}"
            (folder / "attempts").mkdir(parents=True)
            (folder / "job.sh").write_text(JOB)
            (folder / "do").write_text(script)
            self.members.append(folder)
        lines = [str(folder) for folder in self.members]
        self.lines(*lines, *[""] * (-len(lines) % pack))
        values = {"part": 0, "origin": 0, "first": 0, **meaning(fields.get("options", ())), **fields}
        script = group_script(job_name="g", group_dir=str(self.dir), pack=pack, **values)
        (self.dir / "job.sh").write_text(render_group(script))
        self.bin = write_program(root / "bin", "sleep", '[ "$1" != 1 ] || set -- 0.1\nexec /bin/sleep "$@"')
        write_program(self.bin, "scontrol", f'echo "$@" >>"{self.bin}/asked"')

    def lines(self, *lines: str) -> None:
        (self.dir / "members").write_text("\n".join(lines) + "\n")

    def start(self, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(self.dir / "job.sh")],
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, **env: str) -> int:
        process = self.start(**env)
        self.said = process.communicate(timeout=180)[0]
        return process.returncode

    def ends(self) -> list[list[str]]:
        """How each attempt of each member has ended."""
        return [
            [json.loads(path.read_text())["why"] for path in sorted(folder.glob("attempts/*/exit.json"))]
            for folder in self.members
        ]

    @property
    def asked(self) -> str:
        path = self.bin / "asked"
        return path.read_text() if path.exists() else ""


def test_a_task_becomes_the_job_of_its_run(tmp_path: Path) -> None:
    group = Group(tmp_path, "", "code=3", "")
    assert group.run(SLURM_ARRAY_TASK_ID="1") == 3
    assert group.ends() == [[], ["failed"], []]
    assert group.run() == 0
    assert group.ends() == [["completed"], ["failed"], []]


def test_a_later_part_counts_from_its_origin(tmp_path: Path) -> None:
    group = Group(tmp_path, "", "", "", origin=1, first=1, part=2)
    assert group.run(SLURM_ARRAY_TASK_ID="1") == 0
    assert group.ends() == [[], [], ["completed"]]
    group = Group(tmp_path / "other", "", "", first=1, origin=1)
    assert group.run() == 0
    assert group.ends() == [[], ["completed"]]


def test_a_task_without_a_run_says_so(tmp_path: Path) -> None:
    group = Group(tmp_path, "")
    assert group.run(SLURM_ARRAY_TASK_ID="5") == 1
    assert "names no run for task 5" in group.said


@pytest.mark.parametrize(
    ("members", "code"),
    [(("", ""), 0), (("", "code=3"), 1), (("code=85; why=requeue", "code=3"), 85), (("code=85", ""), 85)],
)
def test_a_pack_ends_with_all_of_its_runs(tmp_path: Path, members: tuple[str, ...], code: int) -> None:
    group = Group(tmp_path, *members, pack=2)
    assert group.run() == code
    assert all(len(ends) == 1 for ends in group.ends())
    assert group.asked == ""


def test_a_pack_starts_its_own_runs_with_a_share_of_the_processors(tmp_path: Path) -> None:
    group = Group(tmp_path, "", "", "", "", "", pack=2)
    assert group.run(SLURM_ARRAY_TASK_ID="1", SLURM_CPUS_PER_TASK="8") == 0
    assert group.ends() == [[], [], ["completed"], ["completed"], []]
    assert (group.members[3] / "attempts/0/started").read_text() == "2 4\n"
    assert group.run(SLURM_ARRAY_TASK_ID="2") == 0
    assert group.ends()[4] == ["completed"]


@pytest.mark.needs("two processors")
def test_a_pack_that_is_bound_to_its_processors_binds_each_run_to_its_share(tmp_path: Path) -> None:
    allowed = "grep Cpus_allowed_list /proc/self/status >cpus"
    group = Group(tmp_path, allowed, allowed, pack=2)
    mine = sorted(os.sched_getaffinity(0))
    assert group.run(SLURM_CPUS_PER_TASK=str(len(mine))) == 0
    shares = [(folder / "cpus").read_text().split()[1] for folder in group.members]
    assert len(set(shares)) == 2
    assert shares[0].startswith(str(mine[0]))
    # More processors than the job has asked for: the site binds nobody, and others may use these.
    unbound = Group(tmp_path / "unbound", allowed, allowed, pack=2)
    assert unbound.run(SLURM_CPUS_PER_TASK=str(len(mine) - 1)) == 0
    assert len({(folder / "cpus").read_text() for folder in unbound.members}) == 1


def test_signals_reach_every_run_and_the_pack_goes_on_with_those_that_want_to(tmp_path: Path) -> None:
    group = Group(tmp_path, "", "code=1", WAIT, WAIT, pack=4, options=("--requeue",))
    process = group.start(SLURM_JOB_ID="42")
    until(lambda: len(list(group.root.glob("runs/*/attempts/0/started"))) == 4)
    until(lambda: [len(ends) for ends in group.ends()][:2] == [1, 1])
    process.send_signal(signal.SIGUSR1)
    said = process.communicate(timeout=180)[0]
    assert process.returncode == 85, said
    assert group.ends() == [["completed"], ["failed"], ["requeue"], ["requeue"]]
    assert group.asked == "requeue 42\n"
    (group.root / "go").touch()
    assert group.run(SLURM_ARRAY_JOB_ID="42", SLURM_JOB_ID="44") == 0
    assert group.ends() == [["completed"], ["failed"], ["requeue", "completed"], ["requeue", "completed"]]
    assert "g-0 has ended already" in group.said


def test_an_interrupt_reaches_every_run(tmp_path: Path) -> None:
    caught = "trap 'code=85; why=requeue' INT; touch ready; " + WAIT
    group = Group(tmp_path, caught, caught, pack=2)
    process = group.start()
    until(lambda: len(list(group.root.glob("runs/*/ready"))) == 2)
    process.send_signal(signal.SIGINT)
    until(lambda: all(group.ends()))
    assert process.wait(timeout=180) == 85
    assert group.ends() == [["requeue"], ["requeue"]]


@pytest.mark.parametrize("sign", ["submissions/1/request.json", "submissions/0/over"])
def test_a_run_that_goes_on_elsewhere_or_not_at_all_is_not_started_again(tmp_path: Path, sign: str) -> None:
    """It died of a fault of its own, its record says no more than a signal; somebody may have resumed it."""
    group = Group(tmp_path, "code=137; why=signalled", "code=85; why=requeue", pack=2, options=("--requeue",))
    assert group.run(SLURM_JOB_ID="42") == 85
    path = group.members[0] / sign
    path.parent.mkdir(parents=True)
    path.touch()
    group.run(SLURM_JOB_ID="42")
    assert [len(ends) for ends in group.ends()] == [1, 2]


def test_a_pack_that_slurm_does_not_requeue_says_so_of_each_run(tmp_path: Path) -> None:
    again = "code=85; why=requeue"
    group = Group(tmp_path, again, again, "", pack=3, options=("--requeue",))
    write_program(group.bin, "scontrol", "echo 'Invalid job \"id\" \\' >&2; exit 1")
    assert group.run(SLURM_JOB_ID="42") == 85
    why = "Slurm did not requeue the job: Invalid job id "
    for folder in group.members[:2]:
        assert json.loads((folder / "stopped.json").read_text())["why"] == why
    assert not (group.members[2] / "stopped.json").exists()


def test_a_requeue_that_slurm_has_begun_itself_is_no_refusal(tmp_path: Path) -> None:
    group = Group(tmp_path, "code=85; why=requeue", "", pack=2, options=("--requeue",))
    write_program(group.bin, "scontrol", "echo 'Job is pending execution' >&2; exit 1")
    assert group.run(SLURM_JOB_ID="42") == 85
    assert not (group.members[0] / "stopped.json").exists()


@pytest.mark.slow
@pytest.mark.needs("shellcheck")
@pytest.mark.parametrize(
    ("pack", "options", "scratch"),
    [(1, (), "/node's scratch"), (4, (), None), (4, ("--requeue", "--array=0-3"), "/node's scratch")],
)
def test_shellcheck_has_no_warnings(
    pack: int, options: tuple[str, ...], scratch: str | None, tmp_path: Path
) -> None:
    values = {"job_name": "g", "group_dir": "/a b/'g'", "part": 0, "origin": 0, "first": 0, "pack": pack}
    values["scratch_root"] = scratch
    (tmp_path / "job.sh").write_text(
        render_group(group_script(**values, options=options, **meaning(options)))
    )  # type: ignore[arg-type]
    checked = subprocess.run(
        ["shellcheck", "-S", "warning", tmp_path / "job.sh"], capture_output=True, text=True
    )
    assert checked.stdout == ""


def test_a_pack_that_slurm_is_ending_asks_for_nothing(tmp_path: Path) -> None:
    group = Group(tmp_path, "code=85; why=requeue", "", pack=2, options=("--requeue",))
    write_program(group.bin, "squeue", "echo COMPLETING")
    assert group.run(SLURM_JOB_ID="42", SLURM_JOB_END_TIME=str(int(time.time()) + 600)) == 85
    assert group.asked == ""
    late = Group(tmp_path / "late", "code=85; why=requeue", "", pack=2, options=("--requeue",))
    assert late.run(SLURM_JOB_ID="42", SLURM_JOB_END_TIME=str(int(time.time()) - 1)) == 85
    assert late.asked == "requeue 42\n"


def test_a_task_of_an_array_is_requeued_alone(tmp_path: Path) -> None:
    group = Group(tmp_path, "code=85; why=requeue", "", pack=2, options=("--requeue", "--array=0-3"))
    assert group.run(SLURM_ARRAY_JOB_ID="42", SLURM_ARRAY_TASK_ID="0", SLURM_JOB_ID="44") == 85
    assert group.asked == "requeue 42_0\n"


def test_a_run_that_stopped_for_good_asks_for_no_requeue(tmp_path: Path) -> None:
    group = Group(tmp_path, "code=85; why=requeue; touch stopped.json", "", pack=2, options=("--requeue",))
    assert group.run(SLURM_JOB_ID="42") == 0
    assert group.asked == ""


@pytest.mark.slow
def test_one_run_is_cancelled_alone_before_and_after_it_has_started(tmp_path: Path) -> None:
    group = Group(tmp_path, WAIT, WAIT, WAIT, pack=3)
    early = group.members[0] / "attempts/0"
    early.mkdir()
    (early / "cancel.json").write_text("{}")
    process = group.start()
    until(lambda: len(list(group.root.glob("runs/*/attempts/*/started"))) == 2)
    (group.members[1] / "attempts/0/cancel.json").write_text("{}")
    until(lambda: group.ends()[1])
    (group.root / "go").touch()
    assert process.wait(timeout=180) == 0
    assert group.ends() == [[], ["signalled"], ["completed"]]


def test_a_pack_that_one_process_trains_is_told_where_to_meet_and_how_many_come(tmp_path: Path) -> None:
    note = 'echo "$CLUSTERKIT_TOGETHER $CLUSTERKIT_TOGETHER_SIZE" >met; test -d "$CLUSTERKIT_TOGETHER"; '
    scratch = tmp_path / "node's scratch"
    again = note + "code=85; why=requeue"
    group = Group(tmp_path, note, again, again, pack=3, scratch_root=str(scratch), options=("--requeue",))
    assert group.run(SLURM_CPUS_PER_TASK="6", SLURM_JOB_ID="42") == 85
    first = {(folder / "met").read_text() for folder in group.members}
    assert len(first) == 1
    assert first.pop().startswith(f"{scratch}/together.")
    assert (group.members[0] / "attempts/0/started").read_text() == "3 6\n"  # all processors, for one process
    assert list(scratch.iterdir()) == []
    assert group.run(SLURM_JOB_ID="42") == 85
    assert [(folder / "met").read_text().split()[-1] for folder in group.members] == ["3", "2", "2"]


def test_without_a_place_to_meet_each_run_records_what_becomes_of_it(tmp_path: Path) -> None:
    (tmp_path / "scratch").touch()
    group = Group(
        tmp_path, "", 'echo "<$CLUSTERKIT_TOGETHER>" >met', pack=2, scratch_root=f"{tmp_path}/scratch"
    )
    assert group.run() == 0
    assert group.ends() == [["completed"], ["completed"]]
    assert (group.members[1] / "met").read_text() == "<>\n"
    assert "there is no place to meet: each run trains by itself" in group.said


def test_the_name_of_a_log_is_what_slurm_makes_of_its_pattern() -> None:
    values = {"job_name": "g", "group_dir": "/a 100%/g", "part": 2, "origin": 0, "first": 0, "pack": 1}
    single = render_group(group_script(**values))  # type: ignore[arg-type]
    assert "#SBATCH --output=/a\\ 100%%/g/slurm-2.log" in single
    array = render_group(group_script(**values, options=("--array=0-3",), array=True))  # type: ignore[arg-type]
    assert "#SBATCH --output=/a\\ 100%%/g/slurm-2-%a.log" in array
    assert (group_log(2, None), group_log(2, 3)) == ("slurm-2.log", "slurm-2-3.log")
