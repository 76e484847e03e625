"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.ledger import Ledger
    from clusterkit.snapshots import Allow

_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="clusterkit.toml to use instead of the nearest one upwards."
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", "-c", metavar="NAME", help="Cluster to use instead of the default one."),
]
RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN", help="Run ids, beginnings of them, job ids, or `last`."),
]
SendLargeOption = Annotated[
    bool, typer.Option("--send-large", help="Let files over `max_file_size` travel without asking.")
]


def load(config: Path | None) -> Settings:
    """The settings of this project."""
    with _without_plugins():
        from clusterkit.config.load import load_settings

    return load_settings(config=config)


@contextmanager
def _without_plugins() -> Iterator[None]:
    """Define pydantic models inside without a look through all installed packages for plugins of pydantic."""
    before = os.environ.get(_NO_PLUGINS)
    os.environ[_NO_PLUGINS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_PLUGINS]  # for the user's own programs, which inherit the environment
        else:
            os.environ[_NO_PLUGINS] = before


def open_ledger(settings: Settings) -> Ledger:
    """This project's ledger."""
    from clusterkit.ledger import Ledger

    return Ledger(settings.project_dir / ".clusterkit" / "ledger.sqlite3")


def large_files(send: bool) -> Allow | None:
    """What answers for files over the size limit: the option, the person at the terminal, or nobody."""
    if send:
        return lambda _files, _limit: True

    from clusterkit.ui.deploy import ask_about_large

    return ask_about_large if sys.stdin.isatty() and sys.stderr.isatty() else None
