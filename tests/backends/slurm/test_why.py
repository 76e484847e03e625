"""What `why` asks of Slurm about a job, by tools that answer anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from clusterkit.backends.slurm.why.answer import read, script
from clusterkit.backends.story import Subject
from clusterkit.probes import FUNCTIONS
from tests.programs import write_program


def test_a_partition_of_very_many_accounts_is_known(tmp_path: Path) -> None:
    accounts = ",".join(f"account{number}" for number in range(3000))
    (tmp_path / "partition").write_text(
        f"PartitionName=gpu AllowGroups=ALL AllowAccounts={accounts} MaxTime=04:00:00 State=UP\n"
    )
    write_program(tmp_path, "squeue", "exit 0")
    write_program(tmp_path, "sacct", "exit 1")
    write_program(tmp_path, "sinfo", "exit 0")
    told = "echo 'JobId=7 Partition=gpu JobState=PENDING Reason=PartitionTimeLimit'"
    write_program(tmp_path, "scontrol", f"case $* in *job*) {told};; *) cat {tmp_path}/partition;; esac")
    subject = Subject("run", "7", str(tmp_path), "slurm")
    answer = subprocess.run(
        ["sh", "-c", FUNCTIONS + script(subject)],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    partition = read(subject, answer).partition
    assert partition.name == "gpu"
    assert partition.text("MaxTime") == "04:00:00"
    assert partition.accounts is not None
    assert partition.accounts[-1] == "account2999"
