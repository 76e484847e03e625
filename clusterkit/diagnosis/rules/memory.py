"""Too little memory: the node's, as a whole or refused in one piece."""

from __future__ import annotations

from clusterkit.diagnosis.evidence import Evidence, Line
from clusterkit.diagnosis.finding import Cause, Finding, Sure
from clusterkit.diagnosis.rules.said import booked, exited, said
from clusterkit.scheduler import JobState

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
    killed = evidence.line(_KILLS, "slurm.log", "log") if named or evidence.ended_badly else None
    if not named and not killed:
        return None
    asked_for = evidence.booked.get("ReqMem") or evidence.job.get("MinMemoryNode", "")
    return OUT_OF_MEMORY.found(
        killed,
        booked(evidence, "State", "ReqMem", "MaxRSS"),
        exited(evidence),
        detail=f"{asked_for} was asked for" if asked_for else "",
        command=f"clusterkit resume {evidence.subject.run_id} --sbatch mem={_twice(asked_for)}",
    )


def worker_killed(evidence: Evidence) -> Finding | None:
    """A child of the program was killed, which the program noticed before Slurm."""
    return said(
        evidence,
        OUT_OF_MEMORY,
        r"DataLoader worker \(pid.*killed by signal: Killed|(W|w)orker .*(signal 9|SIGKILL)",
        detail="one of its worker processes was killed",
        command=f"clusterkit resume {evidence.subject.run_id} --sbatch mem={_twice(evidence.booked.get('ReqMem', ''))}",
        also=booked(evidence, "ReqMem", "MaxRSS"),
    )


def shared_memory(evidence: Evidence) -> Finding | None:
    """A full /dev/shm."""
    pattern = r"insufficient shared memory|No space left on device.*/dev/shm|/dev/shm.*No space left"
    return said(evidence, SHARED_MEMORY, pattern, command=f"clusterkit logs {evidence.subject.run_id} -n 200")


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
        command=f"clusterkit resume {evidence.subject.run_id} --sbatch mem={_twice(evidence.booked.get('ReqMem', ''))}",
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
        command=f"clusterkit logs {evidence.subject.run_id} -n 200",
        sure=Sure.GENERAL,
    )


RULES = (out_of_memory, worker_killed, shared_memory, memory_refused, killed)


def _twice(asked_for: str) -> str:
    """Twice a request such as `60M` or `3.50Gn`."""
    number = asked_for.rstrip("KMGTnc")
    unit = asked_for[len(number) :].rstrip("nc")
    try:
        doubled = 2 * float(number)
    except ValueError:
        return "16G"
    return (
        f"{doubled:.0f}{unit}"
        if doubled >= 10 or doubled.is_integer()
        else f"{doubled * 1024:.0f}{'KMG'['MGT'.find(unit)]}"
    )
