"""Slurm's configuration, partitions, nodes, associations and QOS: the one way to ask and to read them. Pure.

A row keeps its fields as Slurm prints them, for quotes, and gives their values: sizes in bytes, times in
seconds, names as tuples. None or empty means that the site did not tell, or sets no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from clusterkit.backends.slurm.request import node_gpus
from clusterkit.backends.slurm.rows import FIELD_SEPARATOR, parse_time
from clusterkit.hardware import ARCHITECTURES
from clusterkit.untrusted import decimal, ordinal

T = TypeVar("T")

ARRAY_SIZE = 1001
"""Slurm's default MaxArraySize (man slurm.conf)."""
NODES_BY_KIND = "RDTcmGf"
"""Sinfo's fields of alike nodes."""
NODES_BY_NAME = "RNTcmGE"
"""Sinfo's fields of single nodes."""
CONFIG = "scontrol show config"

_PARTITION = re.compile(r"PartitionName=(\S+(?:[^\S\n]+(?!\w+=)\S+)*)")
"""Names may hold spaces."""
_BUSY = re.compile(r"down|drain|fail|maint|unknown|power|reboot|inval", re.IGNORECASE)
_LOST = re.compile(r"(?<!powered_)(?<!powering_)down|drain|fail|error|unknown|inval|\*$", re.IGNORECASE)
_GIBIBYTES = {"": 1024.0, "K": 2.0**20, "M": 1024.0, "G": 1.0, "T": 2.0**-10, "P": 2.0**-20}


# Slurm reads options from the environment too, and SBATCH_* beats the #SBATCH lines (man sbatch, INPUT
# ENVIRONMENT VARIABLES): a forgotten export in a login profile would change the request unnoticed. What
# remains of an enclosing job (SLURM_*) goes as well; what names the cluster and the credentials stays.
CLEAN_ENVIRONMENT = r"""
for name in $(env | sed -n -e 's/^\(SBATCH_[A-Za-z0-9_]*\)=.*/\1/p' \
  -e 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p'); do
  case $name in
    SLURM_CONF | SLURM_CONF_SERVER | SLURM_CLUSTERS | SLURM_JWT) ;;
    *) unset "$name" ;;
  esac
done
"""

# Slurm prints times in the zone of the process, so each site's would differ: UTC.
ENVIRONMENT = f"""
TZ=UTC0 SLURM_TIME_FORMAT=standard SLURM_BITSTR_LEN=0; export TZ SLURM_TIME_FORMAT SLURM_BITSTR_LEN
ck_fs='{FIELD_SEPARATOR}'
"""


def partitions(options: str = "") -> str:
    """Returns the command that lists partitions; one name may follow."""
    return " ".join(filter(None, ("scontrol -o", options, "show partition")))


def nodes(options: str, fields: str, separator: str = "|") -> str:
    """Returns the command that lists nodes.

    Args:
        options: sinfo's, which choose the nodes, and whether alike ones share a row.
        fields: sinfo's letters.
        separator: stands between the fields.
    """
    return f'sinfo {options} -o "{separator.join(f"%{letter}" for letter in fields)}"'


# Each architecture with the partitions of its nodes. `sinfo` does not tell it, and a line for each node of a
# large site is much; a node that was never up has none.
_ARCHITECTURE = r"s/.* Arch=\([^ ]*\) .* Partitions=\([^ ]*\).*/\1 \2/p"
NODE_ARCHITECTURES = f"""sh -c 'scontrol -o show node | sed -n "{_ARCHITECTURE}" | sort -u'"""


def names(text: str) -> tuple[str, ...] | None:
    """Returns a list of names; None where it restricts nothing."""
    return None if text in ("", "ALL", "N/A", "(null)") else tuple(filter(None, text.split(",")))


def _known_names(text: str) -> tuple[str, ...]:
    return names(text) or ()


def _yes(text: str) -> bool:
    return text == "YES"


def _number(text: str) -> int:
    match = re.match(r"[0-9]+", text)
    return (ordinal(match[0]) or 0) if match else 0


def _mebibytes(text: str) -> int:
    return _number(text) << 20


def _weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for pair in text.split(","):
        match = re.fullmatch(r"([^=]+)=([0-9.]+)([KMGTP]?)", pair, re.IGNORECASE)
        if match and (weight := decimal(match[2])) is not None:
            name = match[1].lower()
            weights[name] = weight * (_GIBIBYTES[match[3].upper()] if name == "mem" else 1.0)
    return weights


