"""What a user may request at a site: accounts, QOS, time, and the GPU types. Pure.

Sources: https://slurm.schedmd.com/resource_limits.html (which limit wins), slurm.conf(5), partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from clusterkit.backends.slurm.request import Gpus
from clusterkit.backends.slurm.survey.parse import Slurm, SlurmSurvey
from clusterkit.backends.slurm.tables import NodeRow, Partition
from clusterkit.hardware import recognise, slice_memory, vendor_of

_DAY = 86400
_ASIDE = re.compile(r"preempt|scaveng|backfill|besteffort|low-?prio|spot|devel|debug|test|interactive|viz")
"""Parts of partition names that are not meant for ordinary jobs."""
_FEATURE_MEMORY = re.compile(r"gpu_?mem\w*[:_-]?([0-9]{1,6})(?:gi?b?)?", re.IGNORECASE)
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def may_charge(slurm: Slurm, account: str, partition: Partition) -> bool:
    """Returns whether one of the user's accounts may be charged for jobs in the partition."""
    mine = any(row.account == account and row.partition in ("", partition.name) for row in slurm.associations)
    return mine and account not in partition.denied_accounts and account in (partition.accounts or (account,))


def may_submit(slurm: Slurm, partition: Partition, groups: tuple[str, ...]) -> bool:
    """Returns whether a user in these Unix groups may submit jobs to the partition, as far as known."""
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
    """Returns another account to name if the partition does not admit this one."""
    if account is None or may_charge(slurm, account, partition):
        return None
    names = dict.fromkeys(row.account for row in slurm.associations)
    return next((name for name in names if may_charge(slurm, name, partition)), None)


def qos_for(slurm: Slurm, account: str | None, partition: Partition) -> str | None:
    """Returns the QOS to name if the partition does not admit a job's default one."""
    if partition.qos is None and not partition.denied_qos:
        return None
    mine = [row for row in slurm.associations if account in (None, row.account)]
    if not mine:
        return partition.qos[0] if partition.qos else None
    if any(row.default_qos and _takes(partition, row.default_qos) for row in mine):
        return None
    return next((name for row in mine for name in row.qos if _takes(partition, name)), None)


def longest(slurm: Slurm, account: str | None, partition: Partition) -> int | None:
    """Returns the longest time of a job: the least limit of partition, its QOS, account and user's QOS."""
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


@dataclass(frozen=True)
class Offer:
    """GPUs of one type in one partition, as on its smallest node."""

    name: str
    """The name in profiles, e.g. `a40`."""
    partition: Partition
    spelling: str
    """Slurm's type name; empty if GPUs have no types."""
    constraint: str | None
    """The feature that distinguishes these nodes from others whose GPUs have no type."""
    memory: int | None
    """Bytes of one GPU."""
    per_node: int
    cpus: int
    """CPUs of a node."""
    node_memory: int
    nodes: int
    working: bool
    """Whether one of the nodes is neither down nor drained."""
    hint: str
    """The source of the name, for a comment."""
    others: tuple[Offer, ...] = ()
    """The same type in other, less suitable partitions."""

    @property
    def vendor(self) -> str:
        """Who made them."""
        return vendor_of(f"{self.name} {self.spelling}")

    @property
    def request(self) -> str:
        """The template of the sbatch option."""
        if not self.spelling:
            return "--gres=gpu:{count}"
        return f"--gres=gpu:{'{type}' if self.spelling == self.name else self.spelling}:{{count}}"


