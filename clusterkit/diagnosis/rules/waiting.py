"""Why a run waits: limits, accounts, nodes, dependencies, holds."""

from __future__ import annotations

import re

from clusterkit.diagnosis.evidence import Evidence, Line, Text
from clusterkit.diagnosis.finding import Cause, Finding, Sure
from clusterkit.diagnosis.rules.commands import cancel, status
from clusterkit.diagnosis.rules.said import asked, queue
from clusterkit.scheduler import JobState
from clusterkit.slurm.explain import explain

TIME_OVER_PARTITION = Cause(
    "time-over-partition",
    "it asks for more time than its partition allows and will never start",
    "lower its time limit, which you may do yourself and which keeps its place; or choose another partition",
)
QOS_LIMIT = Cause(
    "qos-limit",
    "its QOS does not let it start",
    "ask for less, wait until your other jobs end, or use another `qos`",
)
ASSOCIATION_LIMIT = Cause(
    "association-limit",
    "its account does not let it start",
    "ask for less, wait until the group's other jobs end, or use another `account`",
)
BAD_ACCOUNT = Cause(
    "bad-account",
    "its account or QOS may not be used where it was sent",
    "set `account`, `qos` and `partition` of the cluster to ones that go together",
)
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
    "cancel it; mend and submit the first job, then this one again",
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

_TRES = re.compile(r"([a-z/0-9:]+)=([0-9.]+)([KMGT]?)")


def time_over_partition(evidence: Evidence) -> Finding | None:
    """PartitionTimeLimit."""
    if not evidence.waiting or evidence.reason != "PartitionTimeLimit":
        return None
    partition, longest = evidence.job.get("Partition", ""), evidence.partition.get("MaxTime", "")
    limit = Line("scontrol show partition", f"{partition} MaxTime={longest}") if longest else None
    return TIME_OVER_PARTITION.found(
        queue(evidence),
        asked(evidence, "TimeLimit", "Partition"),
        limit,
        detail=f"{evidence.job.get('TimeLimit')} asked, {longest} allowed in {partition}" if longest else "",
        command=_shorten(evidence, longest),
    )


def qos_limit(evidence: Evidence) -> Finding | None:
    """QOSMaxWallDurationPerJobLimit, QOSMaxCpuPerUserLimit and their many relatives."""
    return _limit(evidence, QOS_LIMIT, "QOS", "qos", evidence.job.get("QOS", ""))


def association_limit(evidence: Evidence) -> Finding | None:
    """AssocGrpCpuLimit and its many relatives, MaxJobsPerAccount, AccountingPolicy."""
    return _limit(
        evidence,
        ASSOCIATION_LIMIT,
        "Assoc|Max.*PerAccount|AccountingPolicy",
        "association",
        evidence.job.get("Account", ""),
    )


def bad_account(evidence: Evidence) -> Finding | None:
    """InvalidAccount, InvalidQOS, or a partition that lets other accounts in."""
    if not evidence.waiting:
        return None
    line = None
    for allowed, own in (("AllowAccounts", "Account"), ("AllowQos", "QOS")):
        known = evidence.partition.get(allowed, "ALL")
        if known != "ALL" and evidence.job.get(own, "") not in known.split(","):
            line = Line("scontrol show partition", f"{evidence.job.get('Partition')} {allowed}={known}")
    named = re.match(r"Invalid(Account|QOS)|(Account|QOS) ?Not ?Allowed", evidence.reason)
    # Slurm may call an account that the partition refuses a matter of its configuration.
    if not named and not (line and evidence.reason.startswith(("Partition", "Priority", "Resources"))):
        return None
    return BAD_ACCOUNT.found(
        queue(evidence),
        asked(evidence, "Account", "QOS", "Partition"),
        line,
        detail=f"account {evidence.job.get('Account', '?')}, QOS {evidence.job.get('QOS', '?')}",
        command=evidence.here("sacctmgr show assoc user=$USER format=Account,Partition,QOS"),
    )


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
    )


def held_by_you(evidence: Evidence) -> Finding | None:
    """JobHeldUser."""
    if not evidence.waiting or not re.match(r"(Job)?HeldUser|job requeued in held state", evidence.reason):
        return None
    return HELD_BY_YOU.found(queue(evidence), command=evidence.here(f"scontrol release {_number(evidence)}"))


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
        command=evidence.here(f"scontrol release {_number(evidence)}"),
    )


def held_by_admin(evidence: Evidence) -> Finding | None:
    """JobHeldAdmin."""
    if not evidence.waiting or not re.match(r"(Job)?HeldAdmin|Reservation ?Deleted", evidence.reason):
        return None
    return HELD_BY_ADMIN.found(
        queue(evidence), command=evidence.here(f"scontrol show job {_number(evidence)}")
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
        detail=words,
        command=status(evidence),
        sure=Sure.GENERAL,
    )


RULES = (
    time_over_partition,
    qos_limit,
    association_limit,
    dependency_failed,
    held_by_you,
    launch_failed,
    held_by_admin,
    bad_account,
    nodes_drained,
    reserved,
    partition_closed,
    never_fits,
    dependency,
    waiting,
)


def _limit(evidence: Evidence, cause: Cause, begins: str, text: str, name: str) -> Finding | None:
    """A limit of a QOS or an association, and whether the job alone is above it."""
    if not evidence.waiting or not re.match(begins, evidence.reason):
        return None
    lines = evidence.texts.get(text, Text("")).tail(2)
    longest = next((row.text.split("|")[1] for row in lines if row.text.count("|") > 1), "")
    if "Wall" in evidence.reason or "TimeLimit" in evidence.reason:
        detail = f"{name} allows {longest or 'less time'} ({evidence.reason})"
        command = _shorten(evidence, longest)
    elif over := _above(evidence.job.get("ReqTRES", ""), " ".join(line.text for line in lines)):
        detail = (
            f"it alone asks for more than {name} allows, {over}, so it will never start ({evidence.reason})"
        )
        command = cancel(evidence)
    else:
        detail = f"{name} is used up for now ({evidence.reason}); it starts when another job ends"
        command = evidence.here("squeue --me")
    return cause.found(
        queue(evidence),
        asked(evidence, "ReqTRES", "TimeLimit", "QOS", "Account"),
        *(Line(f"sacctmgr show {text}", line.text) for line in lines),
        detail=detail,
        command=command,
    )


def _above(wanted: str, limits: str) -> str:
    """The first resource of which more is asked for than any limit allows, e.g. `cpu=2`."""
    asked_for = {name: _amount(number, unit) for name, number, unit in _TRES.findall(wanted)}
    for name, number, unit in _TRES.findall(limits):
        if asked_for.get(name, 0.0) > _amount(number, unit):
            return f"{name}={number}{unit}"
    return ""


def _amount(number: str, unit: str) -> float:
    return float(number) * float(1024 ** " KMGT".index(unit or " "))


def _shorten(evidence: Evidence, longest: str) -> str:
    """Users may lower the limit of a waiting job."""
    if not longest or not longest[0].isdigit():
        return cancel(evidence)
    return evidence.here(f"scontrol update JobId={_number(evidence)} TimeLimit={longest}")


def _number(evidence: Evidence) -> str:
    return evidence.subject.job_id.partition(";")[0]
