"""`clusterkit forward`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunArgument, load, open_ledger
from clusterkit.cli.ui.console import note, say, warn

if TYPE_CHECKING:
    from clusterkit.interactive.inside import Inside


def forward(
    name: RunArgument,
    ports: Annotated[
        list[str],
        typer.Argument(
            metavar="PORT",
            help="A port of the program; LOCAL:PORT for another one here, :PORT for a free one.",
        ),
    ],
    config: ConfigOption = None,
) -> None:
    """Reach ports of a running program on this machine.

    They are those of the node's loopback, and open on this machine's loopback only, until Ctrl-C or the job's
    end.
    """
    from clusterkit.commands.forward import forward as command
    from clusterkit.commands.forward import listening, parse_ports

    settings = load(config)
    wanted = [parse_ports(text) for text in ports]
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        run = ledger.find_one(name)
    said: set[str] = set()

    def on_ready(place: Inside, again: bool) -> None:
        if again:
            note("the connection was lost; logged in again")
            return
        for one in listeners:
            node = place.state.node or "the node"
            say(f"http://127.0.0.1:{one.local}  is port {one.ports.remote} of {node}, {run.run_id}")
        note("Ctrl-C ends it")

    def on_refused(why: str) -> None:
        if why not in said:  # browsers try again and again
            said.add(why)
            warn("a connection was refused:", f" {why}")

    with listening(wanted) as listeners:
        state = command(settings, run, listeners, on_ready=on_ready, on_refused=on_refused)
    note(
        f"{run.run_id} {'has ended as' if state.final else 'is'} {state.state}: nothing is forwarded any more"
    )
