"""`clusterkit work pull`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, DryRunOption
from clusterkit.cli.ui.work import DeleteOption, SessionArgument, run_exchange


def work_pull(
    name: SessionArgument = None,
    delete: DeleteOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace files here that both sides have changed.")
    ] = False,
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
) -> None:
    """Bring home files that have changed in a live session.

    It also works after the session has ended. A file that both sides have changed since the last exchange
    stays as it is, and the exit code is 8.
    """
    run_exchange("pull", name, delete=delete, force=force, dry_run=dry_run, config=config)
