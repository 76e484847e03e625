"""Refuses runs whose own values cannot reach their program: they would differ in name only.

A value reaches the program through a placeholder, or through an environment variable that the arguments, a
file of the project, or the script or installed module that the program names mentions.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from clusterkit.config.sources import PROJECT_FILE
from clusterkit.errors import ConfigError
from clusterkit.runs.program import SEED, TOTAL_STEPS
from clusterkit.submit.own_program import path_python, project_python
from clusterkit.submit.plan import PREVIOUS, Plan
from clusterkit.submit.program_options import option_words
from clusterkit.submit.sweep import variable_of, write_values

_VARIABLES = {"seed": SEED, "total_steps": TOTAL_STEPS}
_LARGEST, _MOST = 1 << 20, 64 << 20
"""Bytes: of a file that is searched, and of all of them."""
_SOURCES = (".py", ".sh", ".yaml", ".yml", ".toml", ".json", ".ipynb", ".jl", ".R", ".js", ".cpp", ".rs")
"""Ends of names of files that are searched first."""
_PROSE = (".md", ".rst")


def check_reach(plan: Plan, root: Path, files: Iterable[str]) -> None:
    """Checks that the values by which a plan's runs are named reach their programs.

    Args:
        plan: the runs.
        root: the folder of the code that they run.
        files: its files, as paths relative to it.

    Raises:
        ConfigError: one does not, and the plan does not allow it; the hint gives the line to write.
    """
    lost: dict[tuple[str, re.Pattern[str]], Sequence[str]] = {}
    for run in plan.runs:
        previous = bool(run.member and run.member.previous)
        for name in run.unplaced:
            mention = _mention(name, previous=previous)
            if not any(mention.search(word) for word in run.program.argv):
                lost.setdefault((name, mention), run.program.argv)
    if plan.allow_unread or not lost:
        return
    outside = (file for argv in dict.fromkeys(map(tuple, lost.values())) for file in _outside(root, argv))
    inside = (root / name for name in files if name != PROJECT_FILE)
    for text in itertools.chain(_texts(inside), _texts(outside)):
        lost = {asked: argv for asked, argv in lost.items() if not asked[1].search(text)}
        if not lost:
            return
    raise refusal(
        plan, {name: option_words(root, argv, name, guess=True) for (name, _), argv in lost.items()}
    )


def refusal(plan: Plan, lost: Mapping[str, Sequence[str]]) -> ConfigError:
    """Returns the error for runs that would differ in name only.

    Args:
        plan: the runs.
        lost: names of the values that do not reach the program, with the words that would give it each.
    """
    names = " and ".join(lost)
    words = " ".join(word for own in lost.values() for word in own)
    variables = " and ".join(f"${_VARIABLES.get(name) or variable_of(name)}" for name in lost)
    what = f"the {len(plan.runs)} runs would differ" if len(plan.runs) > 1 else "the run would differ"
    member = plan.runs[0].member
    if plan.group is None and member is not None:  # a trial of a search
        what, line = "the runs would differ", f"end the command with `-- {words}`"
    else:
        options = " ".join(_option(plan, name) for name in lost)
        line = f"write `clusterkit submit {options} -- {words}`"
    return ConfigError(
        f"{what} in name only: no argument and no file of the project takes {names}",
        hint=f"{line}, or let the program read {variables}; --yes submits as it is",
    )


def _option(plan: Plan, name: str) -> str:
    """Returns the option of `submit` that gives a plan's runs their values of this name."""
    values = list(
        dict.fromkeys(
            run.member.values[name] if run.member and name in run.member.values else str(run.spec.seed)
            for run in plan.runs
        )
    )
    if name != "seed":
        return f"--sweep {shlex.quote(f'{name}={write_values(values)}')}"
    if len(values) == 1:
        return f"--seed {values[0]}"
    numbers = list(map(int, values))
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"--seeds {f'{values[0]}..{values[-1]}' if whole else ','.join(values)}"


def _mention(name: str, *, previous: bool) -> re.Pattern[str]:
    """Returns a pattern of the variables that tell runs apart, whole or as a beginning to be completed.

    Args:
        name: of the value.
        previous: whether the runs continue others, by which they differ as well.
    """
    variables = [_VARIABLES.get(name, ""), variable_of(name), PREVIOUS if previous else ""]
    whole = "|".join(filter(None, variables))
    return re.compile(rf"(?:{whole}|CLUSTERKIT_(?:SWEEP_)?)(?![A-Z0-9_])")


def _outside(root: Path, argv: Sequence[str]) -> Iterator[Path]:
    """Yields the files of a script or installed module that a program names outside the project."""
    for place, word in enumerate(argv):
        if word.startswith(("/", "../")) and (root / word).is_file():
            yield root / word
        elif word == "-m" and place + 1 < len(argv):
            name = argv[place + 1].partition(".")[0]
            python = project_python(root) or path_python()
            home = Path(python).parent.parent if python else root
            for packages in home.glob("lib/python3*/site-packages"):
                yield from (packages / name).rglob("*.py")
                yield from packages.glob(f"{name}.py")


def _texts(files: Iterable[Path]) -> Iterator[str]:
    """Yields the content of text files, sources first, up to a limit."""
    left = _MOST
    named = [file for file in files if not file.name.endswith(_PROSE)]
    for file in sorted(named, key=lambda file: not file.name.endswith(_SOURCES)):
        try:
            if file.is_symlink() or not file.is_file() or file.stat().st_size > _LARGEST:
                continue
            content = file.read_bytes()
        except OSError:
            continue
        left -= len(content)
        if left < 0:
            return
        if b"\0" not in content:
            yield content.decode("utf-8", "replace")
