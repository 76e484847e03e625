"""Telling of ended runs, for the commands that learn of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.cli.ui.console import warn

if TYPE_CHECKING:
    from clusterkit.commands.notify import Teller
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.runs.status import Ended


class Notices:
    """Sends notices if the settings ask for any, and prints those that did not arrive."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._teller: Teller | None = None
        if settings.notify.from_here:
            from clusterkit.commands.notify import Teller

            self._teller = Teller(settings, ledger)

    @property
    def ended(self) -> Ended | None:
        """To be called with the runs that have ended."""
        return self._teller.tell if self._teller else None

    def foot(self) -> str:
        """The newest fault, for a live view; empty without one."""
        return self._teller.faults[-1] if self._teller and self._teller.faults else ""

    def show_faults(self) -> None:
        """Prints a line for each notice that did not arrive."""
        for fault in self._teller.faults if self._teller else ():
            warn(fault)
