"""What schedulers tell of one job: Slurm's own commands, and a scheduler that tells no more than a state."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.jobs import Job, JobState, QueryResult
from clusterkit.backends.local.backend import LocalBackend
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.backends.story import JobStory, Subject, Topic
from clusterkit.config import kinds
from clusterkit.diagnosis import diagnose, parse_evidence
from clusterkit.errors import SchedulerError
from clusterkit.probes import Probe, script, sections
from tests.diagnosis.run_dirs import ask, make_run

SUBJECT = Subject("r-1", "25;north", "/share/it's here", scheduler="slurm", shell="ssh login")
QUEUED = r"printf '25\037PENDING\037QOSMaxCpuPerUserLimit\037gpu\037\037N/A\0370:00\03710:00\n'"
SLURM = {
    "squeue": QUEUED,
    "sacct": r"""case $* in
  *JobName*) echo '14|FAILED|first' ;;
  *) printf '25\037CANCELLED by 0\0370:0\037None\03700:00\03700:10\03760M\037\n' ;;
esac""",
    "scontrol": r"""case $* in
  *job*) printf 'JobId=25\n JobState=PENDING Reason=QOSMaxCpuPerUserLimit Dependency=afterok:14\n'
    printf ' Account=lab QOS=normal\n Partition=gpu,cpu TimeLimit=00:10:00\n' ;;
  *) echo 'PartitionName=gpu MaxTime=1:00' ;;
esac""",
    "sinfo": r"printf 'n1\037drained\037root\037a fan\n'",
    "sacctmgr": "echo 'normal|1:00||cpu=2|||'",
}


def told(folder: Path, commands: dict[str, str]) -> tuple[JobStory, list[str], set[str]]:
    """The story, the commands that were run, and the sections that were printed."""
    calls = folder / "calls"
    for name, body in commands.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{calls}\n{body}\n')
        (folder / name).chmod(0o755)
    probe = SlurmBackend().story(SUBJECT)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["sh"], input=script([probe]), env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    names = {section.name for section in sections(answer)}
    return probe.read(answer), calls.read_text().splitlines(), names


def test_slurm_is_asked_for_all_that_the_rules_read(tmp_path: Path) -> None:
    story, calls, names = told(tmp_path, SLURM)
    assert names == {
        "squeue", "sacct", "person 0", "job", "partition", "nodes", "dependencies", "qos", "association"
    }  # fmt: skip
    assert all("-M north" in call for call in calls if not call.startswith("sacctmgr"))
    assert "sinfo -M north -h -N -p gpu,cpu" in calls[4]
    (finding,) = story.findings
    assert finding.cause.slug == "qos-limit"
    assert "sacctmgr show qos: normal|1:00||cpu=2|||" in map(str, finding.evidence)
    assert [line.text for line in story.quote(Topic.DEPENDENCY)] == [
        "Dependency=afterok:14",
        "14|FAILED|first",
    ]
    assert story.cancelled_by == ("0", "root")
    assert story.more_memory == ("mem=120M",)


def test_a_controller_that_gives_no_answer_is_asked_once(tmp_path: Path) -> None:
    silent = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    story, calls, names = told(tmp_path, SLURM | {"squeue": f"echo '{silent}' >&2; exit 1"})
    assert story.silent == silent
    assert {call.split()[0] for call in calls} == {"squeue", "sacct"}
    assert "job" not in names


class PlainBackend(LocalBackend):
    """A scheduler that tells the state of its jobs and no more."""

    result: QueryResult | None = None

    def query(self, job_ids: Sequence[str]) -> Probe[QueryResult]:
        return Probe("query", "", self.read)

    def read(self, answer: str) -> QueryResult:
        if self.result is None:
            raise SchedulerError("the queue's folder is gone")
        return self.result


BACKEND = PlainBackend()


@pytest.mark.parametrize(
    ("job", "slug"),
    [
        (Job("7", JobState.PENDING, "waits", reason="no_slot"), "waiting"),
        (Job("7", JobState.PENDING, "waits", reason="after others", depends=True), "dependency"),
        (Job("7", JobState.PENDING, "waits", reason="gone", in_vain=True), "dependency-failed"),
        (Job("7", JobState.SUSPENDED, "asleep"), "suspended"),
        (Job("7", JobState.TIMEOUT, "late"), "time-limit"),
        (Job("7", JobState.PREEMPTED, "pushed out"), "preempted"),
        (Job("7", JobState.NODE_FAIL, "lost"), "node-failed"),
        (Job("7", JobState.CANCELLED, "stopped"), "cancelled"),
        (Job("7", JobState.OUT_OF_MEMORY, "too big"), "out-of-memory"),
        (None, "scheduler-silent"),
    ],
)
def test_a_scheduler_that_tells_no_more_than_a_state(
    job: Job | None, slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds._BUILT_IN, "plain", kinds.ClusterKind(__name__))
    monkeypatch.setattr(BACKEND, "result", QueryResult({"7": job}) if job else None)
    run = make_run(tmp_path)
    (run / "attempts/0/exit.json").unlink()
    answer = ask(run, "7", scheduler="plain")
    diagnosis = diagnose(parse_evidence(answer))
    assert diagnosis.finding.cause.slug == slug
    assert diagnosis.finding.evidence
    assert "--sbatch" not in diagnosis.finding.next
    if job is None:
        assert diagnosis.finding.evidence[0].text == "the queue's folder is gone"


def test_a_story_that_is_over_keeps_its_findings_to_itself(tmp_path: Path) -> None:
    """What a scheduler says about waiting does not count once the run directory knows better."""
    text = (Path(__file__).parent / "recorded/nodes-drained--drained-nodes.txt").read_text()
    evidence = parse_evidence(text)
    assert diagnose(evidence).finding.cause.slug == "nodes-drained"
    done = replace(evidence, state=replace(evidence.state, state=JobState.COMPLETED))
    assert diagnose(done).finding.cause.slug == "completed"
    assert diagnose(done).also == ()
