"""`clusterkit ssh-config`."""

from __future__ import annotations

import sys

from clusterkit.cli.common import ConfigOption, RunArgument, load, open_ledger


def ssh_config(name: RunArgument = "last", config: ConfigOption = None) -> None:
    """Print the ssh configuration of a running program's job.

    With it, ssh, rsync, sftp and editors reach the job by the run's id, until the run ends.
    """
    from clusterkit.commands.ssh import host_entry

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        run = ledger.find_one(name)
    sys.stdout.write(host_entry(settings, run, config))
