"""Judges Slurm's answers about itself and about a profile's request. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from clusterkit.backends.checks import (
    Answer,
    CheckPlace,
    Checks,
    Scope,
    Verdict,
    failed,
    passed,
    shortlist,
    warned,
)
from clusterkit.backends.jobs import refusal
from clusterkit.backends.slurm import tables
from clusterkit.backends.slurm.explain import sbatch_error
from clusterkit.backends.slurm.request import JobRequest, read
from clusterkit.backends.slurm.tables import CLEAN_ENVIRONMENT, NodeRow, Partition, SlurmTables
from clusterkit.probes import TIME_UP
from clusterkit.units import format_bytes, format_duration, plural


@dataclass(frozen=True)
class SlurmAnswer:
    """The scheduler's answers, and one profile's request."""

    answer: Answer
    cluster: str
    """Its name in the settings."""
    profile: str = ""
    asked: JobRequest | None = None

    @property
    def table(self) -> str:
        """The settings' table, for cures."""
        return f"[clusters.{self.cluster}]"

    @property
    def request(self) -> JobRequest:
        """The profile's request."""
        assert self.asked is not None
        return self.asked

    @cached_property
    def tables(self) -> SlurmTables:
        """Slurm's tables."""
        return SlurmTables({name: part.text for name, part in self.answer.parts.items()})

    @property
    def queue(self) -> str:
        """The name of the job's partition; empty if none is named and the site has no default."""
        default = self.tables.default
        return self.request.partition or (default.name if default else "")

    @property
    def partition(self) -> Partition:
        """The job's partition, without fields if the site has none of that name."""
        return self.tables.partitions.get(self.queue) or Partition({}, self.queue)

    @property
    def nodes(self) -> tuple[NodeRow, ...]:
        """The nodes of that partition."""
        return self.partition.nodes

    @property
    def accounts(self) -> dict[str, set[str]]:
        """The QOS of each of the user's accounts in the partition."""
        accounts: dict[str, set[str]] = {}
        for row in self.tables.associations:
            if row.partition in ("", self.queue):
                accounts.setdefault(row.account, set()).update(row.qos)
        return accounts

    def enforces(self, what: str) -> bool:
        """Returns whether the site refuses jobs unknown to its accounting: `associations` or `qos`."""
        return what in self.tables.config.text("AccountingStorageEnforce")


CHECKS = Checks[SlurmAnswer](CheckPlace.SCHEDULER)


@CHECKS.declare("login")
def slurm_tools(slurm: SlurmAnswer) -> Verdict:
    """Judges whether all tools are on PATH in a command's shell."""
    part = slurm.answer["slurm"]
    missing = part.text.split()
    if not missing:
        return passed(slurm.answer["version"].text or "all there")
    text = f"not on PATH: {', '.join(missing)}"
    elsewhere = slurm.answer["login-shell"]
    if "sbatch" in missing and elsewhere.status == 0 and elsewhere.lines:
        return failed(
            f"{text}; a login shell finds {elsewhere.lines[-1]}", f"login_shell = true in {slurm.table}"
        )
    return failed(text, f"set `host` of {slurm.table} to a login node of the cluster")


@CHECKS.declare("slurm-tools")
def controller(slurm: SlurmAnswer) -> Verdict:
    """Judges whether squeue, which everything needs, answers."""
    part = slurm.answer["queue"]
    if part.status == 0:
        jobs = len(part.lines)
        return passed(f"squeue answers; {jobs} job{'' if jobs == 1 else 's'} of yours")
    return failed(f"squeue: {part.last}", "wait a few minutes and check again; then ask the administrators")


@CHECKS.declare("slurm-tools")
def accounting(slurm: SlurmAnswer) -> Verdict:
    """Judges whether sacct answers; without it old runs are judged by their exit records."""
    part = slurm.answer["sacct"]
    if part.status == 0:
        return passed("sacct answers")
    none = "disabled" in part.text
    return warned(
        f"sacct: {part.last}; how runs ended is read from their run directories",
        "nothing to do: this site has none" if none else "wait a few minutes; then ask the administrators",
    )


