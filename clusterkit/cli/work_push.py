"""`clusterkit work push`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, DryRunOption
from clusterkit.cli.ui.work import DeleteOption, SessionArgument, run_exchange


def work_push(
    name: SessionArgument = None,
    delete: DeleteOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace files there that both sides have changed.")
    ] = False,
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
) -> None:
    """Send files that have changed here to a live session.

    Only files that a snapshot would contain are sent. A file that both sides have changed since the last
    exchange stays as it is, and the exit code is 8.
    """
    run_exchange("push", name, delete=delete, force=force, dry_run=dry_run, config=config)
