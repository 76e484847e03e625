"""`clusterkit evaluate` and `clusterkit play`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import clusterkit
from clusterkit.cli import options
from clusterkit.cli.ui.model import (
    ChosenModel,
    Evaluated,
    Score,
    print_json,
    show_choice,
    show_evaluated,
    show_films,
    working,
)
from clusterkit.errors import ClusterkitError, RunError
from clusterkit.project import load, open_ledger
from clusterkit.results.checkpoints import choose, models_here, telling_rows
from clusterkit.units import plural
from clusterkit_rl.distribution import install_command

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A synced run, a folder with one, or the path of a checkpoint or model."
    ),
]
CheckpointOption = Annotated[
    str, typer.Option(metavar="best|last|NAME", help="Checkpoint of the run, by name or path.")
]
EpisodesOption = Annotated[int, typer.Option("--episodes", metavar="N", min=1, help="Episodes per task.")]
EnvironmentOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:ID",
        help="The training environment, if its module is your own and neither installed nor in git.",
    ),
]


def evaluate(
    name: ModelArgument = "last",
    checkpoint: CheckpointOption = "last",
    episodes: EpisodesOption = 50,
    environment: EnvironmentOption = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Measure a synced model's success rate or return.

    Runs on this machine and needs the trainer's packages, the extra `train` of clusterkit-rl.

    Examples:
      clusterkit evaluate last --episodes 50
      clusterkit evaluate last --checkpoint best --json  # for scripts

    See also: clusterkit play, sharing.md
    """
    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        model = choose_model(settings, ledger, name, checkpoint, environment)
    show_choice(model)
    with working(f"evaluating each task, {plural(episodes, 'time')}"):
        evaluated = measure(model, episodes)
    (print_json if as_json else show_evaluated)(evaluated)


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
    config: options.Config = None,
) -> None:
    """Film a synced model, task by task.

    Runs on this machine and needs the trainer's packages, the extra `train` of clusterkit-rl.

    Examples:
      # one video per task
      clusterkit play last
      clusterkit play last --task reach --task drawer-close --out films

    See also: clusterkit evaluate, sharing.md
    """
    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        model = choose_model(settings, ledger, name, checkpoint, environment)
    show_choice(model)
    folder = out or model.home / "videos"
    show_films(film(model, tasks or (), folder, episodes=episodes, size=size))


_NEEDED = ("torch", "metaworld")


def choose_model(
    settings: Settings, ledger: Ledger, name: str, checkpoint: str = "last", environment: str | None = None
) -> ChosenModel:
    """Finds a local model.

    Args:
        settings: of the project.
        ledger: of the project.
        name: a run, or the path of a run directory, a checkpoint or a model.
        checkpoint: `best`, `last`, the name of one of the run's checkpoints, or a path.
        environment: the environment that the user says it was trained in.

    Raises:
        RunError: there is no such model on this machine.
    """
    model = _find(settings, ledger, name, checkpoint)
    project = settings.project_dir.resolve()
    strange = (folder.resolve() for folder in (settings.project.results, project / ".clusterkit"))
    # results stored in the project's own folder do not make its code untrusted
    pulled = tuple(folder for folder in strange if not project.is_relative_to(folder))
    return replace(model, environment=environment, pulled=pulled)


def _find(settings: Settings, ledger: Ledger, name: str, checkpoint: str) -> ChosenModel:
    from clusterkit.results.pulled import pulled_run
    from clusterkit.runs.run_dir import read_run_dir

    path = Path(name)
    if path.suffix == ".pt" and path.is_file():
        return ChosenModel(path, name, path.parent)
    if (path / "manifest.json").is_file():
        return ChosenModel(path, name, path.parent)
    run_dir = pulled_run(settings.project.results, name, ledger)
    if run_dir is None:
        known = ledger.find_one(name)
        raise RunError(
            f"{known.run_id} is not in {settings.project.results}",
            hint=f"`clusterkit sync-results {known.run_id}` brings it home",
        )
    run_id = read_run_dir(run_dir).run_id
    if checkpoint not in ("best", "last"):
        for one in (run_dir / "checkpoints" / checkpoint, Path(checkpoint)):
            if one.exists():
                return ChosenModel(one, run_id, run_dir)
        raise RunError(
            f"{checkpoint}: {run_id} has no such checkpoint on this machine",
            hint=f"`clusterkit sync-results {run_id} --checkpoints all` brings all checkpoints from the "
            "cluster",
        )
    rows = telling_rows(run_dir)
    models = models_here(run_dir, rows)
    if not models and not read_run_dir(run_dir).document.get("recipe"):
        raise RunError(
            f"{run_id} ran your own program, so there is no model of the bundled trainer",
            hint=f"its output is in {run_dir}; evaluate it with your own program",
        )
    model, said = choose(run_id, models, rows, checkpoint)
    return ChosenModel(model.path, run_id, run_dir, said)