@CHECKS.declare("controller", "profile", of_profile=True)
def partition(slurm: SlurmAnswer) -> Verdict:
    """Judges whether the partition exists, is up, admits the user and has a working node."""
    name = slurm.queue
    if not name:
        return failed("no partition is set, and the site has no default", f"partition = ... in {slurm.table}")
    if not slurm.partition.fields:
        names = sorted(row.name for row in slurm.tables.partitions.values() if row.fields)
        return failed(
            f"there is no partition {name}; available: {shortlist(names)}",
            f"partition = ... in {slurm.table}",
        )
    if (state := slurm.partition.state) != "UP":
        return failed(f"{name} is {state}", "wait for the administrators, or choose another partition")
    usable = [node for node in slurm.nodes if node.takes_jobs]
    if not usable:
        why = next((f"{node.name} is {node.state}: {node.reason}" for node in slurm.nodes), "it has no nodes")
        return failed(
            f"no node of {name} takes jobs: {why}", "wait for the administrators, or choose another partition"
        )
    return passed(f"{name} is up, {len(usable)} of {len(slurm.nodes)} nodes take jobs")


@CHECKS.declare("controller", "profile", of_profile=True)
def account(slurm: SlurmAnswer) -> Verdict:
    """Judges whether the user has the account and the partition admits it."""
    wanted, mine = slurm.request.account, slurm.accounts
    queue, allowed = slurm.queue, slurm.partition.accounts
    if wanted and mine and wanted not in mine:
        text = f"you have no account {wanted}; yours: {shortlist(sorted(mine))}"
        cure = f"account = ... in {slurm.table}"
        return (
            failed(text, cure)
            if slurm.enforces("associations")
            else warned(f"{text}; it is not enforced", cure)
        )
    if not mine and slurm.enforces("associations"):
        if slurm.answer["associations"].status != 0:
            return passed("sacctmgr does not say; `submit` will show")
        return failed("you have no account in Slurm", "ask the administrators for one")
    if wanted and allowed is not None and wanted not in allowed:
        return failed(
            f"{queue} takes only accounts {','.join(allowed)}", f"account or partition in {slurm.table}"
        )
    if wanted in slurm.partition.denied_accounts:
        return failed(f"{queue} does not take account {wanted}", f"account or partition in {slurm.table}")
    return passed(wanted or ("your default account" if mine else "the site has none"))


@CHECKS.declare("controller", "account", of_profile=True)
def qos(slurm: SlurmAnswer) -> Verdict:
    """Judges whether the account may use the QOS."""
    wanted, cure = slurm.request.qos, f"qos = ... in {slurm.table}"
    if not wanted:
        return passed("none is named")
    names = slurm.tables.qos
    if names and wanted not in names:
        return failed(f"there is no QOS {wanted}; available: {shortlist(sorted(names))}", cure)
    allowed = slurm.partition.qos
    if allowed is not None and wanted not in allowed:
        return failed(
            f"{slurm.queue} takes only QOS {','.join(allowed)}", f"qos or partition in {slurm.table}"
        )
    mine = slurm.accounts
    of_account = mine.get(slurm.request.account) or set().union(*mine.values())
    if of_account and wanted not in of_account:
        text = f"your account may not use {wanted}; it may: {shortlist(sorted(of_account))}"
        return failed(text, cure) if slurm.enforces("qos") else warned(f"{text}; it is not enforced", cure)
    return passed(wanted)


@CHECKS.declare("partition", applies=Scope.of_gpu, of_profile=True)
def gres(slurm: SlurmAnswer) -> Verdict:
    """Judges whether the partition's nodes have the GPUs."""
    wanted, option = slurm.request.gpus, slurm.request.gpu_option
    there = sorted({str(gpus) for node in slurm.nodes for gpus in node.gpus})
    table = f"[clusters.{slurm.cluster}.gpus]"
    if wanted is None:
        return failed("the options request no GPU", f'request = "--gres=gpu:{{type}}:{{count}}" in {table}')
    spelt = [gpus for node in slurm.nodes for gpus in node.gpus if wanted.type in ("", gpus.type)]
    if not spelt:
        has = f"have {shortlist(there)}" if there else "have no GPU"
        untyped = any(gpus.type == "" for node in slurm.nodes for gpus in node.gpus)
        cure = (
            f'request = "--gres=gpu:{{count}}" in {table}'
            if untyped
            else f"partition, or the GPU's name, in {table}"
        )
        return failed(f"{option}: the nodes of {slurm.queue} {has}", cure)
    most = max(gpus.count for gpus in spelt)
    if wanted.count > most:
        return failed(
            f"{option}: a node of {slurm.queue} has {most}",
            f"gpus = {most} in [profiles.{slurm.profile}]",
        )
    return passed(f"{option}; the nodes have {shortlist(there)}")


