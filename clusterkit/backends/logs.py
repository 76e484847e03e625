"""Names of what a scheduler itself writes about jobs (docs/run-directory.md)."""

from __future__ import annotations

SCHEDULER_LOG = "slurm.log"
"""In a run directory."""
GROUP_LOG = r"slurm-\d+(-\d+)?\.log"
"""Pattern of the logs in a group's folder; those of the runs are links to them."""


def group_log(part: int, task: int | str | None) -> str:
    """The log of a task, in the group's folder.

    Args:
        part: number of the submission.
        task: index in the job array, or what the scheduler replaces by it; None for a submission that is a
            single job.
    """
    return f"slurm-{part}.log" if task is None else f"slurm-{part}-{task}.log"
