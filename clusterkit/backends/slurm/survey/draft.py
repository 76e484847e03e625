"""Drafts settings from a survey, with a reason for every key. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clusterkit.backends.slurm.survey.gpus import (
    Offer,
    account_for,
    gpu_types,
    longest,
    may_charge,
    may_submit,
    qos_for,
)
from clusterkit.backends.slurm.survey.missing import missing
from clusterkit.backends.slurm.survey.parse import Slurm, SlurmSurvey
from clusterkit.backends.survey import FoundGpu, FoundRuntime, SiteDraft, Wishes
from clusterkit.config.lines import Entry, Key, WrittenTable
from clusterkit.config.models import Profile
from clusterkit.hardware import VENDORS, sizes_of
from clusterkit.runtimes import BUILDER, NONE, runtime_of
from clusterkit.units import format_duration, format_size, plural

_SETTLED_ANEW = ("name", "host", "login_shell", "partition", "account", "qos", "max_time")
"""Earlier keys of a cluster that stay only if the new survey confirms them."""
_SETTLED_ANEW_FOR_GPUS = ("partition", "account", "qos", "constraint")
"""The same for a GPU type."""


def draft(
    survey: SlurmSurvey, wishes: Wishes, *, before: Mapping[str, Any], shipped: Mapping[str, Profile]
) -> SiteDraft:
    """Drafts the settings for a site.

    Args:
        survey: the site's survey.
        wishes: the user's wishes.
        before: the cluster's table in the existing file; empty for a new one.
        shipped: the profiles that ship with clusterkit, by name.
    """
    slurm = survey.slurm or Slurm()
    types = types_for(survey, wishes.partition, before)
    runtime = next((row for row in survey.runtimes if wishes.container in (None, row.name)), None)
    limits = {offer.name: longest(slurm, wishes.account, offer.partition) for offer in types}
    entries = _cluster(survey, wishes, limits, runtime, before)
    cluster = WrittenTable(("clusters", wishes.name), tuple(entries), _about(survey))
    gone = _gone(cluster, before, _SETTLED_ANEW)
    old = before.get("gpus", {})
    gpus = [_gpu(offer, slurm, wishes, limits[offer.name], old.get(offer.name, {})) for offer in types]
    for table in gpus:
        gone += _gone(table, old.get(table.key[-1], {}), _SETTLED_ANEW_FOR_GPUS)
    gone += [(*cluster.key, "gpus", name) for name in _gone_types(old, types, slurm)]
    project = [Entry("default_cluster", wishes.name)]
    profiles = own_profiles(types, limits) if wishes.own else fitting_profiles(types, limits, shipped)
    if profiles and wishes.own:
        project.append(Entry("default_profile", profiles[0].key[-1]))
    elif types:
        project.append(Entry("default_profile", f"{types[0].name}-test"))
    return SiteDraft(
        cluster=(cluster, *gpus),
        gone=tuple(gone),
        profiles=profiles,
        project=WrittenTable(("project",), tuple(project)),
        gpus=tuple(
            FoundGpu(
                offer.name, offer.partition.name, offer.nodes, offer.per_node, offer.cpus, limits[offer.name]
            )
            for offer in types
        ),
        missing=missing(survey, types, runtime, runtime.name if runtime else wishes.container),
    )


def types_for(survey: SlurmSurvey, partition: str | None, before: Mapping[str, Any]) -> tuple[Offer, ...]:
    """Returns the GPU types, preferably in the requested partition or in those of the earlier settings."""
    if partition is not None:
        return gpu_types(survey, partitions=[partition])
    tables = [table for table in before.get("gpus", {}).values() if isinstance(table, dict)]
    return gpu_types(survey, partitions=[str(table["partition"]) for table in tables if "partition" in table])


def _gone(table: WrittenTable, before: Mapping[str, Any], anew: tuple[str, ...]) -> list[Key]:
    """Returns earlier keys that the new survey removes."""
    wanted = {entry.key for entry in table.entries}
    return [(*table.key, key) for key in anew if key in before and key not in wanted]


def _gone_types(old: Mapping[str, Any], types: tuple[Offer, ...], slurm: Slurm) -> list[str]:
    """Returns earlier GPU types whose partition no longer exists."""
    partitions, seen = {row.name for row in slurm.partitions}, {row.name for row in types}
    return [
        name
        for name, table in old.items()
        if partitions and name not in seen and table.get("partition") not in {None, *partitions}
    ]


def _about(survey: SlurmSurvey) -> tuple[str, ...]:
    """Returns remarks about the site beyond the keys."""
    lines = [
        f"Written by `clusterkit init` from what {survey.host_name} says; run it again when the site changes."
    ]
    if slurm := survey.slurm:
        config = slurm.tables.config
        what = f"Slurm {slurm.version or ''}".strip() + (
            f", cluster {name}" if (name := config.text("ClusterName")) else ""
        )
        names = ("JobRequeue", "PreemptMode", "KillWait", "MaxArraySize")
        values = [f"{name}={config.text(name).split()[0]}" for name in names if config.text(name)]
        lines.append(": ".join(filter(None, (what, ", ".join(values)))))
    tools = [f"rsync {survey.rsync}" if survey.rsync else "no rsync, so files go by tar"]
    if survey.internet is not None:
        tools.append("internet" if survey.internet else "no internet")
    lines.append(f"Login node: {', '.join(tools)}. Compute nodes may differ.")
    if survey.workspaces:
        lines.append("This site has workspaces: `ws_allocate NAME DAYS` creates a folder for `root` there.")
    return tuple(lines)


def _cluster(
    survey: SlurmSurvey,
    wishes: Wishes,
    gpu_limits: Mapping[str, int | None],
    runtime: FoundRuntime | None,
    before: Mapping[str, Any],
) -> list[Entry]:
    entries = []
    if wishes.host is not None:
        entries.append(Entry("host", wishes.host, "as you type it after ssh"))
    if wishes.ssh_config is not None:
        entries.append(Entry("ssh_config", wishes.ssh_config))
    entries.append(Entry("root", wishes.root, wishes.root_about))
    form = runtime_of(wishes.container or BUILDER.name).image or BUILDER.image
    image = wishes.image or before.get("image") or (None if wishes.own else form.file)
    if image and "registry_image" not in before:
        entries.append(Entry("image", image, f"on this machine; `{form.maker}` creates it"))
    entries += _container(survey, wishes, runtime, before)
    if survey.login_shell:
        entries.append(Entry("login_shell", True, "Slurm is on PATH only there"))
    slurm = survey.slurm or Slurm()
    if (
        partition := wishes.partition or _partition(slurm, wishes.account, survey.groups, before)
    ) is not None:
        entries.append(Entry("partition", partition, "for jobs without a GPU"))
    if arch := _architectures(slurm):
        entries.append(Entry("arch", arch, "of the nodes, as `uname -m` says it"))
    if wishes.account is not None:
        entries.append(Entry("account", wishes.account, "pays for the jobs"))
    limits = list(gpu_limits.values())
    limits = limits or [longest(slurm, wishes.account, row) for row in slurm.partitions if row.state == "UP"]
    finite = [limit for limit in limits if limit is not None]
    if finite and len(finite) == len(limits):
        less = (
            f"; less in some partitions, down to {format_duration(min(finite))}"
            if min(finite) < max(finite)
            else ""
        )
        entries.append(Entry("max_time", format_duration(max(finite)), f"the longest job{less}"))
    return entries


def _architectures(slurm: Slurm) -> str | dict[str, str] | None:
    """Returns the architecture of all nodes, or by partition those that differ from most; None if unknown."""
    found = slurm.tables.architectures
    if not found:
        return None
    default = slurm.tables.default
    usual = found.get(default.name if default else "") or Counter(found.values()).most_common(1)[0][0]
    others = {name: arch for name, arch in found.items() if arch != usual}
    return {"*": usual, **others} if others else usual


def _container(
    survey: SlurmSurvey, wishes: Wishes, runtime: FoundRuntime | None, before: Mapping[str, Any]
) -> list[Entry]:
    entries = []
    if runtime is not None:
        mode = {True: ", setuid", False: ", by user namespaces", None: ""}[runtime.setuid]
        about = " ".join(filter(None, (runtime.name, runtime.version))) + mode
        entries.append(Entry("container", runtime.name, f"the login node has {about}"))
        if runtime.module is not None:
            prelude = ["command -v module >/dev/null || . /etc/profile", f"module load {runtime.module}"]
            entries.append(_kept(Entry("prelude", prelude, "every job runs this first"), before))
    elif wishes.container is not None:
        others = " or ".join(f'"{one.name}"' for one in survey.runtimes)
        about = f"no image; with one: {others}" if wishes.container == NONE.name and others else ""
        entries.append(Entry("container", wishes.container, about))
    return entries


def _partition(
    slurm: Slurm, account: str | None, groups: tuple[str, ...], before: Mapping[str, Any]
) -> str | None:
    """Returns the partition of jobs without a GPU: the earlier one, or another than an unfit default."""
    if any(row.name == before.get("partition") for row in slurm.partitions):
        return str(before["partition"])
    usable = [row for row in slurm.partitions if may_submit(slurm, row, groups)]
    usable = [row for row in usable if account is None or may_charge(slurm, account, row)]
    if not usable or any(row.default for row in usable):
        return None
    return max(usable, key=lambda row: (not row.has_gpus, sum(nodes.count for nodes in row.nodes))).name


def _gpu(
    offer: Offer, slurm: Slurm, wishes: Wishes, limit: int | None, before: Mapping[str, Any]
) -> WrittenTable:
    partition = offer.partition
    about = f"jobs of at most {format_duration(limit)}" if limit else "no time limit"
    entries = [Entry("partition", partition.name, about)]
    if offer.request != "--gres=gpu:{type}:{count}":
        entries.append(_kept(Entry("request", offer.request, offer.hint), before))
    if account := account_for(slurm, wishes.account, partition):
        entries.append(Entry("account", account, f"the partition does not accept {wishes.account}"))
    if qos := qos_for(slurm, account or wishes.account, partition):
        entries.append(Entry("qos", qos, "the only one of yours that the partition accepts"))
    if offer.constraint is not None:
        entries.append(
            Entry("constraint", offer.constraint, "distinguishes these nodes from others of the partition")
        )
    if offer.memory is not None:
        entries.append(_kept(Entry("memory", format_size(offer.memory), "of one GPU"), before))
    if offer.vendor != VENDORS[0]:
        entries.append(_kept(Entry("vendor", offer.vendor, offer.hint), before))
    return WrittenTable(
        ("clusters", wishes.name, "gpus", offer.name), tuple(entries), _about_gpu(offer, slurm, wishes)
    )


def _about_gpu(offer: Offer, slurm: Slurm, wishes: Wishes) -> tuple[str, ...]:
    nodes = plural(offer.nodes, "node") + (", each" if offer.nodes != 1 else "")
    node = f"{plural(offer.per_node, 'GPU')}, {plural(offer.cpus, 'CPU')}"
    about = f"{nodes} with {node}, {offer.node_memory / 2**30:.0f} GiB"
    lines = [about if offer.working else f"{about}; down when this was written"]
    others = []
    for partition in (other.partition for other in offer.others):
        limit = longest(slurm, wishes.account, partition)
        others.append(f"{partition.name} ({format_duration(limit) if limit else 'no limit'})")
    if others:
        lines.append(f"Also in: {', '.join(others)}")
    if offer.memory is None:
        either = " or ".join(f'"{size}G"' for size in sizes_of(offer.name)) or '"...G"'
        lines.append(f"Slurm does not say how much memory a {offer.name} has here: add memory = {either}")
    return tuple(lines)


def _kept(entry: Entry, before: Mapping[str, Any]) -> Entry:
    """Returns the entry, or the user's own value for it."""
    return replace(entry, value=before.get(entry.key, entry.value))


