"""`clusterkit config` and `clusterkit profiles`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command("config")(config)
    app.command("profiles")(profiles)


def config(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Only what lies below this key, e.g. profiles.a40-2m.")
    ] = "",
    show_origin: Annotated[
        bool, typer.Option("--show-origin", help="Say of each value where it was written.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With the profiles that are just as shipped.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Print the resolved settings, as TOML."""
    from clusterkit.cli.ui.config import show_config

    show_config(load(config), under=key, everything=everything, show_origin=show_origin)


def profiles(config: ConfigOption = None) -> None:
    """List the profiles; * marks the default one."""
    from clusterkit.cli.ui.config import show_profiles

    show_profiles(load(config))
