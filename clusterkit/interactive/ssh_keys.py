"""The keys with which ssh enters a run's job: made on this machine for one run, and removed with its end."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ConfigError
from clusterkit.folders import make_private
from clusterkit.runs.ledger import LedgerRun
from clusterkit.untrusted import RECORD_BYTES, read_limited

_FOLDER = "ssh"
_OURS, _HOSTS = "id", "host"


@dataclass(frozen=True)
class RunKeys:
    """The key pairs of one run, in a private folder."""

    folder: Path

    @property
    def identity(self) -> Path:
        """The private key that may log in."""
        return self.folder / _OURS

    @property
    def known_hosts(self) -> Path:
        """The file with the host's public key, under the run's id."""
        return self.folder / "known_hosts"

    @property
    def host_key(self) -> bytes:
        """The private key that the node's sshd gets."""
        return (self.folder / _HOSTS).read_bytes()

    @property
    def public_key(self) -> bytes:
        """The public key that may log in."""
        return self.identity.with_suffix(".pub").read_bytes()


def keys_of(home: Path, run_id: str) -> RunKeys:
    """Returns a run's keys; makes them if there are none, or if a power loss has cut their files.

    Args:
        home: the project's `.clusterkit`.
        run_id: the run.

    Raises:
        ConfigError: this machine has no ssh-keygen.
        OSError: they cannot be written.
    """
    keys = RunKeys(home / _FOLDER / run_id)
    if keys.folder.is_dir():
        if _are_whole(keys):
            return keys
        shutil.rmtree(keys.folder)
    make_private(keys.folder.parent)
    made = Path(tempfile.mkdtemp(prefix=".", dir=keys.folder.parent))
    try:
        for name in (_OURS, _HOSTS):
            # Elliptic curves of NIST: the kind of key that also a machine in FIPS mode takes.
            kind = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "256", "-N", "", "-C", run_id]
            subprocess.run([*kind, "-f", str(made / name)], check=True, stdin=subprocess.DEVNULL)
        (made / "known_hosts").write_text(f"{run_id} {(made / _HOSTS).with_suffix('.pub').read_text()}")
        with contextlib.suppress(OSError):  # another command was quicker
            made.rename(keys.folder)
    except FileNotFoundError:
        raise ConfigError(
            "this machine has no ssh-keygen",
            hint="install OpenSSH's client: apt install openssh-client, dnf install openssh-clients",
        ) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return keys


def _are_whole(keys: RunKeys) -> bool:
    names = (_OURS, f"{_OURS}.pub", _HOSTS, f"{_HOSTS}.pub", "known_hosts")
    texts = [read_limited(keys.folder / name, RECORD_BYTES) or b"" for name in names]
    return all(text.endswith(b"\n") and text.isascii() for text in texts)


def forget(home: Path, run_id: str) -> None:
    """Removes a run's keys, and the folder of all keys once it is empty."""
    shutil.rmtree(home / _FOLDER / run_id, ignore_errors=True)
    with contextlib.suppress(OSError):
        (home / _FOLDER).rmdir()


def forget_ended(home: Path, runs: Iterable[LedgerRun]) -> None:
    """Removes the keys of these runs that have ended, by their last known states."""
    for run in runs:
        state = JobState(run.state)
        if not state.active and state is not JobState.UNKNOWN and (home / _FOLDER / run.run_id).is_dir():
            forget(home, run.run_id)
