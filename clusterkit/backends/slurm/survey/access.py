"""Which accounts, QOS and time limits a user may request, as Slurm combines them. Pure.

Sources: https://slurm.schedmd.com/resource_limits.html (which limit wins), slurm.conf(5), partitions.
"""

from __future__ import annotations

from clusterkit.backends.slurm.survey.facts import Partition, Slurm


def may_charge(slurm: Slurm, account: str, partition: Partition) -> bool:
    """Whether one of the user's accounts may be charged for jobs in the partition."""
    known = any(
        one.account == account and one.partition in (None, partition.name) for one in slurm.associations
    )
    return (
        known and account not in partition.denied_accounts and account in (partition.accounts or (account,))
    )


def may_submit(slurm: Slurm, partition: Partition, groups: tuple[str, ...]) -> bool:
    """Whether a user in these Unix groups may submit jobs to the partition, as far as known."""
    if not partition.up or partition.root_only:
        return False
    if partition.groups is not None and not set(partition.groups) & set(groups):
        return False
    usable = [one for one in slurm.associations if may_charge(slurm, one.account, partition)]
    if not slurm.associations or not usable:
        return not slurm.associations
    known = {name for one in usable for name in (*one.qos, one.default_qos) if name}
    return not known or any(_takes(partition, name) for name in known)


def account_for(slurm: Slurm, account: str | None, partition: Partition) -> str | None:
    """Another account to name if the partition does not admit this one."""
    if account is None or may_charge(slurm, account, partition):
        return None
    names = dict.fromkeys(one.account for one in slurm.associations)
    return next((name for name in names if may_charge(slurm, name, partition)), None)


def qos_for(slurm: Slurm, account: str | None, partition: Partition) -> str | None:
    """The QOS to name if the partition does not admit a job's default one."""
    if partition.qos is None and not partition.denied_qos:
        return None
    mine = [one for one in slurm.associations if account in (None, one.account)]
    if not mine:
        return partition.qos[0] if partition.qos else None
    if any(one.default_qos and _takes(partition, one.default_qos) for one in mine):
        return None
    return next((name for one in mine for name in one.qos if _takes(partition, name)), None)


def longest(slurm: Slurm, account: str | None, partition: Partition) -> int | None:
    """Longest time of a job, seconds: the least limit of partition, its QOS, account and user's QOS."""
    mine = [
        one
        for one in slurm.associations
        if account in (None, one.account) and one.partition in (None, partition.name)
    ]
    used = qos_for(slurm, account, partition)
    used = used or next((one.default_qos for one in mine if one.default_qos), None)
    limits = [partition.max_time, slurm.qos.get(partition.own_qos or ""), slurm.qos.get(used or "")]
    limits += [one.max_time for one in mine]
    return min((limit for limit in limits if limit), default=None)


def _takes(partition: Partition, qos: str) -> bool:
    return qos not in partition.denied_qos and qos in (partition.qos or (qos,))
