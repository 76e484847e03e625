"""Slurm's configuration, partitions, nodes, associations and QOS: the one way to ask and to read them. Pure.

A row keeps its fields as Slurm prints them, for quotes, and gives their values: sizes in bytes, times in
seconds, names as tuples. None or empty means that the site did not tell, or sets no limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from clusterkit.backends.slurm.request import Gpus, held
from clusterkit.backends.slurm.rows import parse_time
from clusterkit.untrusted import decimal, ordinal

ARRAY_SIZE = 1001
"""Slurm's default MaxArraySize (man slurm.conf)."""
NODES_BY_KIND = "RDTcmGf"
"""Sinfo's fields of alike nodes."""
NODES_BY_NAME = "RNTcmGE"
"""Sinfo's fields of single nodes."""

# All fields exist in Slurm 20.11.
_ASSOCIATION = (
    "Account",
    "Partition",
    "QOS",
    "DefaultQOS",
    "MaxWall",
    "MaxJobs",
    "MaxSubmit",
    "MaxTRES",
    "GrpTRES",
)
_QOS = ("Name", "MaxWall", "MaxTRES", "MaxTRESPU", "GrpTRES", "MaxJobsPU", "MaxSubmitPU")

CONFIG = "scontrol show config"
ASSOCIATIONS = f'sacctmgr -n -P show assoc user="$(id -un)" format={",".join(_ASSOCIATION)}'
QOS = f"sacctmgr -n -P show qos format={','.join(_QOS)}"

_PARTITION = re.compile(r"PartitionName=(.+?)(?=\s+\w+=|\s*$)", re.MULTILINE)
"""Names may hold spaces."""
_BUSY = re.compile(r"down|drain|fail|maint|unknown|power|reboot|inval", re.IGNORECASE)
_LOST = re.compile(r"(?<!powered_)(?<!powering_)down|drain|fail|error|unknown|inval|\*$", re.IGNORECASE)
_GIBIBYTES = {"": 1024.0, "K": 2.0**20, "M": 1024.0, "G": 1.0, "T": 2.0**-10, "P": 2.0**-20}
_NOTHING = ("", "ALL", "N/A", "(null)")


def partitions(options: str = "") -> str:
    """The command that lists partitions; one name may follow."""
    return " ".join(filter(None, ("scontrol -o", options, "show partition")))


def nodes(options: str, fields: str, separator: str = "|") -> str:
    """The command that lists nodes.

    Args:
        options: sinfo's, which choose the nodes, and whether alike ones share a row.
        fields: sinfo's letters.
        separator: stands between the fields.
    """
    return f'sinfo {options} -o "{separator.join(f"%{letter}" for letter in fields)}"'


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    fields: Mapping[str, str]
    """As Slurm prints them."""

    def text(self, field: str) -> str:
        """A field's text; empty if Slurm does not print it."""
        return self.fields.get(field, "")

    def names(self, field: str) -> tuple[str, ...] | None:
        """A list of names; None where it restricts nothing."""
        text = self.text(field)
        return None if text in _NOTHING else tuple(filter(None, text.split(",")))


class Config(Row):
    """The configuration of the site."""

    @property
    def array_size(self) -> int:
        """The most tasks of an array: the lesser of MaxArraySize and the scheduler's `max_array_tasks`.

        Below 2 there are no arrays. Without an answer it is Slurm's default.
        """
        of_scheduler = re.findall(r"\bmax_array_tasks=([0-9]+)", self.text("SchedulerParameters"))
        limits = map(ordinal, [self.text("MaxArraySize"), *of_scheduler])
        return min((limit for limit in limits if limit is not None), default=ARRAY_SIZE)


class Node(Row):
    """A node of a partition, or alike ones."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.text("N")

    @property
    def count(self) -> int:
        """How many nodes are alike."""
        return _number(self.text("D"))

    @property
    def state(self) -> str:
        """Sinfo's long state."""
        return self.text("T")

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs may start on it, now or when another ends."""
        return not self.state.endswith("*") and not _BUSY.match(self.state)

    @property
    def usable(self) -> bool:
        """Whether it is neither down nor drained; one without power, to save energy, is started for jobs."""
        return not _LOST.search(self.state)

    @property
    def cpus(self) -> int:
        """The node's CPUs."""
        return _number(self.text("c"))

    @property
    def memory(self) -> int:
        """The node's memory, which is printed in MiB."""
        return _number(self.text("m")) << 20

    @property
    def gpus(self) -> tuple[Gpus, ...]:
        """The node's GPUs, by type."""
        return held(self.text("G"))

    @property
    def features(self) -> tuple[str, ...]:
        """The names by which a constraint chooses it."""
        return self.names("f") or ()

    @property
    def reason(self) -> str:
        """Why it takes no jobs."""
        return self.text("E")


