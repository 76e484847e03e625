"""Builds a job's story from Slurm's answers: what to quote, and which options would help. Pure."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Finding, Line, Text
from clusterkit.backends.jobs import SCHEDULER_LOG, JobState
from clusterkit.backends.slurm.why.answer import JobAnswer, node_line
from clusterkit.backends.story import JobStory, Topic
from clusterkit.untrusted import decimal

_COLUMNS = {
    Topic.COMPLETED: ("State", "Elapsed"),
    Topic.TIME_LIMIT: ("State", "Elapsed", "Timelimit"),
    Topic.DEADLINE: ("State", "Elapsed"),
    Topic.MEMORY: ("ReqMem", "MaxRSS"),
    Topic.OUT_OF_MEMORY: ("State", "ReqMem", "MaxRSS"),
    Topic.PREEMPTED: ("State", "NodeList", "Elapsed"),
    Topic.NODE_FAILED: ("State", "NodeList", "Elapsed"),
    Topic.CANCELLED: ("State", "NodeList", "Elapsed"),
    Topic.VANISHED: ("State", "NodeList", "ExitCode"),
    Topic.EXIT: ("State", "ExitCode"),
    Topic.NODE: ("State", "NodeList"),
}
"""sacct's columns to quote, by topic."""
_LOG = {
    JobState.PREEMPTED: r"DUE TO PREEMPTION",
    JobState.NODE_FAIL: r"DUE TO NODE FAIL|NODE FAILURE",
    JobState.TIMEOUT: r"DUE TO TIME LIMIT",
    JobState.CANCELLED: r"CANCELLED AT",
}
"""slurmstepd's messages that identify an end."""


def story_of(answer: JobAnswer, findings: tuple[Finding, ...]) -> JobStory:
    """Returns the story that generic rules read."""
    log = answer.texts.get(SCHEDULER_LOG)
    ends = {state: log.last(pattern) for state, pattern in _LOG.items()} if log else {}
    node = answer.known.node if answer.known and answer.known.node else answer.subject.node
    memory = answer.booked.get("ReqMem") or answer.job.get("MinMemoryNode", "")
    resources = answer.job.get("ReqTRES", "")
    down = [row for row in answer.nodes if row.name == node and not row.takes_jobs]
    booked = {topic: answer.columns(*names) for topic, names in _COLUMNS.items()}
    more = _more_quotes(answer) | {Topic.NODE_FAILED: tuple(map(node_line, down))}
    quotes = {topic: (booked.get(topic), *more.get(topic, ())) for topic in Topic}
    return JobStory(
        job=answer.known,
        silent=answer.silent,
        reason=answer.reason,
        source="squeue",
        quotes={topic: tuple(filter(None, lines)) for topic, lines in quotes.items()},
        log=log,
        log_says={state: match[1] for state, match in ends.items() if match},
        findings=findings,
        deadline=answer.known is not None and answer.known.raw_state.startswith("DEADLINE"),
        node_down=bool(down),
        without_gpu=bool(resources) and "gres/gpu" not in resources,
        memory=memory,
        cancelled_by=_canceller(answer),
        cancel_tool="scancel",
        more_memory=(_twice(memory),),
        elsewhere=(f"exclude={node or 'NODE'}",),
        ping="scontrol ping",
    )


def _more_quotes(answer: JobAnswer) -> dict[Topic, tuple[Line | None, ...]]:
    """Quotes from scontrol, squeue and the job script; sacct is preferred."""
    start = answer.job.get("StartTime")
    times = None if answer.columns(*_COLUMNS[Topic.TIME_LIMIT]) else answer.words("RunTime", "TimeLimit")
    ended = None if answer.columns(*_COLUMNS[Topic.PREEMPTED]) else answer.queue
    option = answer.texts.get("script", Text("")).last(r"--(gres|gpus)")
    gpu = answer.words("ReqTRES", "AllocTRES") or (Line("job.sh", option[1].text) if option else None)
    return {
        Topic.TIME_LIMIT: (times,),
        Topic.DEADLINE: (answer.words("Deadline"),),
        Topic.PREEMPTED: (ended, answer.words("PreemptTime", "Partition")),
        Topic.GPU: (gpu,),
        Topic.DEPENDENCY: (answer.words("Dependency"), *answer.tail("dependencies", 3)),
        Topic.START: (Line("scontrol show job", f"StartTime={start} (expected)") if start else None,),
    }


def _canceller(answer: JobAnswer) -> tuple[str, str] | None:
    match = re.search(r"by (\d+)", answer.booked.get("State", ""))
    if match is None:
        return None
    name = " ".join(answer.texts.get(f"person {match[1]}", Text("")).lines).strip()
    return match[1], name or f"user {match[1]}"


def _twice(memory: str) -> str:
    """Returns the option for twice the memory, shown by sacct as `60M` or, in older versions, `3.50Gn`."""
    match = re.fullmatch(r"([0-9.]+)([KMGT]?)[nc]?", memory)
    size = decimal(match[1]) if match else None
    if match is None or not size:
        return "mem=16G"
    number, unit = 2 * size, match[2] or "M"
    if not number.is_integer() and unit != "K":
        number, unit = number * 1024, "KMGT"["KMGT".index(unit) - 1]
    return f"mem={number:.0f}{unit}"
