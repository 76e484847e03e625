"""`clusterkit evaluate` and `clusterkit play`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load, open_ledger

_Model = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run that was synced, a folder with one, or the path of a checkpoint or model."
    ),
]
_Checkpoint = Annotated[
    str, typer.Option(metavar="best|last|NAME", help="Which checkpoint of the run; a path will do, too.")
]
_Environment = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:ID",
        help="What it was trained in, if that module is your own but neither installed nor tracked by git.",
    ),
]


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(evaluate)
    app.command()(play)


def evaluate(
    name: _Model = "last",
    checkpoint: _Checkpoint = "last",
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", metavar="N", min=1, help="Episodes per task.")
    ] = 50,
    environment: _Environment = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Measure a synced model's success rates, or returns, here.

    Needs the trainer's packages: pip install 'clusterkit[train]'.
    """
    from clusterkit.cli.ui.model import print_json, show_choice, show_evaluated, working
    from clusterkit.commands.model import choose_model
    from clusterkit.commands.model import evaluate as verb

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        model = choose_model(settings, ledger, name, checkpoint, environment)
    show_choice(model)
    with working(f"{episodes} episodes of each task"):
        evaluated = verb(model, episodes)
    (print_json if as_json else show_evaluated)(evaluated)


def play(
    name: _Model = "last",
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", metavar="TASK", help="Only this task; may be given several times."),
    ] = None,
    checkpoint: _Checkpoint = "last",
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", metavar="N", min=1, help="Episodes per task.")
    ] = 1,
    size: Annotated[
        int, typer.Option(metavar="PIXELS", min=64, help="Width and height of the picture in pixels.")
    ] = 320,
    environment: _Environment = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where the videos go.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Film a synced model here, task by task.

    Needs the trainer's packages: pip install 'clusterkit[train]'.
    """
    from clusterkit.cli.ui.model import show_choice, show_films
    from clusterkit.commands.model import choose_model
    from clusterkit.commands.model import play as verb

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        model = choose_model(settings, ledger, name, checkpoint, environment)
    show_choice(model)
    folder = out or model.home / "videos"
    show_films(verb(model, tasks or (), folder, episodes=episodes, size=size))
