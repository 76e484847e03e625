"""Causes: too little memory on the node."""

from __future__ import annotations

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import SCHEDULER_LOG, JobState
from clusterkit.backends.story import Topic
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import logs, resume, retry
from clusterkit.diagnosis.rules.said import by_message, exited
from clusterkit.untrusted import one_line

OUT_OF_MEMORY = Cause(
    "out-of-memory",
    "it used more main memory than it requested and was killed",
    "raise the profile's `memory`, or have the program hold less at once",
    of_recipe="fewer `num_envs` or `workers`, or a smaller replay buffer, need less",
)
SHARED_MEMORY = Cause(
    "shared-memory",
    "the node's shared memory (/dev/shm) is full",
    "use fewer data loader workers or smaller batches; /dev/shm counts towards the job's memory",
)
MEMORY_REFUSED = Cause(
    "memory-refused",
    "the program could not allocate the memory it needed",
    "raise the profile's `memory`, or have the program allocate less at once",
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
    asked_for, tries = evidence.story.memory, evidence.exit.get("detail")
    more = next(iter(evidence.story.more_memory), "").partition("=")[2]
    return OUT_OF_MEMORY.found(
        killed,
        *evidence.story.quote(Topic.OUT_OF_MEMORY),
        exited(evidence),
        Line(f"attempts/{evidence.state.attempt}/exit.json", one_line(tries)) if tries else None,
        detail=f"{asked_for} was requested" if asked_for else "",
        cure=retry(evidence, OUT_OF_MEMORY.cure, f'memory_up_to = "{more or "64G"}"'),
        command=_with_more(evidence),
    )


def killed(evidence: Evidence) -> Finding | None:
    """SIGKILL, without an explanation by the scheduler or a log."""
    record = evidence.exit
    if not evidence.ended_badly or record.get("why") != "signalled" or record.get("signal") != "KILL":
        return None
    return OUT_OF_MEMORY.found(
        exited(evidence),
        Line("log", "no log line says who sent SIGKILL"),
        detail="SIGKILL ended it, as the kernel does when memory runs out",
        command=logs(evidence),
        sure=Sure.GENERAL,
    )


def _with_more(evidence: Evidence) -> str:
    return resume(evidence, *evidence.story.more_memory)


RULES = (
    out_of_memory,
    # The program may notice that a child was killed before the scheduler does.
    by_message(
        OUT_OF_MEMORY,
        r"DataLoader worker \(pid.*killed by signal: Killed|(W|w)orker .*(signal 9|SIGKILL)",
        detail=lambda _: "one of its worker processes was killed",
        also=lambda evidence: evidence.story.quote(Topic.MEMORY),
        command=_with_more,
    ),
    by_message(
        SHARED_MEMORY,
        r"insufficient shared memory|No space left on device.*/dev/shm|/dev/shm.*No space left",
        command=logs,
    ),
    by_message(
        MEMORY_REFUSED,
        r"\bMemoryError\b|std::bad_alloc|Cannot allocate memory|\[Errno 12\]|can't allocate memory"
        r"|Unable to allocate .* for an array",
        also=lambda evidence: evidence.story.quote(Topic.MEMORY),
        command=_with_more,
    ),
    killed,
)
