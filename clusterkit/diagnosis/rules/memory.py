"""Causes: too little memory on the node."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import SCHEDULER_LOG, JobState
from clusterkit.backends.story import Topic
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import logs, resume
from clusterkit.diagnosis.rules.said import exited, said

OUT_OF_MEMORY = Cause(
    "out-of-memory",
    "it used more main memory than it asked for and was killed",
    "give the profile more `memory`; or fewer `num_envs` or `workers`, or a smaller replay buffer",
)
SHARED_MEMORY = Cause(
    "shared-memory",
    "the node's shared memory (/dev/shm) is full",
    "fewer data loader workers, or smaller batches; /dev/shm counts as memory of the job",
)
MEMORY_REFUSED = Cause(
    "memory-refused",
    "the program could not get the memory it wanted",
    "give the profile more `memory`, or let the program ask for less at once",
)

_KILLS = r"oom[-_ ]kill|Exceeded (job|step) memory limit|Out Of Memory"


def out_of_memory(evidence: Evidence) -> Finding | None:
    """The control group killed it, by the scheduler's state or a log's message."""
    named = evidence.state.state is JobState.OUT_OF_MEMORY
    # Of several runs in one job it was another one that was killed, when this one came to its own end.
    own = evidence.record.packed and evidence.own_end and not named
    texts = ("log",) if own else (SCHEDULER_LOG, "log")
    killed = evidence.line(_KILLS, *texts) if named or evidence.ended_badly else None
    if not named and not killed:
        return None
    asked_for = evidence.story.memory
    return OUT_OF_MEMORY.found(
        killed,
        *evidence.story.quote(Topic.OUT_OF_MEMORY),
        exited(evidence),
        detail=f"{asked_for} was asked for" if asked_for else "",
        command=resume(evidence, *evidence.story.more_memory),
    )


def worker_killed(evidence: Evidence) -> Finding | None:
    """A child of the program was killed, and the program noticed before the scheduler."""
    return said(
        evidence,
        OUT_OF_MEMORY,
        r"DataLoader worker \(pid.*killed by signal: Killed|(W|w)orker .*(signal 9|SIGKILL)",
        detail="one of its worker processes was killed",
        command=resume(evidence, *evidence.story.more_memory),
        also=evidence.story.quote(Topic.MEMORY),
    )


def shared_memory(evidence: Evidence) -> Finding | None:
    """The shared memory, `/dev/shm`, is full."""
    pattern = r"insufficient shared memory|No space left on device.*/dev/shm|/dev/shm.*No space left"
    return said(evidence, SHARED_MEMORY, pattern, command=logs(evidence))


def memory_refused(evidence: Evidence) -> Finding | None:
    """An allocation failed."""
    pattern = (
        r"\bMemoryError\b|std::bad_alloc|Cannot allocate memory|\[Errno 12\]|can't allocate memory"
        r"|Unable to allocate .* for an array"
    )
    return said(
        evidence,
        MEMORY_REFUSED,
        pattern,
        also=evidence.story.quote(Topic.MEMORY),
        command=resume(evidence, *evidence.story.more_memory),
    )


def killed(evidence: Evidence) -> Finding | None:
    """SIGKILL, without an explanation by the scheduler or a log."""
    record = evidence.exit
    if not evidence.ended_badly or record.get("why") != "signalled" or record.get("signal") != "KILL":
        return None
    return OUT_OF_MEMORY.found(
        exited(evidence),
        Line("log", "no line says who sent SIGKILL"),
        detail="SIGKILL ended it, which is how the kernel does it",
        command=logs(evidence),
        sure=Sure.GENERAL,
    )


RULES = (out_of_memory, worker_killed, shared_memory, memory_refused, killed)