class Column(Generic[T]):
    """A column of a table: Slurm's name of it, and how its text is read."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name, self.read = name, read

    def __get__(self, row: Row, _: type[Row]) -> T:
        return self.read(row.text(self.name))


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    fields: Mapping[str, str]
    """As Slurm prints them."""

    def text(self, field: str) -> str:
        """Returns a field's text; empty if Slurm does not print it."""
        return self.fields.get(field, "")

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Returns the names of the columns in their order."""
        return tuple(column.name for column in vars(cls).values() if isinstance(column, Column))


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


class NodeRow(Row):
    """A node of a partition, or alike ones; the columns are sinfo's letters."""

    partition = Column("R", str)
    name = Column("N", str)
    count = Column("D", _number)
    """How many nodes are alike."""
    state = Column("T", str)
    cpus = Column("c", _number)
    memory = Column("m", _mebibytes)
    gpus = Column("G", node_gpus)
    features = Column("f", _known_names)
    reason = Column("E", str)
    """Why it takes no jobs."""
    author = Column("u", str)
    """Who set the reason."""

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs may start on it, now or when another ends."""
        return not self.state.endswith("*") and not _BUSY.match(self.state)

    @property
    def usable(self) -> bool:
        """Whether it is neither down nor drained; one without power, to save energy, is started for jobs."""
        return not _LOST.search(self.state)


@dataclass(frozen=True)
class Partition(Row):
    """A queue and who may use it."""

    name: str
    nodes: tuple[NodeRow, ...] = ()

    default = Column("Default", _yes)
    """Whether jobs go there that name no partition."""
    state = Column("State", lambda text: text or "UP")
    max_time = Column("MaxTime", parse_time)
    accounts = Column("AllowAccounts", names)
    """The only accounts that may submit; None for all."""
    denied_accounts = Column("DenyAccounts", _known_names)
    groups = Column("AllowGroups", names)
    """The only Unix groups that may submit; None for all."""
    qos = Column("AllowQos", names)
    """The only QOS that may be requested; None for all."""
    denied_qos = Column("DenyQos", _known_names)
    own_qos = Column("QoS", str)
    """The QOS whose limits apply to every job."""
    root_only = Column("RootOnly", _yes)
    cpus_per_node = Column("MaxCPUsPerNode", ordinal)
    """The most CPUs of a node that a job may have."""
    memory_per_node = Column("MaxMemPerNode", _mebibytes)
    """The most memory of a node that a job may have; 0 without a limit."""
    weights = Column("TRESBillingWeights", _weights)
    """Billing units an hour by resource; `mem` per GiB."""

    @property
    def has_gpus(self) -> bool:
        """Whether any of its nodes has a GPU."""
        return any(node.gpus for node in self.nodes)


class Association(Row):
    """An account that the user may charge, as the accounting database has it.

    Like the columns of `Qos`, all that are asked for exist in Slurm 20.11.
    """

    account = Column("Account", str)
    partition = Column("Partition", str)
    """The only partition that it is valid for; empty for all."""
    qos = Column("QOS", _known_names)
    default_qos = Column("DefaultQOS", str)
    max_time = Column("MaxWall", parse_time)
    max_jobs = Column("MaxJobs", ordinal)
    max_submit = Column("MaxSubmit", ordinal)
    """The most jobs in the queue."""
    tres = Column("MaxTRES", str)
    """The most resources of a job."""
    group_tres = Column("GrpTRES", str)


class Qos(Row):
    """A quality of service."""

    name = Column("Name", str)
    max_time = Column("MaxWall", parse_time)
    tres = Column("MaxTRES", str)
    user_tres = Column("MaxTRESPU", str)
    group_tres = Column("GrpTRES", str)
    max_jobs = Column("MaxJobsPU", ordinal)
    max_submit = Column("MaxSubmitPU", ordinal)
    """The most jobs of a user in the queue."""


ASSOCIATIONS = f'sacctmgr -n -P show assoc user="$(id -un)" format={",".join(Association.columns())}'
QOS = f"sacctmgr -n -P show qos format={','.join(Qos.columns())}"


@dataclass(frozen=True)
class SlurmTables:
    """The tables among the sections of an answer; those that are missing are empty."""

    texts: Mapping[str, str]
    """By section: `config`, `partitions`, `nodes`, `architectures`, `associations`, `qos`."""
    node_fields: str = NODES_BY_NAME
    """Sinfo's, as asked."""
    separator: str = "|"
    """Between them."""

    @cached_property
    def config(self) -> Config:
        """The configuration."""
        values = re.findall(r"^(\w+)\s*=(.*)$", self.texts.get("config", ""), re.MULTILINE)
        return Config({name: value.strip(" ") for name, value in values})

    @cached_property
    def partitions(self) -> dict[str, Partition]:
        """The partitions by name, with their nodes; those that sinfo alone knows are the last."""
        nodes: dict[str, list[NodeRow]] = {}
        for node in self.nodes:
            nodes.setdefault(node.partition, []).append(node)
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
    def architectures(self) -> dict[str, str]:
        """The architecture of the nodes of each partition; "any" where they differ."""
        found: dict[str, set[str]] = {}
        for line in self.texts.get("architectures", "").splitlines():
            arch, _, partitions = line.strip().partition(" ")
            for name in partitions.split(","):
                found.setdefault(name, set()).add(arch if arch in ARCHITECTURES else "any")
        return {name: kinds.pop() if len(kinds) == 1 else "any" for name, kinds in found.items()}

    @cached_property
    def nodes(self) -> tuple[NodeRow, ...]:
        """The nodes."""
        return tuple(map(NodeRow, self._rows("nodes", self.node_fields, self.separator)))

    @cached_property
    def associations(self) -> tuple[Association, ...]:
        """The user's associations."""
        return tuple(map(Association, self._rows("associations", Association.columns())))

    @cached_property
    def qos(self) -> dict[str, Qos]:
        """The QOS by name."""
        return {row.name: row for row in map(Qos, self._rows("qos", Qos.columns()))}

    def _rows(self, section: str, fields: Sequence[str], separator: str = "|") -> list[dict[str, str]]:
        """Returns the lines of a section that are rows; the last field may hold any text."""
        rows = (line.split(separator, len(fields) - 1) for line in self.texts.get(section, "").splitlines())
        return [
            dict(zip(fields, map(str.strip, row), strict=True)) for row in rows if len(row) == len(fields)
        ]
