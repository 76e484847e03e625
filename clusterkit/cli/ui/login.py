"""What login and logout say."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.cli.ui.console import out
from clusterkit.commands.login import LoggedIn
from clusterkit.units import format_duration


def show_login(done: LoggedIn) -> None:
    """One line: where to, until when, and how it ends."""
    state = "logged in" if done.new else "already logged in"
    out.print(
        f"{done.cluster} ({done.host}): {state}; kept until {format_duration(done.seconds)} pass without a "
        f"command, or `clusterkit logout {done.cluster}`",
        markup=False,
        soft_wrap=True,
    )


def show_logout(hosts: Sequence[str]) -> None:
    """One line a login that was ended."""
    for host in hosts:
        out.print(f"{host}: logged out", markup=False, soft_wrap=True)
    if not hosts:
        out.print("no login was kept", markup=False)
