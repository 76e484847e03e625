"""Hands secrets over encrypted, and removes them when their run has ended.

A run's values lie encrypted in a folder of their own in the work root, `secrets/<run id>.<random>/`, and the
key in request.json of the run's submission: a copy of either alone shows nothing.
"""

from __future__ import annotations

import json
import posixpath
import secrets
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.node import node_program
from clusterkit.node.with_secrets import crypt
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.secret_values import SecretValues
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

FOLDER = "secrets"
_MAY_START_AGAIN = frozenset({JobState.UNKNOWN, JobState.NODE_FAIL, JobState.PREEMPTED})


@dataclass(frozen=True)
class Sealed:
    """The encrypted secrets of one submission."""

    folder: str
    """Their folder, relative to the work root."""
    key: str
    """The key, in hexadecimal."""
    names: tuple[str, ...]
    """The environment variables."""
    tells: bool
    """Whether the job tells a webhook of its end."""
    content: bytes = field(repr=False)

    @property
    def files(self) -> dict[str, bytes | str]:
        """The values and the programs that use them, by path in the work root."""
        files: dict[str, bytes | str] = {
            f"{self.folder}/values": self.content,
            f"{self.folder}/with_secrets.py": node_program("with_secrets.py"),
        }
        return {**files, f"{self.folder}/webhook.py": node_program("webhook.py")} if self.tells else files


def seal(found: SecretValues, run_id: str, *, alone: bool) -> Sealed | None:
    """Encrypts the secrets of a run with a new key; None if there are none.

    Args:
        found: the secrets.
        run_id: the run.
        alone: whether it is in no group; of a group the laptop tells, which knows all of its runs.
    """
    told = found.webhook if alone else None
    if not found.values and told is None:
        return None
    key = secrets.token_bytes(32)
    text = json.dumps({"environment": dict(found.values), "webhook": told}).encode()
    folder = f"{FOLDER}/{run_id}.{secrets.token_hex(4)}"
    return Sealed(folder, key.hex(), tuple(found.values), told is not None, crypt(key, text))


def folders_of(paths: Iterable[str]) -> list[str]:
    """Returns the folders of secrets among the paths of a submission's files."""
    return list(dict.fromkeys(posixpath.dirname(path) for path in paths if path.startswith(f"{FOLDER}/")))


def run_of(folder: str) -> str:
    """Returns the id of the run whose secrets a folder holds.

    >>> run_of("/share/secrets/a40-2m-20260102-030405-k3f9.0a1b2c3d")
    'a40-2m-20260102-030405-k3f9'
    """
    return posixpath.basename(folder).rpartition(".")[0]


def forget_secrets(cluster: Cluster, transport: Transport, ledger: Ledger) -> None:
    """Removes the secrets of runs that have ended from a cluster; no round trip if there are none.

    A job removes its own when it ends. This is for those that were killed, or cancelled before their start.
    Secrets stay while Slurm may start the job again.

    Raises:
        TransportError: the cluster did not answer; the next call tries again.
    """
    gone = [folder for folder in ledger.secrets(cluster.name) if _over(ledger, run_of(folder))]
    if not gone:
        return
    done = transport.run(["sh"], stdin=f"exec rm -rf -- {shlex.join(gone)}\n".encode(), check=False)
    if done.returncode == 0:
        ledger.remove_secrets(gone)


def _over(ledger: Ledger, run_id: str) -> bool:
    run = ledger.get(run_id)
    if run is None:
        return True
    state = JobState(run.state)
    return not state.active and state not in _MAY_START_AGAIN
