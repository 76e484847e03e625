"""What Slurm says of a request, judged."""

from __future__ import annotations

import pytest

from clusterkit.backends.checks import Outcome, Verdict
from clusterkit.backends.slurm import checks as scheduler
from clusterkit.backends.slurm.checks import SlurmAnswer
from clusterkit.backends.slurm.request import read
from clusterkit.backends.submission import Submission
from tests.checkup.sites import slurm_answer

FINE = ("--cpus-per-task=8", "--mem=64G", "--time=04:00:00", "--gres=gpu:a40:2", "--account=students")


JUDGES = {check.name: check.judge for check in scheduler.CHECKS}


def judged(name: str, *options: str, **parts: tuple[int, str]) -> Verdict:
    slurm = SlurmAnswer(slurm_answer(**parts), "uni", "a40", read([*FINE, *options]))
    return JUDGES[name](slurm)


@pytest.mark.parametrize("name", JUDGES)
def test_a_request_that_fits(name: str) -> None:
    verdict = judged(name, test__a40=(0, "sbatch: Job 7 to start at 2026-01-01T00:00:00 using 8 processors"))
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.cure == ""


@pytest.mark.parametrize(
    ("name", "options", "evidence", "cure"),
    [
        (
            "partition",
            ["--partition=gpus"],
            "there is no partition gpus; available: gpu, lab, old, sick",
            "part",
        ),
        ("partition", ["--partition=old"], "old is DRAIN", "another partition"),
        ("partition", ["--partition=sick"], "s1 is down*: power|supply", "another"),
        ("account", ["--account=none"], "you have no account none; yours: students", "account = ..."),
        (
            "account",
            ["--partition=lab", "--account=students"],
            "lab takes only accounts lab,other",
            "account",
        ),
        ("qos", ["--qos=platinum"], "there is no QOS platinum; available: gold, normal, short", "qos = ..."),
        ("qos", ["--qos=gold"], "your account may not use gold; it may: normal, short", "qos = ..."),
        (
            "qos",
            ["--partition=lab", "--account=lab", "--qos=short"],
            "lab takes only QOS normal",
            "partition",
        ),
        ("gres", ["--gres=gpu:a100:1"], "the nodes of gpu have gpu:a40:4, gpu:a40:8", "GPU's name"),
        ("gres", ["--partition=lab"], "the nodes of lab have gpu:2", 'request = "--gres=gpu:{count}"'),
        ("gres", ["--gres=gpu:a40:9"], "a node of gpu has 8", "gpus = 8 in [profiles.a40]"),
        ("time-limit", ["--time=2-00:00:00"], "2d requested, gpu allows 1d", 'time = "1d"'),
        ("size", ["--cpus-per-task=65"], "65 CPUs requested, the nodes have 64", "cpus = 64"),
        ("size", ["--mem=600G"], "600 GiB requested, the nodes have 500 GiB", 'memory = "500G"'),
    ],
)
def test_a_request_that_does_not(name: str, options: list[str], evidence: str, cure: str) -> None:
    verdict = judged(name, *options)
    assert verdict.outcome is Outcome.FAIL
    assert evidence in verdict.evidence
    assert cure in verdict.cure


def test_what_is_not_enforced_is_a_warning() -> None:
    free = {"config": (0, "AccountingStorageEnforce = none")}
    assert judged("account", "--account=none", **free).outcome is Outcome.WARN
    assert judged("qos", "--qos=gold", **free).outcome is Outcome.WARN


def test_a_site_without_accounting_cannot_tell() -> None:
    silent = {"associations": (1, "sacctmgr: error: no"), "qos": (1, ""), "config": (0, "")}
    assert judged("account", "--account=none", **silent).outcome is Outcome.PASS
    assert judged("qos", "--qos=any", **silent).outcome is Outcome.PASS
    accounting = judged("accounting", sacct=(1, "Slurm accounting storage is disabled"))
    assert (accounting.outcome, accounting.cure) == (Outcome.WARN, "nothing to do: this site has none")


def test_an_accounting_that_is_down_is_not_called_none() -> None:
    down = judged("accounting", sacct=(1, "sacct: error: connect to localhost:6819: Connection refused"))
    assert (down.outcome, down.cure) == (Outcome.WARN, "wait a few minutes; then ask the administrators")
    assert "Connection refused" in down.evidence


def test_sbatchs_own_words_and_what_to_do() -> None:
    said = (
        "sbatch: error: This site wants --comment=GRANT; see https://example.org/grants",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
    )
    verdict = judged("submit", test__a40=(1, "\n".join(said) + "\n"))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.evidence == Submission(0, status=1, error="\n".join(said)).refusal == " / ".join(said)
    assert "request less" in verdict.cure
    assert judged("submit", test__a40=(124, "sbatch: error: one")).evidence == "no answer within 20 s"


def test_a_controller_that_does_not_answer() -> None:
    verdict = judged("controller", queue=(124, ""))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.evidence == "squeue: no answer within 20 s"


def test_tools_that_only_a_login_shell_finds() -> None:
    said = {"slurm": (0, "sbatch squeue"), "login_shell": (0, "motd\n/opt/slurm/bin/sbatch")}
    verdict = judged("slurm-tools", **said)
    assert verdict.cure == "login_shell = true in [clusters.uni]"
    assert "no" not in judged("slurm-tools", slurm=(0, "sbatch"), login_shell=(1, "")).cure.split()
