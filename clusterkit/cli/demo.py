"""`clusterkit demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import ConfigOption, load, open_ledger

if TYPE_CHECKING:
    from clusterkit.runs.pipeline import Submitted


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(demo)


def demo(
    profile: Annotated[
        str, typer.Option("--profile", "-p", metavar="PROFILE", help="What to run.")
    ] = "local-demo",
    config: ConfigOption = None,
) -> None:
    """Train a small run here, start to finish.

    Four real Meta-World tasks through the whole product: submit, watch, sync, report.
    """
    from clusterkit.cli.ui.demo import live_row, show_demonstrated, show_left
    from clusterkit.cli.ui.progress import transfer_bar
    from clusterkit.cli.ui.submit import show_submitted
    from clusterkit.commands.demo import demo as verb

    settings = load(config)
    run_ids: list[str] = []

    def on_submit(submitted: Submitted) -> None:
        run_ids.append(submitted.runs[0].run_id)
        show_submitted(submitted)

    try:
        with open_ledger(settings) as ledger, live_row() as on_row:
            done = verb(
                settings, ledger, profile=profile, bar=transfer_bar, on_submit=on_submit, on_row=on_row
            )
    except KeyboardInterrupt:
        for run_id in run_ids:
            show_left(run_id)
        raise
    show_demonstrated(done)
