"""`clusterkit ssh`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunArgument, load, open_ledger
from clusterkit.cli.shell import ShellCommand
from clusterkit.errors import ConfigError

COMMAND = ShellCommand


def ssh(
    name: RunArgument = "last",
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="After `--`: run this command instead of a shell."),
    ] = None,
    stdio: Annotated[bool, typer.Option("--stdio", hidden=True)] = False,
    config: ConfigOption = None,
) -> None:
    """Open ssh to the job and container of a running program.

    It uses this machine's ssh, and an sshd that runs as you inside the job and listens on nothing.
    """
    from clusterkit.commands.ssh import serve_stdio, ssh_argv

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
