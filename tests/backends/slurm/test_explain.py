"""Plain words for Slurm's: every usual reason has some, and nothing is explained that is not understood."""

from __future__ import annotations

import pytest

from clusterkit.backends.slurm.explain import explain, sbatch_error

FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "free"),
        ("(Priority)", "ahead of it"),
        ("QOSMaxGRESPerUser", "have reached a limit (QOSMaxGRESPerUser)"),
        ("AssocGrpGRES", "have reached a limit"),
        ("MaxGRESPerAccount", "have reached a limit"),
        ("QOSMaxCpuPerUserLimit", "have reached a limit"),
        ("AssocMaxWallDurationPerJobLimit", "never start"),
        ("QOSMaxWallDurationPerJobLimit", "never start"),
        ("PartitionTimeLimit", "never start"),
        ("AssocGrpCPUMinutesLimit", "budget"),
        ("AssocGrpBillingMinutes", "budget"),
        ("QOSMaxJobsPerUserLimit", "running jobs"),
        ("AssocMaxJobsLimit", "running jobs"),
        ("QOSMaxSubmitJobPerUserLimit", "submitted jobs"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "down, drained or reserved"),
        ("ReqNodeNotAvail, Reserved for maintenance", "maintenance"),
        ("DependencyNeverSatisfied", "cancel it"),
        ("BeginTime", "requeue"),
        ("JobHeldUser", "scontrol release"),
        ("JobHeldAdmin", "administrators"),
        ("launch failed requeued held", "failed starts"),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "drained or taken",
        ),
        ("InvalidQOS", "check the QOS"),
        ("InvalidAccount", "check the account"),
        ("BadConstraints", "no node"),
        ("OUT_OF_MEMORY", "memory"),
        ("OutOfMemory", "memory"),
        ("TIMEOUT", "time limit"),
        ("NODE_FAIL", "node failed"),
        ("CANCELLED by 1000", "cancelled"),
        ("RaisedSignal:11(Segmentation fault)", "signal"),
    ],
)
def test_usual_reasons(reason: str, words: str) -> None:
    assert words in str(explain(reason))


@pytest.mark.parametrize("reason", ["", "SomethingNew", "nhc: gpu fell off the bus"])
def test_unknown_reasons(reason: str) -> None:
    assert explain(reason) is None


@pytest.mark.parametrize(
    ("stderr", "step"),
    [  # the first eight are recorded from Slurm 24.11, the others follow its source and public reports
        (FAILED + "Invalid partition name specified", "sinfo -s"),
        (
            FAILED + "Requested node configuration is not available",
            "request less",
        ),
        ("sbatch: error: Memory specification can not be satisfied", "less `memory`"),
        (
            "sbatch: unrecognized option '--bogus=1'\nTry \"sbatch --help\" for more information",
            "`sbatch` table",
        ),
        ("sbatch: error: Invalid --time specification", "D-HH:MM:SS"),
        (
            "sbatch: error: AssocMaxSubmitJobLimit\n" + FAILED + "Job violates accounting/QOS policy",
            "has ended",
        ),
        (FAILED + "Invalid feature specification", "constraint"),
        (FAILED + "Job dependency problem", "wait for"),
        (
            f"CPU count per node can not be satisfied\n{FAILED}Requested node configuration is not available",
            "less",
        ),
        (
            FAILED + "Invalid account or account/partition combination specified",
            "sacctmgr",
        ),
        (FAILED + "Invalid qos specification", "sacctmgr show qos"),
        ("sbatch: error: Invalid generic resource (gres) specification", "%G"),
        (
            FAILED + "Requested time limit is invalid (missing or exceeds some limit)",
            "less `time`",
        ),
        (
            FAILED + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "limit of your account",
        ),
        (
            FAILED + "Unable to contact slurm controller",
            "before you submit again",
        ),
        (
            FAILED + "Socket timed out on send/recv operation",
            "before you submit again",
        ),
        ("sh: 1: exec: sbatch: not found", "login_shell"),
        ("sbatch: option '--requeue' doesn't allow an argument", "25.11"),
        ("sbatch: error: Invalid --requeue specification", "25.11"),
        (
            FAILED + "User's group not permitted to use this partition",
            "another",
        ),
    ],
)
def test_refusals_have_a_next_step(stderr: str, step: str) -> None:
    assert step in str(sbatch_error(stderr))


def test_an_unusual_refusal_has_none() -> None:
    assert sbatch_error("sbatch: error: the moon is full") is None