@dataclass(frozen=True)
class Partition(Row):
    """A queue and who may use it."""

    name: str
    nodes: tuple[Node, ...] = ()

    @property
    def default(self) -> bool:
        """Whether jobs go there that name no partition."""
        return self.text("Default") == "YES"

    @property
    def state(self) -> str:
        """`UP`, `DOWN`, `DRAIN` or `INACTIVE`."""
        return self.fields.get("State", "UP")

    @property
    def max_time(self) -> int | None:
        """The longest time of a job."""
        return parse_time(self.text("MaxTime"))

    @property
    def accounts(self) -> tuple[str, ...] | None:
        """The only accounts that may submit; None for all."""
        return self.names("AllowAccounts")

    @property
    def denied_accounts(self) -> tuple[str, ...]:
        """The accounts that may not submit."""
        return self.names("DenyAccounts") or ()

    @property
    def groups(self) -> tuple[str, ...] | None:
        """The only Unix groups that may submit; None for all."""
        return self.names("AllowGroups")

    @property
    def qos(self) -> tuple[str, ...] | None:
        """The only QOS that may be requested; None for all."""
        return self.names("AllowQos")

    @property
    def denied_qos(self) -> tuple[str, ...]:
        """The QOS that may not be requested."""
        return self.names("DenyQos") or ()

    @property
    def root_only(self) -> bool:
        """Whether only root may submit."""
        return self.text("RootOnly") == "YES"

    @property
    def cpus_per_node(self) -> int | None:
        """The most CPUs of a node that a job may have."""
        return ordinal(self.text("MaxCPUsPerNode"))

    @property
    def memory_per_node(self) -> int | None:
        """The most memory of a node that a job may have."""
        return (ordinal(self.text("MaxMemPerNode")) or 0) << 20 or None

    @property
    def has_gpus(self) -> bool:
        """Whether any of its nodes has a GPU."""
        return any(node.gpus for node in self.nodes)

    @property
    def weights(self) -> dict[str, float]:
        """Billing units an hour by resource; `mem` per GiB."""
        weights: dict[str, float] = {}
        for pair in self.text("TRESBillingWeights").split(","):
            match = re.fullmatch(r"([^=]+)=([0-9.]+)([KMGTP]?)", pair, re.IGNORECASE)
            if match and (weight := decimal(match[2])) is not None:
                name = match[1].lower()
                weights[name] = weight * (_GIBIBYTES[match[3].upper()] if name == "mem" else 1.0)
        return weights


class Association(Row):
    """An account that the user may charge, as the accounting database has it."""

    @property
    def account(self) -> str:
        """The account's name."""
        return self.text("Account")

    @property
    def qos(self) -> tuple[str, ...]:
        """The QOS that it may use."""
        return self.names("QOS") or ()

    @property
    def default_qos(self) -> str | None:
        """The QOS of a job that names none."""
        return self.text("DefaultQOS") or None

    @property
    def max_time(self) -> int | None:
        """The longest time of a job."""
        return parse_time(self.text("MaxWall"))

    @property
    def max_submit(self) -> int | None:
        """The most jobs in the queue."""
        return ordinal(self.text("MaxSubmit"))

    def covers(self, partition: str) -> bool:
        """Whether it is valid for a partition."""
        return self.text("Partition") in ("", partition)


class Qos(Row):
    """A quality of service."""

    @property
    def name(self) -> str:
        """The name in options."""
        return self.text("Name")

    @property
    def max_time(self) -> int | None:
        """The longest time of a job."""
        return parse_time(self.text("MaxWall"))

    @property
    def max_submit(self) -> int | None:
        """The most jobs of a user in the queue."""
        return ordinal(self.text("MaxSubmitPU"))


@dataclass(frozen=True)
class Tables:
    """The tables among the sections of an answer; those that are missing are empty."""

    texts: Mapping[str, str]
    """By section: `config`, `partitions`, `nodes`, `associations`, `qos`."""
    node_fields: str = NODES_BY_NAME
    """Sinfo's, as asked."""
    separator: str = "|"
    """Between them."""

    @cached_property
    def config(self) -> Config:
        """The configuration."""
        return Config(dict(re.findall(r"^(\w+)\s*= *(.*?) *$", self.texts.get("config", ""), re.MULTILINE)))

    @cached_property
    def partitions(self) -> dict[str, Partition]:
        """The partitions by name, with their nodes; those that sinfo alone knows are the last."""
        nodes: dict[str, list[Node]] = {}
        for node in self.nodes:
            nodes.setdefault(node.text("R"), []).append(node)
        _, *pieces = _PARTITION.split(self.texts.get("partitions", ""))
        fields = {
            name: dict(re.findall(r"(\w+)=(\S*)", text))
            for name, text in zip(pieces[::2], pieces[1::2], strict=True)
        }
        return {
            name: Partition(fields.get(name, {}), name, tuple(nodes.get(name, ())))
            for name in {**fields, **nodes}
        }

    @property
    def default(self) -> Partition | None:
        """The partition of jobs that name none."""
        return next((row for row in self.partitions.values() if row.default), None)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes."""
        return tuple(map(Node, self._rows("nodes", self.node_fields, self.separator)))

    @cached_property
    def associations(self) -> tuple[Association, ...]:
        """The user's associations."""
        return tuple(map(Association, self._rows("associations", _ASSOCIATION)))

    @cached_property
    def qos(self) -> dict[str, Qos]:
        """The QOS by name."""
        return {row.name: row for row in map(Qos, self._rows("qos", _QOS))}

    def _rows(self, section: str, fields: Sequence[str], separator: str = "|") -> list[dict[str, str]]:
        """The lines of a section that are rows; the last field may hold any text."""
        rows = (line.split(separator, len(fields) - 1) for line in self.texts.get(section, "").splitlines())
        return [
            dict(zip(fields, map(str.strip, row), strict=True)) for row in rows if len(row) == len(fields)
        ]


def _number(text: str) -> int:
    match = re.match(r"[0-9]+", text)
    return (ordinal(match[0]) or 0) if match else 0
