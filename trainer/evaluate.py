"""`python -m trainer evaluate`: success rates of a checkpoint, or returns where there is no success."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trainer.arguments import Parser, at_least
from trainer.envs.own_module import add_whose_code, refuse_foreign
from trainer.machine.processors import usable_processors

_WORTH_PROCESSES = 8
"""Episodes from which on processes are worth their start."""


def main(argv: Sequence[str]) -> int:
    """Prints a table of success rates or returns; returns the exit code.

    Raises:
        UsageError: an argument is wrong, or the model's environment cannot be had or is not the user's code.
        CheckpointError: there is no usable model at the path.
        WorkerError: an environment worker died or hangs.
    """
    parser = Parser(
        prog="python -m trainer evaluate", description="Success rates or returns of a trained policy."
    )
    parser.add_argument("checkpoint", type=Path, help="a run, a checkpoint or a final_model.pt")
    parser.add_argument("--episodes", type=at_least(1), default=50, metavar="N", help="per task (50)")
    parser.add_argument(
        "--workers", type=at_least(0), metavar="N", help="processes (all processors, none for a few episodes)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_whose_code(parser)
    given = parser.read(argv)

    # these take their time to import, which --help should not
    from trainer.checkpoint.model import load_model
    from trainer.envs.choice import factory_for
    from trainer.evaluation.evaluator import Evaluator, every_goal
    from trainer.evaluation.result import table
    from trainer.machine.device import configure

    model = load_model(given.checkpoint, configure("cpu", threads=1))
    values = model.recipe["values"]
    few = len(model.tasks) * given.episodes < _WORTH_PROCESSES
    refuse_foreign(model.path, values, named=given.environment, pulled=given.pulled)
    evaluator = Evaluator(
        factory_for(model.entry, values, model.tasks, goals=model.goal_seed),
        given.episodes,
        workers=given.workers if given.workers is not None else 0 if few else usable_processors(),
    )
    try:
        result = evaluator.run(partial(model.policy.act, greedy=True), every_goal(values, given.episodes))
    finally:
        evaluator.close()
    assert result is not None, "nobody interrupts"
    if given.json:
        text = json.dumps({"checkpoint": str(model.path), "step": model.step, **result.metrics()})
    else:
        text = table(result)
    sys.stdout.write(f"{text}\n")
    return 0
