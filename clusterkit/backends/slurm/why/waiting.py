"""Causes of waiting: nodes, reservations, partitions, holds."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Cause, Finding, Line, Sure
from clusterkit.backends.jobs import JobState
from clusterkit.backends.slurm.why.answer import JobAnswer, node_line

NODES_DRAINED = Cause(
    "nodes-drained",
    "no node of its partition accepts jobs",
    "wait for the administrators, or choose a GPU of another partition",
)
RESERVED = Cause(
    "reserved",
    "a reservation of its nodes, often for maintenance, starts before it could end",
    "lower its time limit to end before the reservation, or wait",
)
PARTITION_CLOSED = Cause(
    "partition-closed", "its partition is closed", "wait for the administrators, or choose another partition"
)
NEVER_FITS = Cause(
    "never-fits",
    "no node of its partition has what it requests, so it will never start",
    "cancel it, and request less memory, fewer CPUs or another GPU",
)
HELD_BY_YOU = Cause("held-by-you", "you put it on hold", "release it")
LAUNCH_FAILED = Cause(
    "launch-failed",
    "Slurm could not start it on its node and now holds it",
    "release it, so that Slurm tries again; if it is held again, report the node to the administrators",
)
HELD_BY_ADMIN = Cause(
    "held-by-admin",
    "it is held by the system or an administrator",
    "only the administrators can release it: ask them, and give the job id",
)

_UNFIT = r"BadConstraints|PartitionNodeLimit|PartitionConfig"


def nodes_drained(answer: JobAnswer) -> Finding | None:
    """Finds that all nodes of the partition are down or drained, whatever squeue's reason."""
    blocked = r"Resources|Priority|ReqNodeNotAvail|Node ?Down|Nodes required for job are DOWN|PartitionDown"
    if not answer.waits_for(blocked) or not answer.nodes or any(node.takes_jobs for node in answer.nodes):
        return None
    first = answer.nodes[0]
    return NODES_DRAINED.found(
        answer.queue,
        *(node_line(node) for node in answer.nodes[:3]),
        detail=f"{first.name} is {first.state}, {first.reason!r}" if first.reason != "none" else "",
        command=answer.subject.here("sinfo -R"),
    )


def reserved(answer: JobAnswer) -> Finding | None:
    """Finds that a maintenance or reservation begins before the job could end."""
    if not answer.waits_for(r"ReqNodeNotAvail.*[Mm]ain|Reservation|.*reserved for main"):
        return None
    return RESERVED.found(
        answer.queue,
        answer.words("TimeLimit", "StartTime"),
        command=answer.subject.here("scontrol show reservation"),
    )


def partition_closed(answer: JobAnswer) -> Finding | None:
    """Finds a closed partition: PartitionDown, PartitionInactive."""
    if not answer.waits_for(r"Partition(Down|Inactive)"):
        return None
    state = Line("scontrol show partition", f"State={answer.partition.fields.get('State', '?')}")
    return PARTITION_CLOSED.found(answer.queue, state, command=answer.subject.here("sinfo -s"))


def never_fits(answer: JobAnswer) -> Finding | None:
    """Finds what no node has: BadConstraints, PartitionNodeLimit, PartitionConfig."""
    failed = answer.known is not None and answer.known.state is JobState.FAILED
    if not (answer.waiting or failed) or not re.match(_UNFIT, answer.reason):
        return None
    return NEVER_FITS.found(
        answer.queue,
        answer.words("ReqTRES", "Features", "Partition"),
        command=answer.subject.cancel,
        # A partition may also refuse its account.
        sure=Sure.GENERAL if answer.reason == "PartitionConfig" else Sure.CERTAIN,
    )


def held_by_you(answer: JobAnswer) -> Finding | None:
    """Finds a hold of the user: JobHeldUser."""
    if not answer.waits_for(r"(Job)?HeldUser|job requeued in held state"):
        return None
    return HELD_BY_YOU.found(answer.queue, command=answer.subject.here(f"scontrol release {answer.number}"))


def launch_failed(answer: JobAnswer) -> Finding | None:
    """Finds that a prolog failed, or too many starts did; the node is often drained then."""
    if not answer.waits_for(r"launch failed|Job ?Hold ?Max ?Requeue|JobLaunchFailure"):
        return None
    drained = [node for node in answer.nodes if not node.takes_jobs]
    return LAUNCH_FAILED.found(
        answer.queue,
        answer.words("Restarts"),
        *(node_line(node) for node in drained[:2]),
        detail=f"{drained[0].name} says {drained[0].reason!r}" if drained else "",
        command=answer.subject.here(f"scontrol release {answer.number}"),
    )


def held_by_admin(answer: JobAnswer) -> Finding | None:
    """Finds a hold of others: JobHeldAdmin."""
    if not answer.waits_for(r"(Job)?HeldAdmin|Reservation ?Deleted"):
        return None
    return HELD_BY_ADMIN.found(
        answer.queue, command=answer.subject.here(f"scontrol show job {answer.number}")
    )


RULES = (
    held_by_you,
    launch_failed,
    held_by_admin,
    nodes_drained,
    reserved,
    partition_closed,
    never_fits,
)