_MOST_TYPES = 8
_LEAST_CPUS = 2
_MIB, _GIB = 2**20, 2**30
_TIME = 4 * 3600
_ENDS = "ends the run then; `resume` continues from a checkpoint"
_TESTS = (
    ("check", "check-{}", "Tests container, GPU and imports on one {} in minutes; trains nothing"),
    ("mt10-test", "{}-test", "A short training run on one {}, with its share of a node"),
)


def fitting_profiles(
    types: Sequence[Offer], limits: Mapping[str, int | None], shipped: Mapping[str, Profile]
) -> tuple[WrittenTable, ...]:
    """Returns profiles for the first GPU types: two small ones each, and shipped ones that request too much.

    Args:
        types: the site's GPU types.
        limits: longest time of a job by GPU type, seconds; None without a limit.
        shipped: the profiles that ship with clusterkit, by name.
    """
    tables = []
    for offer in types[:_MOST_TYPES]:
        for base, name, about in _TESTS:
            if base in shipped:
                changes = _changes(shipped[base], offer, limits.get(offer.name))
                entries = (Entry("extends", base), Entry("gpu", offer.name), *changes)
                key = ("profiles", name.format(offer.name))
                tables.append(WrittenTable(key, entries, (about.format(offer.name),)))
        for profile in shipped.values():
            if profile.gpu == offer.name and not _fits(profile, offer, limits.get(offer.name)):
                head = (f"The shipped {profile.name} requests more than a job may have there",)
                changes = _changes(profile, offer, limits.get(offer.name))
                if profile.name not in (base for base, _, _ in _TESTS):
                    tables.append(WrittenTable(("profiles", profile.name), changes, head))
    return tuple(tables)


