"""Why a run may not start: limits of partitions, QOS and accounts."""

from __future__ import annotations

import re

from clusterkit.diagnosis.evidence import Evidence, Line, Text
from clusterkit.diagnosis.finding import Cause, Finding
from clusterkit.diagnosis.rules.commands import cancel, job_number
from clusterkit.diagnosis.rules.said import asked, queue

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
    user = evidence.about.get("user", "").partition(" ")[2]
    # Slurm may call an account that the partition refuses a matter of its configuration.
    if not named and not (line and evidence.reason.startswith(("Partition", "Priority", "Resources"))):
        return None
    return BAD_ACCOUNT.found(
        queue(evidence),
        asked(evidence, "Account", "QOS", "Partition"),
        line,
        detail=f"account {evidence.job.get('Account', '?')}, QOS {evidence.job.get('QOS', '?')}",
        command=evidence.here(f"sacctmgr show assoc user={user} format=Account,Partition,QOS"),
    )


RULES = (time_over_partition, qos_limit, association_limit, bad_account)


def _limit(evidence: Evidence, cause: Cause, begins: str, text: str, name: str) -> Finding | None:
    """A limit of a QOS or an association, and whether the job alone is above it."""
    if not evidence.waiting or not re.match(begins, evidence.reason):
        return None
    lines = evidence.texts.get(text, Text("")).tail(2)
    longest = next((row.text.split("|")[1] for row in lines if row.text.count("|") > 1), "")
    if "Wall" in evidence.reason or "TimeLimit" in evidence.reason:
        detail = f"{name} allows {longest or 'less time'} ({evidence.reason})"
        command = _shorten(evidence, longest)
    elif re.search(r"Minutes|Billing|Usage", evidence.reason):
        detail = f"the budget of {name} is used up ({evidence.reason})"
        command = evidence.here("sshare")
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
    return evidence.here(f"scontrol update JobId={job_number(evidence)} TimeLimit={longest}")
