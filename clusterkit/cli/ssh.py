"""`clusterkit ssh` and `clusterkit ssh-config`."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit import folders
from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.shell import ShellCommand
from clusterkit.errors import ClusterkitError, ConfigError, RunError, last_words
from clusterkit.interactive.node_sshd import sshd_argv, sshd_input
from clusterkit.project import load, open_ledger

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.interactive.relayed import Relayed
    from clusterkit.runs.ledger import LedgerRun


COMMAND = ShellCommand


def ssh(
    name: options.Run = "last",
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="After `--`: run this command instead of a shell."),
    ] = None,
    stdio: Annotated[bool, typer.Option("--stdio", hidden=True)] = False,
    config: options.Config = None,
) -> None:
    """Open ssh to the job and container of a running program.

    It uses this machine's ssh, and an sshd that runs as you inside the job and listens on nothing.

    Examples:
      clusterkit ssh last                   # a shell
      clusterkit ssh last -- nvidia-smi -L  # one command

    See also: clusterkit ssh-config, clusterkit shell, interactive.md
    """
    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        run = ledger.find_one(name)
    if stdio:
        serve_stdio(settings, run)
        return
    argv = ssh_argv(settings, run, config, command or ())
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is needed
    except FileNotFoundError:
        raise ConfigError(
            "this machine has no ssh",
            hint="install OpenSSH's client: apt install openssh-client, dnf install openssh-clients",
        ) from None


def ssh_config(name: options.Run = "last", config: options.Config = None) -> None:
    """Print the ssh configuration of a running program's job.

    With it, ssh, rsync, sftp and editors reach the job by the run's id, until the run ends.

    Examples:
      clusterkit ssh-config       # of the newest run
      clusterkit ssh-config last  # for a file that ~/.ssh/config includes

    See also: clusterkit ssh, interactive.md
    """
    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        run = ledger.find_one(name)
    sys.stdout.write(host_entry(settings, run, config))


_CHUNK = 1 << 16
_OURS = "[clusterkit] "
_LAST_SECONDS = 30.0
"""How long the node may send on once our client has ended; a node that says nothing never ends by itself."""


def host_entry(settings: Settings, run: LedgerRun, config: Path | None) -> str:
    """Returns an ssh_config(5) entry for a run, and makes its keys. Needs no connection.

    Args:
        settings: of the project.
        run: a run that has not ended, by its last known state.
        config: the settings file that the user named.

    Raises:
        RunError: it has ended.
        ConfigError: ssh is not installed here.
    """
    from clusterkit.interactive.ssh_keys import keys_of

    state = JobState(run.state)
    if not state.active and state is not JobState.UNKNOWN:
        raise RunError(
            f"{run.run_id} has ended as {run.state}",
            hint="`clusterkit dev` asks for a job to work in",
        )
    keys = keys_of(_home(settings), run.run_id)
    again = [sys.executable, "-P", "-m", "clusterkit", "ssh", "--stdio", run.run_id]
    again += ["--config", str(config.absolute())] if config else []
    proxy = f"cd {shlex.quote(str(settings.project_dir))} && exec {shlex.join(again)}"
    lines = [
        f"Host {run.run_id}",
        f"  HostName {run.run_id}",
        f"  User {_user(settings.cluster(run.cluster))}",
        f"  ProxyCommand {shlex.join(['sh', '-c', proxy]).replace('%', '%%')}",
        f"  IdentityFile {_quoted(keys.identity)}",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {_quoted(keys.known_hosts)}",
        f"  HostKeyAlias {run.run_id}",
        "  StrictHostKeyChecking yes",
        "",
    ]
    return "\n".join(lines)


def ssh_argv(settings: Settings, run: LedgerRun, config: Path | None, command: Sequence[str]) -> list[str]:
    """Returns the argv of OpenSSH's client for a run; its entry is written beside the keys.

    The command's words are ssh's own: it joins them with blanks, for the shell there to read.

    Raises:
        RunError, ConfigError: as `host_entry`; or the command shows a secret's value.
    """
    from clusterkit.interactive.ssh_keys import keys_of
    from clusterkit.runs.secret_values import values_at_hand

    values_at_hand(settings).refuse_shown(command=command)
    entry = host_entry(settings, run, config)
    file = keys_of(_home(settings), run.run_id).folder / "config"
    folders.replace_file(file, entry.encode("utf-8", "surrogateescape"), mode=0o600)
    return ["ssh", "-F", str(file), run.run_id, *(["--", *command] if command else [])]


def serve_stdio(settings: Settings, run: LedgerRun) -> None:
    """Carries one ssh connection on standard input and output to an sshd inside the run's job, until it ends.

    Raises:
        RunError: the run is not running, or its node cannot serve ssh.
        TransportError: the cluster cannot be reached, or the connection was lost.
    """
    from clusterkit.interactive.inside import EndedError, inside
    from clusterkit.interactive.relayed import relayed
    from clusterkit.interactive.ssh_keys import forget, keys_of

    home, refused = _home(settings), list[str]()
    try:
        with inside(settings, run) as place:
            keys = keys_of(home, run.run_id)
            prelude = sshd_input(place, keys.host_key, keys.public_key)
            argv = partial(sshd_argv, place)
            with relayed(place, argv, prelude=prelude, on_refused=refused.append) as relaying:
                served = _carry(relaying)
    except EndedError:
        forget(home, run.run_id)
        raise
    if not served:
        raise RunError(
            f"ssh cannot enter {run.run_id}: {refused[0] if refused else _reason(relaying.said)}",
            hint=f"`clusterkit shell {run.run_id}` needs neither sshd nor Python on the node",
        )


def _carry(relaying: Relayed) -> bool:
    """Carries standard input and output; returns whether an sshd has said anything.

    Raises:
        RunError, TransportError: as `Relayed.serve`.
    """
    here, there = socket.socketpair()
    failed, served = list[ClusterkitError](), False

    def serve() -> None:
        try:
            relaying.serve()
        except ClusterkitError as error:
            failed.append(error)
        finally:
            relaying.relay.close()

    def pass_up() -> None:
        with suppress(OSError):  # the connection has ended
            while data := os.read(0, _CHUNK):
                here.sendall(data)
            here.shutdown(socket.SHUT_WR)
            time.sleep(_LAST_SECONDS)
            here.shutdown(socket.SHUT_RD)

    relaying.connect(1, there)
    for work in (serve, pass_up):
        threading.Thread(target=work, daemon=True).start()
    with here, suppress(BrokenPipeError):  # the client has ended
        while data := here.recv(_CHUNK):
            served = True
            left = memoryview(data)
            while left:
                left = left[os.write(1, left) :]
    if failed:
        raise failed[0]
    return served


def _reason(said: str) -> str:
    """Returns the line of clusterkit's own script, or else what the step's starter has said."""
    own = [line.removeprefix(_OURS) for line in said.splitlines() if line.startswith(_OURS)]
    return last_words(own[-1] if own else said)


def _home(settings: Settings) -> Path:
    return settings.project_dir / ".clusterkit"


def _user(cluster: Cluster) -> str:
    """Returns the user's name on a cluster, which is the only one that an sshd of the user's own lets in."""
    if cluster.host is None:
        return folders.user_name()
    from clusterkit.transport.resolve import resolve

    return resolve(cluster.host, config=cluster.login_config).user


def _quoted(path: Path) -> str:
    """Returns a path as an argument in ssh_config(5)."""
    return '"{}"'.format(str(path).replace("%", "%%"))
