"""Answers of login nodes and nodes as the scripts print them, for the judges."""

from __future__ import annotations

from clusterkit.backends.checks import Answer, parse_answer
from clusterkit.checkup.login import Login
from clusterkit.config.models import Cluster
from clusterkit.probes import MARK

PARTITIONS = """
PartitionName=gpu AllowAccounts=ALL Default=YES MaxTime=1-00:00:00 State=UP
PartitionName=lab AllowAccounts=lab,other AllowQos=normal Default=NO MaxTime=UNLIMITED State=UP
PartitionName=old AllowAccounts=ALL Default=NO MaxTime=04:00:00 State=DRAIN
PartitionName=sick AllowAccounts=ALL Default=NO MaxTime=04:00:00 State=UP
"""
NODES = """
gpu|g1|mixed|16|128000|gpu:a40:4(S:0-1)|none
gpu|g2|drained*|64|512000|gpu:a40:8|ECC errors
lab|l1|idle|8|64000|gpu:2|none
sick|s1|down*|8|64000|gpu:a40:2|power|supply
"""
ASSOCIATIONS = "students||normal,short||||||\nlab|lab|normal||||||\n"
QOS = "normal||||||\nshort||||||\ngold||||||\n"
ENFORCED = "AccountingStorageEnforce = associations,limits,qos,safe\n"


def answer(**parts: tuple[int, str]) -> Answer:
    """Parts with their exit statuses; `_` in a name is a blank or a dash."""
    text = "".join(
        f"\n{MARK} begin {name.replace('__', ' ').replace('_', '-')}\n{said}\n{MARK} status {status}\n"
        for name, (status, said) in parts.items()
    )
    return parse_answer(f"noise\n{text}\n{MARK} end\n")


def slurm_answer(**more: tuple[int, str]) -> Answer:
    """Of a site with Slurm."""
    parts = {
        "slurm": (0, ""),
        "version": (0, "slurm 24.11.5"),
        "queue": (0, "1\n2"),
        "sacct": (0, ""),
        "partitions": (0, PARTITIONS),
        "nodes": (0, NODES),
        "config": (0, ENFORCED),
        "associations": (0, ASSOCIATIONS),
        "qos": (0, QOS),
    }
    return answer(**(parts | more))


def login(found: Answer, **cluster: object) -> Login:
    """A login node that said so."""
    settings = {"name": "uni", "host": "uni", "root": "/share/me", **cluster}
    return Login(Cluster.model_validate(settings), found, 1000.0)
