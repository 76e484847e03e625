"""The options of `python -m trainer train`."""

from __future__ import annotations

from trainer import recipe as recipes
from trainer.arguments import Parser, at_least, number, seeds

NEWEST = "newest"
"""`--resume` without a path: from the newest good checkpoint of the run directory, if there is one."""


def train_parser() -> Parser:
    """Returns what reads the command line; what is not given is None where others decide it."""
    parser = Parser(prog="python -m trainer train", description="Train a recipe.")
    add = parser.add_argument
    add("--recipe", required=True, help="hyperparameters: " + ", ".join(recipes.names()))
    add("--tasks", metavar="A,B", help="short for --set tasks=A,B (needs --unlock tasks)")
    add(
        "--set",
        dest="overrides",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="change a recipe value; may be given several times",
    )
    add("--unlock", metavar="NAME", action="append", default=[], help="allow a locked value to change")
    count = at_least(1)
    add("--total-steps", type=count, default=2_000_000, metavar="N", help="environment steps (2,000,000)")
    add("--num-envs", type=count, metavar="N", help="environments (one per task; 8 for PPO and A2C on one)")
    add("--seed", type=at_least(0), metavar="S", help="of everything random (0)")
    add("--seeds", type=seeds, metavar="A..B", help="a run for each, all in this process, in DIR/seed-S")
    precisions = ("auto", "fp32", "tf32", "bf16")
    add("--precision", choices=precisions, default="auto", help="of products (tf32 on a GPU, else fp32)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to learn (auto)")
    add("--run-dir", metavar="DIR", help="where to write ($CLUSTERKIT_RUN_DIR, or runs/<recipe>-<time>)")
    add("--eval-every", type=at_least(0), metavar="N", help="steps between evaluations; 0 for none")
    add("--eval-episodes", type=count, metavar="N", help="episodes a task (the recipe's)")
    add("--final-episodes", type=count, metavar="N", help="episodes a task at the end (the same)")
    levels = "end once two evaluations in a row reach it: success (0 to 1), or return"
    add("--stop-at", type=number, metavar="LEVEL", help=levels)
    add("--checkpoint-every", type=at_least(0), metavar="N", help="steps between checkpoints; 0: at the end")
    add("--keep", type=count, default=3, metavar="N", help="newest checkpoints to keep (3)")
    add("--log-every", type=count, metavar="N", help="steps between training metrics (a thousandth)")
    add("--workers", type=at_least(0), metavar="N", help="environment processes (by processors)")
    add("--threads", type=at_least(0), metavar="N", help="PyTorch's threads (as an update is worth)")
    add(
        "--lockstep",
        action="store_true",
        help="on a GPU: act with the very newest weights, and wait for them",
    )
    add(
        "--resume",
        nargs="?",
        const=NEWEST,
        metavar="PATH",
        help="continue from PATH, or from the newest good checkpoint of the run directory",
    )
    add("--ranks", type=count, metavar="N", help="GPUs to learn on, a process each (1; srun's or torchrun's)")
    add("--wandb", choices=("auto", "offline", "online", "disabled"), default="auto", help="W&B mode (auto)")
    return parser
