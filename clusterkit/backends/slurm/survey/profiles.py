"""Drafts small profiles for a site's GPU types, and fits shipped profiles to its nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clusterkit.backends.slurm.survey.gpus import Offer
from clusterkit.config.lines import Entry, Table
from clusterkit.config.models import Profile
from clusterkit.units import format_duration, format_size, plural

_MOST_TYPES = 8
_LEAST_CPUS = 2
_MIB, _GIB = 2**20, 2**30
_TESTS = (
    ("check", "check-{}", "Tests container, GPU and imports on one {} in minutes; trains nothing"),
    ("mt10-test", "{}-test", "A short training run on one {}, with its share of a node"),
)


def fitting_profiles(
    types: Sequence[Offer], limits: Mapping[str, int | None], shipped: Mapping[str, Profile]
) -> tuple[Table, ...]:
    """Profiles for the first GPU types: two small ones each, and shipped ones that request too much.

    Args:
        types: the site's GPU types.
        limits: longest time of a job by GPU type, seconds; None without a limit.
        shipped: the profiles that ship with clusterkit, by name.
    """
    tables = []
    for one in types[:_MOST_TYPES]:
        for base, name, about in _TESTS:
            if base in shipped:
                changes = _changes(shipped[base], one, limits.get(one.name))
                entries = (Entry("extends", base), Entry("gpu", one.name), *changes)
                key = ("profiles", name.format(one.name))
                tables.append(Table(key, entries, (about.format(one.name),)))
        for profile in shipped.values():
            if profile.gpu == one.name and not _fits(profile, one, limits.get(one.name)):
                head = (f"The shipped {profile.name} requests more than a job may have there",)
                changes = _changes(profile, one, limits.get(one.name))
                if profile.name not in (base for base, _, _ in _TESTS):
                    tables.append(Table(("profiles", profile.name), changes, head))
    return tuple(tables)


def _fits(profile: Profile, offer: Offer, limit: int | None) -> bool:
    """Whether one job may have the profile's resources."""
    cpus, memory = _share(offer, offer.per_node)
    return (
        profile.gpus <= offer.per_node
        and profile.cpus <= cpus
        and (profile.memory or 0) <= memory
        and (limit is None or profile.time <= limit)
    )


def _changes(profile: Profile, offer: Offer, limit: int | None) -> tuple[Entry, ...]:
    """Changed requests that fit the GPUs' share of a node."""
    gpus = min(profile.gpus, offer.per_node)
    cpus, memory = _share(offer, gpus)
    changes = []
    if profile.gpus > gpus:
        changes.append(Entry("gpus", gpus, f"a node has {offer.per_node}"))
    if profile.cpus > cpus:
        changes.append(Entry("cpus", cpus, f"of {offer.cpus} for {plural(offer.per_node, 'GPU')}"))
    if profile.memory is not None and profile.memory > memory:
        why = f"of {offer.node_memory / _GIB:.0f} GiB for {plural(offer.per_node, 'GPU')}"
        changes.append(Entry("memory", format_size(memory), why))
    if limit is not None and profile.time > limit:
        changes.append(Entry("time", format_duration(limit), "the longest job there"))
        if profile.recipe is not None:
            changes.append(Entry("until_done", True, "so it continues in the next job"))
    return tuple(changes)


def _share(offer: Offer, gpus: int) -> tuple[int, int]:
    """The share of a node's CPUs (at least two) and memory for a number of its GPUs.

    Slurm reports 1 MiB for a node with unconfigured memory; a request needs some memory nevertheless.
    """
    cpus = min(offer.cpus, offer.partition.cpus_per_node or offer.cpus)
    memory = min(offer.node_memory, offer.partition.memory_per_node or offer.node_memory)
    share = max(offer.cpus * gpus // offer.per_node, min(_LEAST_CPUS, offer.cpus))
    portion = min(memory, offer.node_memory * gpus // offer.per_node)
    whole = portion // _GIB * _GIB
    return max(1, min(share, cpus)), whole or max(1, portion // _MIB) * _MIB
