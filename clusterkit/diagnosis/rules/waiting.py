"""Why a run waits: nodes, dependencies, holds, its turn."""

from __future__ import annotations

import re

from clusterkit.backends.base import JobState
from clusterkit.backends.slurm.explain import explain
from clusterkit.diagnosis.evidence import Evidence, Line, Text
from clusterkit.diagnosis.finding import Cause, Finding, Sure
from clusterkit.diagnosis.rules.commands import cancel, job_number, status
from clusterkit.diagnosis.rules.said import asked, exited, queue

NODES_DRAINED = Cause(
    "nodes-drained",
    "no node of its partition takes jobs",
    "wait for the administrators, who wrote the reason; or choose a GPU of another partition",
)
RESERVED = Cause(
    "reserved",
    "its nodes are reserved before it could end, often for a maintenance",
    "lower its time limit so that it ends before, or wait",
)
PARTITION_CLOSED = Cause(
    "partition-closed", "its partition is closed", "wait for the administrators, or choose another partition"
)
NEVER_FITS = Cause(
    "never-fits",
    "no node of its partition has what it asks for, so it will never start",
    "cancel it and ask for less memory, fewer processors or another GPU",
)
DEPENDENCY_FAILED = Cause(
    "dependency-failed",
    "the job it waits for has failed, so it will never start",
    "cancel it; correct the first job and submit it again, then this one",
)
HELD_BY_YOU = Cause("held-by-you", "it is held, by its own user", "release it")
LAUNCH_FAILED = Cause(
    "launch-failed",
    "Slurm could not start it on its node, and holds it now",
    "release it, which tries again; should it come back, tell the administrators the node",
)
HELD_BY_ADMIN = Cause(
    "held-by-admin",
    "it is held by the system or an administrator",
    "only they can release it: ask them, with the job id",
)
DEPENDENCY = Cause("dependency", "it waits for another job to end", "wait", trouble=False)
WAITING = Cause("waiting", "it waits its turn and nothing is wrong", "wait", trouble=False)


def dependency_failed(evidence: Evidence) -> Finding | None:
    """DependencyNeverSatisfied."""
    if evidence.reason != "DependencyNeverSatisfied":
        return None
    return DEPENDENCY_FAILED.found(
        queue(evidence),
        asked(evidence, "Dependency"),
        *evidence.texts.get("dependencies", Text("")).tail(3),
        command=cancel(evidence),
    )


def nodes_drained(evidence: Evidence) -> Finding | None:
    """All nodes of the partition are down or drained, whatever reason squeue happens to give."""
    blocked = r"Resources|Priority|ReqNodeNotAvail|Node ?Down|Nodes required for job are DOWN|PartitionDown"
    if not evidence.waiting or not re.match(blocked, evidence.reason):
        return None
    if not evidence.nodes or any(node.usable for node in evidence.nodes):
        return None
    first = evidence.nodes[0]
    return NODES_DRAINED.found(
        queue(evidence),
        *(node.line() for node in evidence.nodes[:3]),
        detail=f"{first.name} is {first.state}, {first.reason!r}" if first.reason != "none" else "",
        command=evidence.here("sinfo -R"),
    )


def reserved(evidence: Evidence) -> Finding | None:
    """A maintenance or reservation begins before the job could end."""
    if not evidence.waiting or not re.match(
        r"ReqNodeNotAvail.*[Mm]ain|Reservation|.*reserved for main", evidence.reason
    ):
        return None
    return RESERVED.found(
        queue(evidence),
        asked(evidence, "TimeLimit", "StartTime"),
        command=evidence.here("scontrol show reservation"),
    )


def partition_closed(evidence: Evidence) -> Finding | None:
    """PartitionDown, PartitionInactive."""
    if not evidence.waiting or not re.match(r"Partition(Down|Inactive)", evidence.reason):
        return None
    state = Line("scontrol show partition", f"State={evidence.partition.get('State', '?')}")
    return PARTITION_CLOSED.found(queue(evidence), state, command=evidence.here("sinfo -s"))


def never_fits(evidence: Evidence) -> Finding | None:
    """BadConstraints, PartitionNodeLimit, PartitionConfig."""
    if not re.match(r"BadConstraints|PartitionNodeLimit|PartitionConfig", evidence.reason):
        return None
    if not evidence.waiting and evidence.state.state is not JobState.FAILED:
        return None
    return NEVER_FITS.found(
        queue(evidence),
        asked(evidence, "ReqTRES", "Features", "Partition"),
        command=cancel(evidence),
        # A partition may also refuse its account.
        sure=Sure.GENERAL if evidence.reason == "PartitionConfig" else Sure.CERTAIN,
    )


def held_by_you(evidence: Evidence) -> Finding | None:
    """JobHeldUser."""
    if not evidence.waiting or not re.match(r"(Job)?HeldUser|job requeued in held state", evidence.reason):
        return None
    return HELD_BY_YOU.found(
        queue(evidence), command=evidence.here(f"scontrol release {job_number(evidence)}")
    )


def launch_failed(evidence: Evidence) -> Finding | None:
    """A prolog failed, or too many starts did; the node is often drained then."""
    if not evidence.waiting or not re.match(
        r"launch failed|Job ?Hold ?Max ?Requeue|JobLaunchFailure", evidence.reason
    ):
        return None
    drained = [node for node in evidence.nodes if not node.usable]
    return LAUNCH_FAILED.found(
        queue(evidence),
        asked(evidence, "Restarts"),
        *(node.line() for node in drained[:2]),
        detail=f"{drained[0].name} says {drained[0].reason!r}" if drained else "",
        command=evidence.here(f"scontrol release {job_number(evidence)}"),
    )


def held_by_admin(evidence: Evidence) -> Finding | None:
    """JobHeldAdmin."""
    if not evidence.waiting or not re.match(r"(Job)?HeldAdmin|Reservation ?Deleted", evidence.reason):
        return None
    return HELD_BY_ADMIN.found(
        queue(evidence), command=evidence.here(f"scontrol show job {job_number(evidence)}")
    )


def dependency(evidence: Evidence) -> Finding | None:
    """It waits for another job, as it was asked to."""
    if not evidence.waiting or evidence.reason != "Dependency":
        return None
    return DEPENDENCY.found(
        queue(evidence),
        asked(evidence, "Dependency"),
        *evidence.texts.get("dependencies", Text("")).tail(3),
        command=status(evidence),
        sure=Sure.LIKELY,
    )


def waiting(evidence: Evidence) -> Finding | None:
    """What no other rule finds fault with."""
    if not evidence.waiting:
        return None
    start = evidence.job.get("StartTime", "")
    expected = Line("scontrol show job", f"StartTime={start} (expected)") if start else None
    words = explain(evidence.reason) or evidence.state.why or evidence.reason
    return WAITING.found(
        queue(evidence),
        expected,
        exited(evidence),
        detail=words,
        command=status(evidence),
        sure=Sure.GENERAL,
    )


RULES = (
    dependency_failed,
    held_by_you,
    launch_failed,
    held_by_admin,
    nodes_drained,
    reserved,
    partition_closed,
    never_fits,
    dependency,
    waiting,
)
