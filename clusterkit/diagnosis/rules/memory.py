"""Too little memory: the node's, as a whole or refused in one piece."""

from __future__ import annotations

import re

from clusterkit.backends.base import JobState
from clusterkit.diagnosis.evidence import Evidence, Line
from clusterkit.diagnosis.finding import Cause, Finding, Sure
from clusterkit.diagnosis.rules.commands import logs, resume
from clusterkit.diagnosis.rules.said import booked, exited, said

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

_KILLS = r"oom[-_ ]kill|Exceeded job memory limit|Exceeded step memory limit|Out Of Memory"


def out_of_memory(evidence: Evidence) -> Finding | None:
    """The control group killed it: the scheduler's state, or the words of slurmstepd."""
    named = evidence.state.state is JobState.OUT_OF_MEMORY
    # Of several runs in one job it was another one that was killed, when this one came to its own end.
    own = evidence.record.packed and evidence.own_end and not named
    texts = ("log",) if own else ("slurm.log", "log")
    killed = evidence.line(_KILLS, *texts) if named or evidence.ended_badly else None
    if not named and not killed:
        return None
    asked_for = _wanted(evidence)
    return OUT_OF_MEMORY.found(
        killed,
        booked(evidence, "State", "ReqMem", "MaxRSS"),
        exited(evidence),
        detail=f"{asked_for} was asked for" if asked_for else "",
        command=resume(evidence, _more(evidence)),
    )


def worker_killed(evidence: Evidence) -> Finding | None:
    """A child of the program was killed, which the program noticed before Slurm."""
    return said(
        evidence,
        OUT_OF_MEMORY,
        r"DataLoader worker \(pid.*killed by signal: Killed|(W|w)orker .*(signal 9|SIGKILL)",
        detail="one of its worker processes was killed",
        command=resume(evidence, _more(evidence)),
        also=booked(evidence, "ReqMem", "MaxRSS"),
    )


def shared_memory(evidence: Evidence) -> Finding | None:
    """A full /dev/shm."""
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
        also=booked(evidence, "ReqMem", "MaxRSS"),
        command=resume(evidence, _more(evidence)),
    )


def killed(evidence: Evidence) -> Finding | None:
    """SIGKILL without a word: no accounting, no line of slurmstepd."""
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


def _more(evidence: Evidence) -> str:
    """Twice the memory of the request, which sacct shows as `60M` or, in older versions, as `3.50Gn`."""
    match = re.fullmatch(r"([0-9.]+)([KMGT]?)[nc]?", _wanted(evidence))
    if not match:
        return "mem=16G"
    number, unit = 2 * float(match[1]), match[2] or "M"
    if not number.is_integer():
        number, unit = number * 1024, "KMGT"["KMGT".index(unit) - 1]
    return f"mem={number:.0f}{unit}"


def _wanted(evidence: Evidence) -> str:
    return evidence.booked.get("ReqMem") or evidence.job.get("MinMemoryNode", "")