@CHECKS.declare("partition", of_profile=True)
def time_limit(slurm: SlurmAnswer) -> Verdict:
    """Judges whether the time limit is below the partition's."""
    wanted = slurm.request.seconds
    limit = slurm.partition.max_time
    if wanted is None or limit is None:
        return passed("the partition has no limit" if limit is None else "none is requested")
    text = f"{format_duration(wanted)} requested, {slurm.queue} allows {format_duration(limit)}"
    if wanted > limit:
        cure = f'time = "{format_duration(limit)}" in [profiles.{slurm.profile}], with until_done = true'
        return failed(text, cure)
    return passed(text)


@CHECKS.declare("partition", of_profile=True)
def size(slurm: SlurmAnswer) -> Verdict:
    """Judges whether the request fits on one node, with the GPU if one is requested."""
    wanted = slurm.request
    nodes = [
        node
        for node in slurm.nodes
        if wanted.gpus is None or any(wanted.gpus.type in ("", gpus.type) for gpus in node.gpus)
    ] or slurm.nodes
    cpus, memory = max(node.cpus for node in nodes), max(node.memory for node in nodes)
    table = f"[profiles.{slurm.profile}]"
    if wanted.cpus > cpus:
        return failed(
            f"{plural(wanted.cpus, 'CPU')} requested, the nodes have {cpus}", f"cpus = {cpus} in {table}"
        )
    if (wanted.memory or 0) > memory:
        most = f"{memory >> 30}G" if memory >= 1 << 30 else f"{memory >> 20}M"
        text = f"{format_bytes(wanted.memory or 0)} requested, the nodes have {format_bytes(memory)}"
        return failed(text, f'memory = "{most}" in {table}')
    asked = plural(wanted.cpus, "processor") + (f", {format_bytes(wanted.memory)}" if wanted.memory else "")
    return passed(f"{asked} of {cpus}, {format_bytes(memory)}")


@CHECKS.declare("controller", "profile", of_profile=True)
def submit(slurm: SlurmAnswer) -> Verdict:
    """Judges whether sbatch itself accepts the script."""
    part = slurm.answer[f"test {slurm.profile}"]
    if part.status == 0:
        words = [line.removeprefix("sbatch: ").strip() for line in part.lines]
        return passed(next((word for word in reversed(words) if "to start at" in word), "sbatch accepts it"))
    refused = part.last if part.status == TIME_UP else refusal(part.text)
    return failed(
        refused, sbatch_error(part.text) or "clusterkit submit --script shows the script; see `sbatch --help`"
    )


_TOOLS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct")
# A controller that does not answer the first question is not asked the others.
_SLURM = rf"""
ck_own slurm ck_missing {" ".join(_TOOLS)}
if command -v sbatch >/dev/null 2>&1; then
  {CLEAN_ENVIRONMENT}
  ck_part version sbatch --version
  ck_part queue squeue -h -u "$(id -un)" -o %i
  ck_queue=$ck_status
  ck_part sacct sacct -n -P -X -S now -o JobID
  if [ "$ck_queue" -eq 0 ]; then
    ck_part partitions {tables.partitions()}
    ck_part nodes {tables.nodes("-h -N", tables.NODES_BY_NAME)}
    ck_part config {tables.CONFIG}
    ck_part associations {tables.ASSOCIATIONS}
    ck_part qos {tables.QOS}
    ck_tests
  fi
else
  ck_part login-shell bash -lc 'command -v sbatch'
fi
"""
_TEST = 'printf "#!/bin/sh\\n" | sbatch --test-only "$@"'


_ENVIRONMENT = "SLURM_TIME_FORMAT=standard SLURM_BITSTR_LEN=0; export SLURM_TIME_FORMAT SLURM_BITSTR_LEN"


class SlurmChecks:
    """See `clusterkit.backends.checks.SchedulerChecks`."""

    checks = CHECKS

    def script(self, requests: Mapping[str, tuple[str, ...]]) -> str:
        """Asks for Slurm's tools, controller, accounting, partitions, and sbatch's answer to each request."""
        return "\n".join([_ENVIRONMENT, _tests(requests), _SLURM])

    def evidence(
        self, answer: Answer, cluster: str, profile: str = "", options: tuple[str, ...] = ()
    ) -> SlurmAnswer:
        """Returns Slurm's answer, with the request of a profile."""
        return SlurmAnswer(answer, cluster, profile, read(options) if profile else None)


def _tests(requests: Mapping[str, tuple[str, ...]]) -> str:
    """Returns a shell function that tests each request with sbatch."""
    parts = (
        f"  ck_part {shlex.quote(f'test {profile}')} sh -c {shlex.quote(_TEST)} sh {shlex.join(options)}"
        for profile, options in requests.items()
    )
    return "\n".join(["ck_tests() {", "  :", *parts, "}"])
