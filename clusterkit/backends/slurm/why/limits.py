"""Causes of waiting: limits of partitions, QOS and accounts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clusterkit.backends.causes import Cause, Finding, Line
from clusterkit.backends.slurm.tables import Association, Qos, names
from clusterkit.backends.slurm.why.answer import JobAnswer
from clusterkit.untrusted import decimal

TIME_OVER_PARTITION = Cause(
    "time-over-partition",
    "it requests more time than its partition allows, so it will never start",
    "lower its time limit, which keeps its place in the queue; or choose another partition",
)
QOS_LIMIT = Cause(
    "qos-limit",
    "its QOS does not let it start",
    "request less, wait until your other jobs end, or use another `qos`",
)
ASSOCIATION_LIMIT = Cause(
    "association-limit",
    "its account does not let it start",
    "request less, wait until the group's other jobs end, or use another `account`",
)
BAD_ACCOUNT = Cause(
    "bad-account",
    "its account or QOS may not be used in its partition",
    "set the cluster's `account`, `qos` and `partition` to a combination that the site allows",
)

_TRES = re.compile(r"([a-z/0-9:]+)=([0-9.]+)([KMGT]?)")


def time_over_partition(answer: JobAnswer) -> Finding | None:
    """Finds a request above the partition's limit: PartitionTimeLimit."""
    if not answer.waits_for(r"PartitionTimeLimit$"):
        return None
    partition, longest = answer.job.get("Partition", ""), answer.partition.text("MaxTime")
    limit = Line("scontrol show partition", f"{partition} MaxTime={longest}") if longest else None
    return TIME_OVER_PARTITION.found(
        answer.queue,
        answer.words("TimeLimit", "Partition"),
        limit,
        detail=f"{answer.job.get('TimeLimit')} requested, {longest} allowed in {partition}"
        if longest
        else "",
        command=_shorten(answer, longest),
    )


def qos_limit(answer: JobAnswer) -> Finding | None:
    """Finds QOSMaxWallDurationPerJobLimit, QOSMaxCpuPerUserLimit and similar ones."""
    return _limit(answer, QOS_LIMIT, "QOS", tuple(answer.tables.qos.values()), answer.job.get("QOS", ""))


def association_limit(answer: JobAnswer) -> Finding | None:
    """Finds AssocGrpCpuLimit and similar ones, MaxJobsPerAccount, AccountingPolicy."""
    return _limit(
        answer,
        ASSOCIATION_LIMIT,
        "Assoc|Max.*PerAccount|AccountingPolicy",
        answer.tables.associations,
        answer.job.get("Account", ""),
    )


def bad_account(answer: JobAnswer) -> Finding | None:
    """Finds InvalidAccount, InvalidQOS, or a partition that admits other accounts."""
    if not answer.waiting:
        return None
    line = None
    for allowed, own in (("AllowAccounts", "Account"), ("AllowQos", "QOS")):
        admitted = names(answer.partition.text(allowed))
        if admitted is not None and answer.job.get(own, "") not in admitted:
            words = f"{answer.job.get('Partition')} {allowed}={answer.partition.text(allowed)}"
            line = Line("scontrol show partition", words)
    named = re.match(r"Invalid(Account|QOS)|(Account|QOS) ?Not ?Allowed", answer.reason)
    # Slurm may call an account that the partition refuses a matter of its configuration.
    if not named and not (line and answer.reason.startswith(("Partition", "Priority", "Resources"))):
        return None
    return BAD_ACCOUNT.found(
        answer.queue,
        answer.words("Account", "QOS", "Partition"),
        line,
        detail=f"account {answer.job.get('Account', '?')}, QOS {answer.job.get('QOS', '?')}",
        command=answer.subject.here(
            f"sacctmgr show assoc user={answer.subject.user} format=Account,Partition,QOS"
        ),
    )


RULES = (time_over_partition, qos_limit, association_limit, bad_account)


def _limit(
    answer: JobAnswer, cause: Cause, begins: str, rows: Sequence[Qos | Association], name: str
) -> Finding | None:
    """Finds a limit of a QOS or an association, and whether the job alone is above it."""
    if not answer.waits_for(begins):
        return None
    lines = [_quote(row) for row in rows[-2:]]
    longest = rows[-2:][0].text("MaxWall") if rows else ""
    if "Wall" in answer.reason or "TimeLimit" in answer.reason:
        detail = f"{name} allows {longest or 'less time'} ({answer.reason})"
        command = _shorten(answer, longest)
    elif re.search(r"Minutes|Billing|Usage", answer.reason):
        detail = f"the budget of {name} is used up ({answer.reason})"
        command = answer.subject.here("sshare")
    elif over := _above(answer.job.get("ReqTRES", ""), " ".join(line.text for line in lines)):
        detail = (
            f"it alone requests more than {name} allows, {over}, so it will never start ({answer.reason})"
        )
        command = answer.subject.cancel
    else:
        detail = f"{name} is used up for now ({answer.reason}); it starts when another job ends"
        command = answer.subject.here("squeue --me")
    return cause.found(
        answer.queue,
        answer.words("ReqTRES", "TimeLimit", "QOS", "Account"),
        *lines,
        detail=detail,
        command=command,
    )


def _quote(row: Qos | Association) -> Line:
    if isinstance(row, Qos):
        return Line("sacctmgr show qos", "|".join(row.fields.values()))
    quoted = ("Account", "MaxWall", "MaxTRES", "GrpTRES", "MaxJobs", "MaxSubmit")
    return Line("sacctmgr show association", "|".join(map(row.text, quoted)))


def _above(wanted: str, limits: str) -> str:
    """Returns the first resource whose request exceeds a limit, e.g. `cpu=2`."""
    asked_for = {name: _amount(number, unit) for name, number, unit in _TRES.findall(wanted)}
    for name, number, unit in _TRES.findall(limits):
        if asked_for.get(name, 0.0) > _amount(number, unit):
            return f"{name}={number}{unit}"
    return ""


def _amount(number: str, unit: str) -> float:
    return (decimal(number) or 0.0) * float(1024 ** " KMGT".index(unit or " "))


def _shorten(answer: JobAnswer, longest: str) -> str:
    """Returns the command to lower the time limit of a waiting job, which users may do."""
    if not longest or not longest[0].isdigit():
        return answer.subject.cancel
    return answer.subject.here(f"scontrol update JobId={answer.number} TimeLimit={longest}")
