"""What Slurm answered, as the query prints it.

Rows are written with `|` between the fields for reading; `answer` frames them as the real fragment does.
RECORDED_24_11 is from a real Slurm 24.11 with slurmdbd and cgroup/v1. The others follow the documentation and
public bug reports of their versions; their tests say so.
"""

from __future__ import annotations

from clusterkit.probes import MARK


def answer(
    ids: str,
    *,
    squeue: str = "",
    sacct: str = "",
    squeue_status: int = 0,
    sacct_status: int = 0,
    squeue_error: str = "",
    sacct_error: str = "",
) -> str:
    """The output of `query_script` for these answers."""
    return "\n".join(
        [
            f"{MARK} ids {ids}",
            f"{MARK} begin squeue",
            squeue.strip().replace("|", "\x1f"),
            "",
            f"{MARK} status {squeue_status}",
            squeue_error,
            f"{MARK} begin sacct",
            sacct.strip().replace("|", "\x1f"),
            "",
            f"{MARK} status {sacct_status}",
            sacct_error,
            f"{MARK} end",
            "",
        ]
    )


RECORDED_24_11 = {
    "squeue": """
13_0|13|COMPLETED|None|gpu-a100|a100n1|0:05|10:00|2026-11-20T05:29:04|2026-11-20T05:29:09|job
13_1|13|COMPLETED|None|gpu-a100|a100n1|0:05|10:00|2026-11-20T05:29:04|2026-11-20T05:29:09|job
3|3|PENDING|Resources|gpu-a100||0:00|30:00|2026-11-20T05:59:02|2026-11-20T06:29:02|job
13_2|13|RUNNING|None|gpu-a100|a100n1|0:04|10:00|2026-11-20T05:29:10|2026-11-20T05:39:10|job
13_3|13|RUNNING|None|gpu-a100|a100n1|0:04|10:00|2026-11-20T05:29:10|2026-11-20T05:39:10|job
2|2|RUNNING|None|gpu-a100|a100n1|0:12|30:00|2026-11-20T05:29:02|2026-11-20T05:59:02|job
11|11|CANCELLED|None|gpu-a40|a40n1|0:02|10:00|2026-11-20T05:29:02|2026-11-20T05:29:04|job
4|4|COMPLETED|None|gpu-a40|a40n1|0:00|10:00|2026-11-20T05:29:02|2026-11-20T05:29:02|job
19|19|FAILED|BadConstraints|gpu-a40||0:00|10:00|2026-11-20T05:29:09|2026-11-20T05:29:09|job
5|5|FAILED|NonZeroExitCode|gpu-a40|a40n1|0:00|10:00|2026-11-20T05:29:02|2026-11-20T05:29:02|job
7|7|FAILED|RaisedSignal:11(Segmentation fault)|gpu-a40|a40n1|0:00|10:00|2026-11-20T05:29:02|2026-11-20T05:29:02|job
27|27|NODE_FAIL|NodeDown|gpu-a40|a40n1|0:32|10:00|2026-11-20T05:31:30|2026-11-20T05:32:02|job
8|8|OUT_OF_MEMORY|OutOfMemory|gpu-a40|a40n1|0:02|10:00|2026-11-20T05:29:02|2026-11-20T05:29:04|job
17|17|PENDING|BeginTime|gpu-a40||0:00|10:00|2026-11-20T06:29:07|2026-11-20T06:39:07|job
14|14|PENDING|BeginTime|gpu-a40||0:00|10:00|2026-11-20T05:29:15|2026-11-20T05:39:15|job
18|18|PENDING|PartitionTimeLimit|gpu-a40||0:00|3-00:00:00|N/A|N/A|job
6|6|PENDING|DependencyNeverSatisfied|gpu-a40||0:00|10:00|N/A|N/A|job
12|12|PENDING|JobHeldUser|gpu-a40||0:00|10:00|N/A|N/A|job
10|10|TIMEOUT|TimeLimit|gpu-a40|a40n1|1:18|1:00|2026-11-20T05:29:02|2026-11-20T05:30:20|job
""",  # noqa: E501
    "sacct": """
2|RUNNING|0:0|2026-11-20T05:29:02|Unknown|12|30|gpu-a100|a100n1|job
2.batch|RUNNING|0:0|2026-11-20T05:29:02|Unknown|12|||a100n1|job
3|PENDING|0:0|Unknown|Unknown|0|30|gpu-a100|None assigned|job
4|COMPLETED|0:0|2026-11-20T05:29:02|2026-11-20T05:29:02|0|10|gpu-a40|a40n1|job
4.batch|COMPLETED|0:0|2026-11-20T05:29:02|2026-11-20T05:29:02|0|||a40n1|job
5|FAILED|3:0|2026-11-20T05:29:02|2026-11-20T05:29:02|0|10|gpu-a40|a40n1|job
5.batch|FAILED|3:0|2026-11-20T05:29:02|2026-11-20T05:29:02|0|||a40n1|job
6|PENDING|0:0|Unknown|Unknown|0|10|gpu-a40|None assigned|job
7|FAILED|0:11|2026-11-20T05:29:02|2026-11-20T05:29:02|0|10|gpu-a40|a40n1|job
7.batch|CANCELLED|0:11|2026-11-20T05:29:02|2026-11-20T05:29:02|0|||a40n1|job
8|OUT_OF_MEMORY|0:125|2026-11-20T05:29:02|2026-11-20T05:29:04|2|10|gpu-a40|a40n1|job
8.batch|OUT_OF_MEMORY|0:125|2026-11-20T05:29:02|2026-11-20T05:29:04|2|||a40n1|job
10|TIMEOUT|0:0|2026-11-20T05:29:02|2026-11-20T05:30:20|78|1|gpu-a40|a40n1|job
10.batch|CANCELLED|0:15|2026-11-20T05:29:02|2026-11-20T05:30:21|79|||a40n1|job
11|CANCELLED by 2001|0:0|2026-11-20T05:29:02|2026-11-20T05:29:04|2|10|gpu-a40|a40n1|job
11.batch|CANCELLED|0:15|2026-11-20T05:29:02|2026-11-20T05:29:05|3|||a40n1|job
12|PENDING|0:0|Unknown|Unknown|0|10|gpu-a40|None assigned|job
13_0|COMPLETED|0:0|2026-11-20T05:29:04|2026-11-20T05:29:09|5|10|gpu-a100|a100n1|job
13_0.batch|COMPLETED|0:0|2026-11-20T05:29:04|2026-11-20T05:29:09|5|||a100n1|job
13_1|COMPLETED|0:0|2026-11-20T05:29:04|2026-11-20T05:29:09|5|10|gpu-a100|a100n1|job
13_2|RUNNING|0:0|2026-11-20T05:29:10|Unknown|4|10|gpu-a100|a100n1|job
13_3|RUNNING|0:0|2026-11-20T05:29:10|Unknown|4|10|gpu-a100|a100n1|job
17|PENDING|0:0|Unknown|Unknown|0|10|gpu-a40|None assigned|job
18|PENDING|0:0|Unknown|Unknown|0|4320|gpu-a40|None assigned|job
14|PENDING|0:0|Unknown|Unknown|0|10|gpu-a40|None assigned|job
27|NODE_FAIL|1:0|2026-11-20T05:31:30|2026-11-20T05:32:02|32|10|gpu-a40|a40n1|job
27.batch|CANCELLED||2026-11-20T05:31:30|2026-11-20T05:32:02|32|||a40n1|job
""",
}
