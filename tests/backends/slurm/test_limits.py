"""What a site allows, and the way chosen from it. CONFIG and PARTITION follow a real Slurm 24.11."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.jobs import Limits
from clusterkit.backends.slurm.limits import choose, parse_limits, probe
from clusterkit.backends.slurm.options import SlurmOptions
from clusterkit.backends.slurm.request import read
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.probes import MARK, script
from tests.programs import write_program

CONFIG = """\
Configuration data as of 2026-11-20T08:00:00
AccountingStorageType   = accounting_storage/slurmdbd
JobRequeue              = 1
KillWait                = 5 sec
MaxArraySize            = 1001
PreemptMode             = OFF
PreemptType             = (null)
SLURM_VERSION           = 24.11.5

Slurmctld(primary) at ctl is UP
"""
PARTITION = (
    "PartitionName=gpu-a40 AllowGroups=ALL Default=YES QoS=N/A MaxNodes=UNLIMITED MaxTime=1-00:00:00 "
    "PreemptMode=OFF State=UP\n"
)
OTHER = "PartitionName=long Default=NO MaxTime=UNLIMITED PreemptMode=OFF\n"


def answer(config: str = CONFIG, partition: str = PARTITION, **more: str) -> str:
    said = {"config": config, "partitions": partition, **more}
    parts = (f"\n{MARK} begin {name}\n{text}\n{MARK} status 0\n\n" for name, text in said.items())
    return f"Welcome!\n{''.join(parts)}"


def config(**changes: str) -> str:
    lines = [line.partition("=") for line in CONFIG.splitlines()]
    return "".join(f"{key}{sign} {changes.get(key.strip(), value.strip())}\n" for key, sign, value in lines)


def test_expedited_requeue_stays_as_it_was_asked_for() -> None:
    asked = ("--time=10", "--requeue=expedite")
    assert choose(Limits(), "auto", asked).options == ()
    assert choose(Limits(), "auto", ["--time=10"]).options == ("--requeue",)
    backend = SlurmOptions()
    assert backend.requeued(asked) == asked
    assert backend.carried_over(asked, time=True, packed=False) == list(asked)
    assert backend.carried_over(["--requeue"], time=True, packed=False) == []


def test_a_usual_site() -> None:
    expected = Limits(
        requeue=True, array_size=1001, max_time=86400, partition="gpu-a40", preempt_cancels=False
    )
    assert parse_limits(answer()) == expected


def test_the_default_partition_counts_when_none_is_named() -> None:
    assert parse_limits(answer(partition=OTHER + PARTITION)).partition == "gpu-a40"
    assert parse_limits(answer(partition=OTHER)).max_time is None


def test_what_other_jobs_of_the_user_leave_of_the_limit() -> None:
    several = {"associations": "lab||normal|normal|||5||\n", "qos": "normal||||||9\n"}
    assert parse_limits(answer(**several)).room == 5
    assert parse_limits(answer(**several, queued="7\n7\n8\n")).room == 2
    assert parse_limits(answer(**several, queued="7\n" * 6)).room == 0
    assert parse_limits(answer(queued="7\n")).room is None


def test_what_is_not_said_is_as_slurm_has_it() -> None:
    assert parse_limits(answer("JobRequeue = 1\n", "")) == Limits(array_size=1001)


def test_an_answer_cut_before_requeueing_is_no_answer() -> None:
    told = parse_limits(answer("AccountingStorageType = none\nClusterName = site\n"))
    assert told.requeue is None
    with pytest.raises(SchedulerError, match="does not report its limits"):
        choose(told, "auto")
    assert choose(told, "auto", ["--requeue"]).way == "requeue"
    assert choose(told, "chain").way == "chain"


@pytest.mark.parametrize("silent", ["", "slurm_load_ctl_conf error: Unable to contact slurm controller\n"])
def test_a_silent_controller(silent: str) -> None:
    with pytest.raises(SchedulerError, match="does not report its limits"):
        parse_limits(answer(silent, ""))
    with pytest.raises(SchedulerError):
        parse_limits(silent)


def test_the_question_fails_on_nothing(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    write_program(tmp_path, "scontrol", f'echo "$@" >>{calls}\necho "JobRequeue = 1"\nexit 1')
    done = subprocess.run(
        ["sh"],
        input=script([probe(read(["--partition=a b,c"]))]),
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        check=True,
    )
    assert parse_limits(done.stdout).requeue
    assert calls.read_text() == "show config\n-o show partition a b\n"
    without = subprocess.run(
        ["sh"], input=script([probe(read([]))]), capture_output=True, text=True, check=True
    )
    with pytest.raises(SchedulerError, match=r"not found|No such file"):
        parse_limits(without.stdout)


ASSOCIATIONS = "lab||small,normal||||50||\nnarrow||small|small|||20||\nfree||normal||||||\n"
QUALITIES = "normal||||||\nsmall||||||10\nlarge||||||400\n"


@pytest.mark.parametrize(
    ("account", "qos", "jobs"),
    [("lab", "", 10), ("lab", "large", 50), ("lab", "normal", 50), ("free", "", None), ("", "normal", 20)],
)
def test_how_many_jobs_the_user_may_have(account: str, qos: str, jobs: int | None) -> None:
    told = answer(associations=ASSOCIATIONS, qos=QUALITIES)
    assert parse_limits(told, account, qos).jobs == jobs


def test_a_site_without_accounting_limits_no_jobs() -> None:
    assert parse_limits(answer(associations="", qos="slurm_persist_conn_open: refused")).jobs is None


def test_requeue_where_the_site_requeues() -> None:
    choice = choose(Limits(), "auto")
    assert (choice.way, choice.options, choice.why) == ("requeue", ("--requeue",), "this site requeues jobs")


def test_an_array_where_it_does_not() -> None:
    choice = choose(parse_limits(answer(config(JobRequeue="0"))), "auto")
    assert (choice.way, choice.options) == ("array", ("--array=0-23%1",))
    assert "JobRequeue=0" in choice.why


def test_an_array_that_mails_does_so_by_task() -> None:
    mail = ["--mail-user=me@x.org", "--mail-type=END,FAIL"]
    options = choose(Limits(requeue=False, array_size=1001), "auto", mail).options
    assert options == ("--array=0-23%1", "--mail-type=END,FAIL,ARRAY_TASKS")


def test_a_small_array_where_large_ones_are_not_allowed() -> None:
    assert choose(Limits(requeue=False, array_size=5), "auto").options == ("--array=0-4%1",)


def test_a_chain_where_there_is_neither() -> None:
    choice = choose(parse_limits(answer(config(JobRequeue="0", MaxArraySize="0"))), "auto")
    assert (choice.way, choice.options) == ("chain", ())


def test_an_option_that_forbids_requeueing() -> None:
    assert choose(Limits(), "auto", ["--no-requeue"]).way == "array"
    with pytest.raises(ConfigError, match="no-requeue"):
        choose(Limits(), "requeue", ["--no-requeue"])


def test_an_option_that_asks_for_requeueing() -> None:
    assert choose(Limits(requeue=False), "auto", ["--requeue"]).way == "requeue"


@pytest.mark.parametrize(("kind", "way"), [("preempt/qos", "array"), ("(null)", "requeue")])
def test_where_preempted_jobs_are_cancelled(kind: str, way: str) -> None:
    site = parse_limits(answer(config(PreemptMode="CANCEL", PreemptType=kind), ""))
    assert choose(site, "auto").way == way


def test_the_partition_may_preempt_in_another_way_than_the_site() -> None:
    cancels = config(PreemptMode="CANCEL", PreemptType="preempt/partition_prio")
    assert not parse_limits(
        answer(cancels, PARTITION.replace("PreemptMode=OFF", "PreemptMode=REQUEUE"))
    ).preempt_cancels


@pytest.mark.parametrize("way", ["requeue", "array", "chain"])
def test_the_users_own_choice(way: str) -> None:
    choice = choose(replace(Limits(), requeue=False), way)  # type: ignore[arg-type]
    assert (choice.way, choice.why) == (way, "continue_by is set to it")


def test_an_array_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="no job arrays"):
        choose(Limits(array_size=1), "array")
