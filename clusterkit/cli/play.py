"""`clusterkit play`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.common import (
    CheckpointOption,
    ConfigOption,
    EnvironmentOption,
    EpisodesOption,
    ModelArgument,
    load,
    open_ledger,
)


def play(
    name: ModelArgument = "last",
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", metavar="TASK", help="Only this task; can be repeated."),
    ] = None,
    checkpoint: CheckpointOption = "last",
    episodes: EpisodesOption = 1,
    size: Annotated[
        int, typer.Option(metavar="PIXELS", min=64, help="Width and height of the video in pixels.")
    ] = 320,
    environment: EnvironmentOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to write the videos to.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Film a synced model, task by task.

    Runs on this machine and needs the trainer's packages, the extra `train` of clusterkit-rl.
    """
    from clusterkit.cli.ui.model import show_choice, show_films
    from clusterkit.commands.model import choose_model
    from clusterkit.commands.model import play as command

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        model = choose_model(settings, ledger, name, checkpoint, environment)
    show_choice(model)
    folder = out or model.home / "videos"
    show_films(command(model, tasks or (), folder, episodes=episodes, size=size))
