"""Which accounts, QOS and time limits a user may request, as Slurm combines them. Pure.

Sources: https://slurm.schedmd.com/resource_limits.html (which limit wins), slurm.conf(5), partitions.
"""

from __future__ import annotations

from clusterkit.backends.slurm.survey.parse import Slurm
from clusterkit.backends.slurm.tables import Partition


def may_charge(slurm: Slurm, account: str, partition: Partition) -> bool:
    """Whether one of the user's accounts may be charged for jobs in the partition."""
    mine = any(row.account == account and row.partition in ("", partition.name) for row in slurm.associations)
    return mine and account not in partition.denied_accounts and account in (partition.accounts or (account,))


def may_submit(slurm: Slurm, partition: Partition, groups: tuple[str, ...]) -> bool:
    """Whether a user in these Unix groups may submit jobs to the partition, as far as known."""
    if partition.state != "UP" or partition.root_only:
        return False
    if partition.groups is not None and not set(partition.groups) & set(groups):
        return False
    usable = [row for row in slurm.associations if may_charge(slurm, row.account, partition)]
    if not slurm.associations or not usable:
        return not slurm.associations
    names = {name for row in usable for name in (*row.qos, row.default_qos) if name}
    return not names or any(_takes(partition, name) for name in names)


def account_for(slurm: Slurm, account: str | None, partition: Partition) -> str | None:
    """Another account to name if the partition does not admit this one."""
    if account is None or may_charge(slurm, account, partition):
        return None
    names = dict.fromkeys(row.account for row in slurm.associations)
    return next((name for name in names if may_charge(slurm, name, partition)), None)


def qos_for(slurm: Slurm, account: str | None, partition: Partition) -> str | None:
    """The QOS to name if the partition does not admit a job's default one."""
    if partition.qos is None and not partition.denied_qos:
        return None
    mine = [row for row in slurm.associations if account in (None, row.account)]
    if not mine:
        return partition.qos[0] if partition.qos else None
    if any(row.default_qos and _takes(partition, row.default_qos) for row in mine):
        return None
    return next((name for row in mine for name in row.qos if _takes(partition, name)), None)


def longest(slurm: Slurm, account: str | None, partition: Partition) -> int | None:
    """Longest time of a job, seconds: the least limit of partition, its QOS, account and user's QOS."""
    mine = [
        row
        for row in slurm.associations
        if account in (None, row.account) and row.partition in ("", partition.name)
    ]
    used = qos_for(slurm, account, partition)
    used = used or next((row.default_qos for row in mine if row.default_qos), None)
    limits = [partition.max_time, *(row.max_time for row in mine)]
    limits += [
        slurm.tables.qos[name].max_time for name in (partition.own_qos, used) if name in slurm.tables.qos
    ]
    return min((limit for limit in limits if limit), default=None)


def _takes(partition: Partition, qos: str) -> bool:
    return qos not in partition.denied_qos and qos in (partition.qos or (qos,))
