"""Runs submitted together: their order, their job arrays and their files. Pure: no I/O.

A group's runs are divided into tasks (one run each, or several that share a GPU), and its tasks into parts.
A part is one job array or one job, and one submission. The file `members` lists the runs of each task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class JobBatch:
    """Consecutive tasks with the same request to the scheduler."""

    first: int
    """Number, in the group, of the batch's first task."""
    tasks: tuple[tuple[int, ...], ...]
    """The indices of each task's runs."""
    options: tuple[str, ...]
    stage: int = 0
    """Stage of the pipeline."""


@dataclass(frozen=True)
class GroupPart:
    """One submission: some tasks of a batch."""

    number: int
    first: int
    """Number, in the group, of the part's first task."""
    origin: int
    """Number, in the group, of the job array's task 0."""
    tasks: tuple[tuple[int, ...], ...]
    options: tuple[str, ...]
    stage: int = 0
    at_once: int | None = None
    """Maximum number of tasks that run at a time; None for no limit."""
    turn: int | None = None
    """The part that must end first, which limits how many tasks run at a time."""
    before: int | None = None
    """The part with the same tasks in the pipeline's previous stage."""

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of the part's runs."""
        return tuple(index for task in self.tasks for index in task)

    def tasks_of_array(self, *, always: bool) -> tuple[int, int, int | None] | None:
        """Returns the first task, last task and concurrency of the job array; None for a single job.

        Args:
            always: use an array even for one task.
        """
        if len(self.tasks) == 1 and not always:
            return None
        begin = self.first - self.origin
        limit = self.at_once if self.at_once is not None and self.at_once < len(self.tasks) else None
        return begin, begin + len(self.tasks) - 1, limit

    def task_of(self, index: int, *, always: bool) -> int | None:
        """Returns the number of a run's task in the job array; None for a single job."""
        if self.tasks_of_array(always=always) is None:
            return None
        place = next(number for number, task in enumerate(self.tasks) if index in task)
        return self.first - self.origin + place


def batches(options: Sequence[tuple[str, ...]], stages: Sequence[int], pack: int) -> list[JobBatch]:
    """Divides runs into tasks; only adjacent runs with equal requests share a task or an array.

    Args:
        options: each run's request to the scheduler.
        stages: each run's stage.
        pack: runs per task.
    """
    found: list[JobBatch] = []
    index = first = 0
    while index < len(options):
        end = index
        while end < len(options) and (options[end], stages[end]) == (options[index], stages[index]):
            end += 1
        tasks = tuple(tuple(range(at, min(at + pack, end))) for at in range(index, end, pack))
        found.append(JobBatch(first, tasks, options[index], stages[index]))
        index, first = end, first + len(tasks)
    return found


def parts(dealt: Iterable[JobBatch], *, array_size: int | None, at_once: int | None) -> list[GroupPart]:
    """Splits batches at the site's limits for arrays.

    Args:
        dealt: the batches.
        array_size: maximum number of tasks in an array, and one more than the highest task number; None for
            no limit, below 2 if the site has no arrays.
        at_once: maximum number of a batch's tasks that run at a time; None for no limit.
    """
    size = None if array_size is None else max(1, array_size)
    found: list[GroupPart] = []
    stages: dict[int, list[GroupPart]] = {}
    for batch in dealt:
        mine = stages.setdefault(batch.stage, [])
        begin = mine[0].first if mine else batch.first
        step = len(batch.tasks) if size is None else size
        for offset in range(0, len(batch.tasks), step):
            tasks = batch.tasks[offset : offset + step]
            first = batch.first + offset
            fits = size is None or first - begin + len(tasks) <= size
            part = GroupPart(len(found), first, begin if fits else first, tasks, batch.options, batch.stage)
            if at_once is not None:
                lanes = max(1, at_once // step)
                part = replace(
                    part,
                    at_once=min(at_once, step),
                    turn=mine[-lanes].number if len(mine) >= lanes else None,
                )
            found.append(part)
            mine.append(part)
    for stage, now in stages.items():
        for part, before in zip(now, stages.get(stage - 1, []), strict=False):
            found[part.number] = replace(part, before=before.number)
    return found


def member_id(group: str, index: int, size: int) -> str:
    """Returns the run id of a group's member; it starts with the group's id and sorts by index.

    >>> member_id("a40-2m-20260102-030405-k3f9", 7, 12)
    'a40-2m-20260102-030405-k3f9-07'
    """
    return f"{group}-{index:0{len(str(size - 1))}}"


def members_file(run_dirs: Sequence[str], dealt: Iterable[JobBatch], pack: int) -> bytes:
    """Returns the file `members`: run directories, `pack` lines per task, with unused lines empty."""
    lines: list[str] = []
    for batch in dealt:
        for task in batch.tasks:
            lines += [run_dirs[index] for index in task] + [""] * (pack - len(task))
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