def own_profiles(types: Sequence[Offer], limits: Mapping[str, int | None]) -> tuple[WrittenTable, ...]:
    """Returns profiles for a user's own program: one for each of the first GPU types, or one without a GPU.

    Args:
        types: the site's GPU types.
        limits: longest time of a job by GPU type, seconds; None without a limit.
    """
    tables = []
    for offer in types[:_MOST_TYPES]:
        cpus, memory = _share(offer, 1)
        why = f"of {offer.cpus} for {plural(offer.per_node, 'GPU')}"
        entries = (
            Entry("gpu", offer.name),
            Entry("cpus", cpus, why),
            Entry("memory", format_size(memory), f"of {offer.node_memory / _GIB:.0f} GiB, likewise"),
            Entry("time", format_duration(min(_TIME, limits.get(offer.name) or _TIME)), _ENDS),
        )
        about = (f"One {offer.name}, with its share of a node",)
        tables.append(WrittenTable(("profiles", offer.name), entries, about))
    if tables:
        return tuple(tables)
    small = (Entry("cpus", 4), Entry("memory", "8G"), Entry("time", format_duration(_TIME), _ENDS))
    return (WrittenTable(("profiles", "cpu"), small, ("A run without a GPU",)),)


def _fits(profile: Profile, offer: Offer, limit: int | None) -> bool:
    """Returns whether one job may have the profile's resources."""
    cpus, memory = _share(offer, offer.per_node)
    return (
        profile.gpus <= offer.per_node
        and profile.cpus <= cpus
        and (profile.memory or 0) <= memory
        and (limit is None or profile.time <= limit)
    )


def _changes(profile: Profile, offer: Offer, limit: int | None) -> tuple[Entry, ...]:
    """Returns changed requests that fit the GPUs' share of a node."""
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
    """Returns the share of a node's CPUs (at least two) and memory for a number of its GPUs.

    Slurm reports 1 MiB for a node with unconfigured memory; a request needs some memory nevertheless.
    """
    cpus = min(offer.cpus, offer.partition.cpus_per_node or offer.cpus)
    memory = min(offer.node_memory, offer.partition.memory_per_node or offer.node_memory)
    share = max(offer.cpus * gpus // offer.per_node, min(_LEAST_CPUS, offer.cpus))
    portion = min(memory, offer.node_memory * gpus // offer.per_node)
    whole = portion // _GIB * _GIB
    return max(1, min(share, cpus)), whole or max(1, portion // _MIB) * _MIB