def gpu_types(survey: SlurmSurvey, *, partitions: Iterable[str] = ()) -> tuple[Offer, ...]:
    """Returns the GPU types that this user may request, most nodes first.

    Args:
        survey: the site's survey.
        partitions: preferred partitions, if they have the type.
    """
    if survey.slurm is None:
        return ()
    wanted = set(partitions)
    kinds: dict[tuple[str, str], list[Offer]] = {}
    for partition in survey.slurm.partitions:
        if may_submit(survey.slurm, partition, survey.groups):
            for offer in _offers(partition):
                kinds.setdefault((offer.name, offer.spelling), []).append(offer)
    ordered = [sorted(kind, key=lambda one: _merit(one, wanted), reverse=True) for kind in kinds.values()]
    ordered.sort(key=lambda kind: (-kind[0].nodes * kind[0].per_node, kind[0].name))
    types, taken = [], set()
    for first, *others in ordered:
        name = first.name
        if name in taken:  # a second spelling of the same card: a different size or build
            name = _as_name(first.spelling or f"{name}-{first.partition.name}")
        if name not in taken:
            taken.add(name)
            types.append(replace(first, name=name, others=tuple(others)))
    return tuple(types)


def _merit(offer: Offer, wanted: set[str]) -> tuple[object, ...]:
    """Returns the sort key of a partition's suitability, most important part first."""
    limit = offer.partition.max_time
    return (
        offer.partition.name in wanted,
        offer.working,
        not _ASIDE.search(offer.partition.name.lower()),
        min(_DAY if limit is None else limit, _DAY),
        offer.partition.default,
        offer.nodes,
        offer.partition.accounts is None,
        float("inf") if limit is None else limit,
    )


def _offers(partition: Partition) -> Iterator[Offer]:
    """Yields one offer per kind of GPU in a partition."""
    kinds: dict[tuple[str, str], list[tuple[NodeRow, Gpus, str | None, str]]] = {}
    for nodes in partition.nodes:
        for gres in nodes.gpus:
            name, feature, hint = _name(gres, nodes, partition)
            kinds.setdefault((name, gres.type), []).append((nodes, gres, feature, hint))
    untyped = sum(not spelling for _, spelling in kinds)
    for (name, spelling), members in kinds.items():
        features = dict.fromkeys(feature for _, _, feature, _ in members if feature is not None)
        yield Offer(
            name=name,
            partition=partition,
            spelling=spelling,
            constraint="|".join(features) or None if not spelling and untyped > 1 else None,
            memory=min(
                filter(None, (_memory(gres, nodes, name) for nodes, gres, _, _ in members)), default=None
            ),
            per_node=min(gres.count for _, gres, _, _ in members),
            cpus=min(nodes.cpus for nodes, _, _, _ in members),
            node_memory=min(nodes.memory for nodes, _, _, _ in members),
            nodes=sum(nodes.count for nodes, _, _, _ in members),
            working=any(nodes.usable for nodes, _, _, _ in members),
            hint=members[0][3],
        )


def _name(gres: Gpus, nodes: NodeRow, partition: Partition) -> tuple[str, str | None, str]:
    """Returns a GPU's name in profiles, the feature that names it, and the name's source."""
    if gres.type:
        card = recognise(gres.type)
        return card[0] if card else _as_name(gres.type), None, f"sinfo calls it gpu:{gres.type}"
    for feature in nodes.features:
        if card := recognise(feature):
            return card[0], feature, f"its GPUs have no type; taken from its nodes' feature {feature}"
    if card := recognise(partition.name):
        return card[0], None, "its GPUs have no type; taken from the partition's name"
    return "gpu", None, "its GPUs have no type, so the card is not known"


def _memory(gres: Gpus, nodes: NodeRow, name: str) -> int | None:
    """Returns bytes of one GPU, from the type's name, a feature, or the card."""
    if gres.type and (size := slice_memory(gres.type)):
        return size
    for feature in nodes.features:
        if match := _FEATURE_MEMORY.fullmatch(feature):
            return int(match[1]) * 2**30
    cards = [recognise(text) for text in (gres.type, *nodes.features, name)]
    sizes = [card[1] for card in cards if card and card[0] == name and card[1] is not None]
    return sizes[0] if sizes else None


def _as_name(text: str) -> str:
    """Returns a site's word as a valid name: other characters become dashes."""
    return _NO_NAME.sub("-", text).lstrip("._-") or "gpu"