def measure(model: ChosenModel, episodes: int) -> Evaluated:
    """Evaluates a model on many goals of each task, or from many initial states of its environment.

    Args:
        model: to evaluate.
        episodes: per task.

    Raises:
        ClusterkitError: the trainer's dependencies are not installed.
        RunError: the trainer could not use the model.
    """
    done = _trainer("evaluate", model, ["--episodes", str(episodes), "--json"], capture=True)
    document: dict[str, Any] = json.loads(done)
    bounded = "success" if "success/mean" in document else "return"
    scores = {
        name: Score(
            document.get(f"success/{name}"),
            document.get(f"{bounded}_low/{name}"),
            document.get(f"{bounded}_high/{name}"),
            mean_return=document[f"return/{name}"],
            steps=document[f"length/{name}"],
        )
        for name in (key.removeprefix("return/") for key in document if key.startswith("return/"))
    }
    mean = scores.pop("mean")
    return Evaluated(model, int(document["step"]), int(document["episodes"]), scores, mean)


def film(model: ChosenModel, tasks: Sequence[str], folder: Path, *, episodes: int, size: int) -> list[Path]:
    """Renders a video of a model for each task, and a contact sheet; prints a line for each episode.

    Args:
        model: to play.
        tasks: by name; empty for all that it knows.
        folder: for the videos; created if missing.
        episodes: per task.
        size: width and height of a picture, in pixels.

    Returns:
        The files made, the contact sheet last.

    Raises:
        ClusterkitError: the trainer's dependencies are not installed.
        RunError: the model cannot be used, a task is unknown, or this machine cannot render.
    """
    before = _stamps(folder)
    options = [word for task in tasks for word in ("--task", task)]
    given = ["--folder", str(folder), "--episodes", str(episodes), "--size", str(size)]
    _trainer("play", model, [*options, *given], capture=False)
    made = [path for path, stamp in _stamps(folder).items() if before.get(path) != stamp]
    return sorted(made, key=lambda path: (path.suffix == ".png", path.name))


def _stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("*.*") if path.is_file()}


def _trainer(command: str, model: ChosenModel, options: Sequence[str], *, capture: bool) -> str:
    """Runs a command of the bundled trainer; returns its standard output if captured."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ClusterkitError(
            f"{' and '.join(missing)} not installed for {sys.executable}",
            hint=install_command(extra="train"),
        )
    whose = [word for folder in model.pulled for word in ("--pulled", str(folder))]
    if model.environment is not None:
        whose.append(f"--environment={model.environment}")
    sys.stdout.flush()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "trainer", command, str(model.path.absolute()), *options, *whose],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_environment((*model.pulled, model.home.resolve())),
        check=False,
    )
    if done.returncode == 0:
        return done.stdout or ""
    cause, _, hint = done.stderr.rpartition("trainer: ")[2].strip().partition("\n")
    if "trainer: " not in done.stderr:
        cause, hint = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1], ""
    raise RunError(f"the trainer: {cause}", hint=hint.strip() or None)


def _environment(pulled: Sequence[Path]) -> dict[str, str]:
    """Returns the variables that select this installation's trainer over one in the working directory.

    An empty entry in PYTHONPATH means the working directory, whose files could shadow Python's own modules.
    """
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    places = [
        part
        for part in environment.pop("PYTHONPATH", "").split(os.pathsep)
        if part and not any(Path(part).resolve().is_relative_to(folder) for folder in pulled)
    ]
    home = Path(clusterkit.__file__).resolve().parent.parent  # the trainer is next to clusterkit
    if home.name not in ("site-packages", "dist-packages"):
        places.insert(0, str(home))
    return {**environment, "PYTHONPATH": os.pathsep.join(places)} if places else environment
