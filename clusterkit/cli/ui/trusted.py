"""Says whom the settings trust to run code as the user."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.cli.ui import console


def warn_of_trusted(trusted: Sequence[str]) -> None:
    """One line; none without such users."""
    if trusted:
        from rich.text import Text

        more = f" (and {len(trusted) - 1} more)" if len(trusted) > 1 else ""
        lead = ("others could run code as you there", "yellow")
        console.err.print(
            Text.assemble(lead, f", whom the settings trust: {trusted[0]}{more}"), soft_wrap=True
        )
