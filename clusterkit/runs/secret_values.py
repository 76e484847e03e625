"""Finds the values of secrets on this machine, hands them over encrypted, and removes them after their run.

A value comes from the environment, a command or the keyring. A run's values lie encrypted in a folder of
their own in the work root, `secrets/<run id>.<random>/`, and the key in request.json of the run's submission:
a copy of either alone shows nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import posixpath
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.backends.jobs import JobState
from clusterkit.config.notify import kind_of, url_fault
from clusterkit.errors import ConfigError, last_words
from clusterkit.folders import home_or_root
from clusterkit.resources import NODE_PROGRAMS
from clusterkit.runs.ledger import Ledger
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, SecretsTable
    from clusterkit.config.notify import Notify
    from clusterkit.config.settings import Settings
    from clusterkit.config.values import LocalProgram

KEYRING_SERVICE = "clusterkit"
_SHORTEST = 8
"""Characters; the mask of a shorter value would hide ordinary words in logs."""
_LONGEST = 16 << 10
_COMMAND_SECONDS = 120.0
"""A password manager may have to ask for its own password."""
FOLDER = "secrets"
_MAY_START_AGAIN = frozenset({JobState.UNKNOWN, JobState.NODE_FAIL, JobState.PREEMPTED})


@dataclass(frozen=True)
class SecretValues:
    """What a job gets and nobody else may see."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values by the name of the environment variable."""
    webhook: Mapping[str, Any] | None = field(default=None, repr=False)
    """`url`, `kind` and `on` of the webhook that a job tells of its end; None if it tells nobody."""

    @property
    def all_values(self) -> dict[str, str]:
        """Everything that may not be shown, by its name in a message."""
        webhook = {"the webhook's address": str(self.webhook["url"])} if self.webhook else {}
        return {**self.values, **webhook}

    def refuse_shown(self, **shown: object) -> None:
        """Checks all texts in some objects: plans, settings, command lines.

        Args:
            shown: dataclasses, settings, mappings, sequences and texts, by what they are.

        Raises:
            ConfigError: one contains a value, as it is or in another form.
        """
        if self.all_values:
            from clusterkit.runs.shown import refuse_shown  # most projects have no secrets

            refuse_shown(self.all_values, shown)

    def refuse_in_files(self, root: Path, names: Iterable[str]) -> None:
        """Checks files and links that would be sent: their names and contents.

        Args:
            root: the folder of the files.
            names: relative to it.

        Raises:
            ConfigError: one contains a value, as it is or in another form.
            OSError: one cannot be read.
        """
        if self.all_values:
            from clusterkit.runs.shown import refuse_in_files

            refuse_in_files(self.all_values, root, names)

    def masked(self, text: str) -> str:
        """Returns a text with the values masked."""
        if not self.all_values:
            return text
        from clusterkit.runs.shown import masked

        return masked(self.all_values, text)


def find_secrets(settings: Settings) -> SecretValues:
    """Finds all values on this machine.

    Raises:
        ConfigError: a value is found nowhere, its command is not allowed or failed, or it is too short or too
            long; or the webhook's address is not one.
    """
    values = find_values(settings.secrets, os.environ)
    return SecretValues(values, _webhook(settings.notify) if settings.notify.from_job else None)


def values_at_hand(settings: Settings) -> SecretValues:
    """Returns the values that are known without asking anybody: those in the environment."""
    known = {name: os.environ.get(name, "") for name in settings.secrets.names}
    return SecretValues({name: value for name, value in known.items() if len(value) >= _SHORTEST})


def find_values(table: SecretsTable, environment: Mapping[str, str]) -> dict[str, str]:
    """Finds the programs' secrets: the environment wins over the command, and both over the keyring.

    Raises:
        ConfigError: a value is found nowhere, its command is not allowed or failed, or it is too short or too
            long.
    """
    found = {}
    for name in table.names:
        value, trouble = environment.get(name) or _printed(f"secret {name}", table.commands.get(name)), ""
        if not value:
            value, trouble = _kept(name)
        if not value:
            raise ConfigError(
                f"the secret {name} has no value on this machine{trouble}",
                hint=f"set it in the environment, or with `keyring set {KEYRING_SERVICE} {name}`",
            )
        if not _SHORTEST <= len(value) <= _LONGEST:
            raise ConfigError(
                f"the secret {name} has {len(value)} characters, and must have {_SHORTEST} to {_LONGEST}",
                hint="shorter ones could not be masked in logs without hiding ordinary words",
            )
        if "\0" in value:
            raise ConfigError(f"the secret {name} contains a NUL, which an environment variable cannot")
        found[name] = value
    return found


def _webhook(notify: Notify) -> dict[str, Any]:
    url = notify.webhook or _printed("webhook", notify.webhook_command)
    if fault := url_fault(url):
        raise ConfigError(f"what webhook_command of [notify] printed {fault}", hint="correct it")
    kind = notify.webhook_kind or kind_of(url)
    if kind is None:
        raise ConfigError("the webhook's host does not tell what it expects", hint="set notify.webhook_kind")
    return {"url": url, "kind": kind, "on": list(notify.on)}


def _printed(whose: str, program: LocalProgram | None) -> str:
    """Returns what a command prints, without the line break at its end; empty without a command."""
    if program is None:
        return ""
    argv = program.allowed()
    hint = f"`{shlex.join(argv)}` must print the value alone"
    try:
        done = subprocess.run(
            argv, cwd=program.folder, stdout=subprocess.PIPE, timeout=_COMMAND_SECONDS, check=False
        )
    except OSError as error:
        cause = f"the command of the {whose} cannot be run: {error.strerror}"
        raise ConfigError(cause, hint=hint) from None
    except subprocess.TimeoutExpired:
        cause = f"the command of the {whose} has not ended within {_COMMAND_SECONDS:.0f} s"
        raise ConfigError(cause, hint=hint) from None
    if done.returncode != 0:
        raise ConfigError(f"the command of the {whose} ended with {done.returncode}", hint=hint)
    try:
        return done.stdout.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"the command of the {whose} printed no text", hint=hint) from None


def _kept(name: str) -> tuple[str, str]:
    """Returns the value that the keyring's own program prints; else why it failed, if it did."""
    if importlib.util.find_spec("keyring") is not None:
        start = [sys.executable, "-P", "-m", "keyring"]  # -P: the current folder's files are not modules
    elif found := shutil.which("keyring"):
        start = [found]
    else:
        return "", ""
    argv = [*start, "get", KEYRING_SERVICE, name]
    done = subprocess.run(argv, cwd=home_or_root(), capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout.decode(errors="replace").removesuffix("\n"), ""
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]  # a traceback's last line
    return "", f"; the keyring said: {last_words(said, 400)}" if said else ""


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
            f"{self.folder}/with_secrets.py": (NODE_PROGRAMS / "with_secrets.py").read_bytes(),
        }
        return (
            {**files, f"{self.folder}/webhook.py": (NODE_PROGRAMS / "webhook.py").read_bytes()}
            if self.tells
            else files
        )


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
    from clusterkit.node.with_secrets import crypt

    key = secrets.token_bytes(32)
    text = json.dumps({"environment": dict(found.values), "webhook": told}).encode()
    folder = f"{FOLDER}/{run_id}.{secrets.token_hex(4)}"
    return Sealed(folder, key.hex(), tuple(found.values), told is not None, crypt(key, text))


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
