"""Telling of ended runs, for the commands that learn of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.cli.ui.console import warn

if TYPE_CHECKING:
    from clusterkit.commands.notify import Notifier
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.runs.status import Ended


class Notices:
    """Sends notices if the settings ask for any, and prints those that did not arrive."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._notifier: Notifier | None = None
        if settings.notify.from_here:
            from clusterkit.commands.notify import Notifier

            self._notifier = Notifier(settings, ledger)

    @property
    def ended(self) -> Ended | None:
        """To be called with the runs that have ended."""
        return self._notifier.tell if self._notifier else None

    def foot(self) -> str:
        """The newest fault, for a live view; empty without one."""
        return self._notifier.faults[-1] if self._notifier and self._notifier.faults else ""

    def show_faults(self) -> None:
        """Prints a line for each notice that did not arrive."""
        for fault in self._notifier.faults if self._notifier else ():
            warn(fault)
