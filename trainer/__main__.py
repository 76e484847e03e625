"""`python -m trainer`: train, evaluate, play, check, drill, bench."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from trainer.arguments import nearest
from trainer.errors import TrainerError
from trainer.recipe import RecipeError

COMMANDS = {
    "train": "train a recipe, or resume a run",
    "evaluate": "success rates or returns of a checkpoint",
    "play": "a video of a checkpoint at work",
    "check": "is everything here that a run needs?",
    "drill": "train until a signal comes, then a little more: a rehearsal",
    "bench": "how fast is it here, with which settings?",
}
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Runs a command and returns its exit code: 0 done, 1 error, 2 bad arguments, 85 to be requeued."""
    if not argv or argv[0] in ("-h", "--help"):
        lines = "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())
        print(f"usage: python -m trainer COMMAND [options]\n\n{lines}\n\nEach has its own --help.")  # noqa: T201
        return 0 if argv else EXIT_USAGE
    command, *rest = argv
    if command not in COMMANDS:
        return _fail(f"unknown command {command!r}{nearest(command, list(COMMANDS))}", EXIT_USAGE)
    module = importlib.import_module(f"trainer.{command}")
    try:
        return int(module.main(rest))
    except RecipeError as error:
        return _fail(str(error), EXIT_USAGE)
    except TrainerError as error:
        return _fail(error.cause, error.exit_code, error.hint)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)


def _fail(cause: str, code: int, hint: str | None = None) -> int:
    sys.stderr.write(f"trainer: {cause}\n")
    if hint:
        sys.stderr.write(f"  {hint}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
