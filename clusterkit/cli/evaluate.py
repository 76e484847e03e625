"""`clusterkit evaluate`."""

from __future__ import annotations

from clusterkit.cli.common import (
    CheckpointOption,
    ConfigOption,
    EnvironmentOption,
    EpisodesOption,
    JsonOption,
    ModelArgument,
    load,
    open_ledger,
)
from clusterkit.units import plural


def evaluate(
    name: ModelArgument = "last",
    checkpoint: CheckpointOption = "last",
    episodes: EpisodesOption = 50,
    environment: EnvironmentOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Measure a synced model's success rate or return.

    Runs on this machine and needs the trainer's packages, the extra `train` of clusterkit-rl.
    """
    from clusterkit.cli.ui.model import print_json, show_choice, show_evaluated, working
    from clusterkit.commands.model import choose_model
    from clusterkit.commands.model import evaluate as command

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        model = choose_model(settings, ledger, name, checkpoint, environment)
    show_choice(model)
    with working(f"evaluating each task, {plural(episodes, 'time')}"):
        evaluated = command(model, episodes)
    (print_json if as_json else show_evaluated)(evaluated)
