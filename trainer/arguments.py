"""The options of `python -m trainer train`; parsers whose faults are one line with the nearest valid name."""

from __future__ import annotations

import argparse
import difflib
import math
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from trainer import recipe as recipes
from trainer.errors import UsageError

_MOST_SEEDS = 64
"""In one process."""


class _WholeNames(argparse.HelpFormatter):
    """Help whose lines end between words: a name with hyphens stays in one piece, to be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError` instead of printing its whole usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False, formatter_class=_WholeNames)

    def error(self, message: str) -> NoReturn:
        """Raises.

        Raises:
            UsageError: always.
        """
        raise UsageError(message, hint=f"see {self.prog} --help")

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parses the whole command line.

        Raises:
            UsageError: an unknown option (with the nearest ones), or a value that cannot be read.
        """
        namespace, unknown = self.parse_known_args(argv)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            self.error(f"unknown argument {unknown[0]!r}{nearest(unknown[0].split('=')[0], options)}")
        return namespace


def nearest(name: str, names: Sequence[str]) -> str:
    """Returns `; did you mean X?` for the closest known names, or nothing."""
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def seeds(text: str) -> tuple[int, ...]:
    """Reads seeds as an argparse type: `1..8`, `1,2,5` or both mixed; each once."""
    listed: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not all(end.isdecimal() for end in ((first, last) if dots else (first,))):
            raise argparse.ArgumentTypeError(f"{part!r} is not a seed; write 1..8 or 1,2,5")
        begin, end = int(first), int(last if dots else first)
        if end < begin:
            raise argparse.ArgumentTypeError(f"{part} counts backwards; write {end}..{begin}")
        if end - begin >= _MOST_SEEDS:
            raise argparse.ArgumentTypeError(_too_many(end - begin + 1))
        listed += range(begin, end + 1)
    if twice := sorted(seed for seed in set(listed) if listed.count(seed) > 1):
        raise argparse.ArgumentTypeError(f"{twice[0]} is listed twice")
    if len(listed) > _MOST_SEEDS:
        raise argparse.ArgumentTypeError(_too_many(len(listed)))
    return tuple(listed)


def number(text: str) -> float:
    """Reads a finite number as an argparse type."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def _too_many(count: int) -> str:
    return f"{count:,} seeds are too many for one process; use at most {_MOST_SEEDS}"


def at_least(least: int) -> Any:
    """Returns an argparse type: an integer of at least `least`; underscores and `2e6` are understood."""

    def read(text: str) -> int:
        number = float(text)
        if not number.is_integer() or number < least:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least {least}")
        return int(number)

    read.__name__ = "whole number"  # argparse calls it so in its message
    return read


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
