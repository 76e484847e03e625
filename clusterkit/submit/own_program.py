"""A user's own program: detects one after `--`, finds its Python, and refuses runs that differ in name only.

A run's own value, such as the seed, reaches the program through a placeholder, or through an environment
variable that the arguments, a file of the project, or the script or installed module that the program names
mentions.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from clusterkit.config.layers import PROJECT_FILE
from clusterkit.config.lines import toml_value
from clusterkit.config.permission import INTERPRETERS
from clusterkit.errors import ConfigError
from clusterkit.runs.program import PREVIOUS, SEED, TOTAL_STEPS, variable_of

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.submit.plan import Plan

Key = TypeVar("Key")
_INTERPRETER = re.compile(
    r"(.*/)?(python[0-9.]*|(ba|z|da|k)?sh|node|julia|Rscript|perl|ruby|java|torchrun|accelerate|deepspeed"
    r"|mpirun|mpiexec|srun|uv|poetry|conda)"
)
_SCRIPTS = {"py": "python", "sh": "bash", "jl": "julia", "R": "Rscript", "js": "node"}
"""Interpreters by script suffix."""
_TRAINER = ["-m", "trainer"]
OUTPUT = "{run_dir}/out"
"""Where a program is told to write, if it can be told."""
_VARIABLES = {"seed": SEED, "total_steps": TOTAL_STEPS}
_LARGEST, _MOST = 1 << 20, 64 << 20
"""Bytes: of a file that is searched, and of all of them."""
_SOURCES = (".py", ".sh", ".yaml", ".yml", ".toml", ".json", ".ipynb", ".jl", ".R", ".js", ".cpp", ".rs")
"""Ends of names of files that are searched first."""
_PROSE = (".md", ".rst")


def check_arguments(project: Path, arguments: Sequence[str], program: Sequence[str] | None) -> None:
    """Refuses arguments that name a program instead of its arguments.

    Args:
        project: the project's folder.
        arguments: the arguments after `--`.
        program: the user's own program that they are appended to; None means the bundled trainer.

    Raises:
        ConfigError: the arguments name a program although none is set, and the hint gives the lines to write;
            or they repeat the program that is set.
    """
    if program:
        own = list(program)
        if arguments and list(arguments[:2]) == own[:2]:
            same = len(own) if list(arguments[: len(own)]) == own else min(2, len(own))
            raise ConfigError(
                f"`{shlex.join(arguments[:same])}` after -- repeats the program that is already set",
                hint="leave it out: only its arguments go after --" + _behind(arguments[same:]),
            )
        return
    start = next((at for at in range(len(arguments)) if _named(project, arguments, at)), None)
    if start is None:
        return
    words = list(arguments[start:])
    named = words[: _length(words)]
    rest = [*arguments[:start], *words[len(named) :]]
    raise ConfigError(
        f"`{shlex.join(named)}` is a program, but this project sets none: the bundled trainer would get it "
        "as an argument",
        hint=f"add the lines below{_where(project)}, and give only its arguments after --{_behind(rest)}; "
        f"`clusterkit init --local --program {shlex.quote(shlex.join(named))}` adds them for you\n\n"
        f"{_lines(project, with_places(project, started(named), rest))}",
    )


def started(named: Sequence[str]) -> list[str]:
    """Returns the argv that starts a program as the user named it; adds an interpreter to a bare script.

    >>> started(["train.py"])
    ['python', 'train.py']
    """
    first = named[0]
    if _INTERPRETER.fullmatch(first):
        return list(named)
    interpreter = _SCRIPTS.get(first.rpartition(".")[2])
    if interpreter is None:
        return [first if "/" in first else f"./{first}", *named[1:]]
    return [interpreter, *named]


def command_argv(project: Path, words: Sequence[str]) -> list[str]:
    """Returns the argv of a command typed in a project: of its script or file, or of one on PATH."""
    argv = started(words)
    of_project = argv[-len(words) :] == list(words) or (project / words[0]).is_file()
    return argv if of_project else list(words)


def with_places(project: Path, argv: Sequence[str], more: Sequence[str] = ()) -> list[str]:
    """Returns a program's argv with placeholders behind the options that its source has for seed and output.

    Args:
        project: the project's folder.
        argv: the program.
        more: arguments that it gets; an option that is among them or in argv is not added.
    """
    from clusterkit.submit.program_options import folder_option, option_words

    given = {word.partition("=")[0] for word in (*argv, *more)}
    words = option_words(project, argv, "seed")
    if words and words[0].partition("=")[0] in given:
        words = []
    if (option := folder_option(project, argv)) and option not in given:
        words += [option, OUTPUT] if option.startswith("-") else [f"{option}={OUTPUT}"]
    return [*argv, *words]


def split_command(project: Path, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command into the program and its arguments; without the program, all are arguments.

    >>> split_command(Path(), ["python", "-u", "train.py", "--lr", "0.3"])
    (['python', '-u', 'train.py'], ['--lr', '0.3'])
    >>> split_command(Path(), ["--lr", "0.3"])
    ([], ['--lr', '0.3'])
    """
    if not words or not (_named(project, words, 0) or shutil.which(words[0])):
        return [], list(words)
    count = _length(words)
    return list(words[:count]), list(words[count:])


def _named(project: Path, arguments: Sequence[str], at: int) -> bool:
    """Returns whether an argument is an interpreter, script or project file, and not an option's value."""
    word, before = arguments[at], arguments[at - 1] if at else ""
    if not word or word.startswith("-") or before.startswith("-") or "=" in word or "{" in word:
        return False
    ending = word.rpartition(".")[2] if "." in word else ""
    if _INTERPRETER.fullmatch(word) or ending in _SCRIPTS:
        return True
    try:
        return (project / word).is_file()
    except (OSError, ValueError):
        return False


def _length(words: Sequence[str]) -> int:
    """Counts the arguments that form the program: an interpreter, its options, and its script or module."""
    if not _INTERPRETER.fullmatch(words[0]):
        return 1
    for at in range(1, len(words)):
        if words[at] in ("-m", "-c"):
            return min(at + 2, len(words))
        if not words[at].startswith("-") and not _INTERPRETER.fullmatch(words[at]) and words[at] != "run":
            return at + 1
    return len(words)


def _behind(rest: Sequence[str]) -> str:
    return f": `-- {shlex.join(rest)}`" if rest else ""


def _has_table(project: Path) -> bool:
    try:
        return "project" in tomllib.loads((project / PROJECT_FILE).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return False


def _where(project: Path) -> str:
    return f" to [project] in {PROJECT_FILE}" if _has_table(project) else f" to {PROJECT_FILE}"


def _lines(project: Path, argv: Sequence[str]) -> str:
    head = "" if _has_table(project) else "[project]\n"
    return f"{head}program = {toml_value(list(argv))}"


def with_program_python(cluster: Cluster, argv: Sequence[str], project: Path) -> Cluster:
    """Returns the cluster with the interpreter that starts a program on this machine.

    clusterkit may be installed in an environment of its own, which lacks what the program imports. A cluster
    that sets `python`, the bundled trainer and every other machine keep what they have.

    Args:
        cluster: where the program runs.
        argv: of the program.
        project: the project's folder.
    """
    program, module = list(argv[:1]), list(argv[1:3])
    if not cluster.here or cluster.contained or cluster.python:
        return cluster
    if program != ["python"] or module == _TRAINER:
        return cluster
    return cluster.model_copy(update={"python": project_python(project) or path_python() or sys.executable})


def project_python(project: Path) -> str | None:
    """Returns the interpreter of the active environment, or else of the project's `.venv` or `venv`."""
    active = os.environ.get("VIRTUAL_ENV")
    files = [*([Path(active, "bin", "python")] if active else []), *(project / name for name in INTERPRETERS)]
    return next((str(file) for file in files if os.access(file, os.X_OK)), None)


def path_python() -> str | None:
    """Returns the interpreter that a shell would start, as an absolute path."""
    found = shutil.which("python") or shutil.which("python3")
    return found and os.path.abspath(found)  # noqa: PTH100 - a link to an environment's Python stays one


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
    found = mentioned({asked: asked[1] for asked in lost}, root, files, lost.values())
    lost = {asked: argv for asked, argv in lost.items() if asked not in found}
    if not lost:
        return
    from clusterkit.submit.program_options import option_words

    raise refusal(
        plan, {name: option_words(root, argv, name, guess=True) for (name, _), argv in lost.items()}
    )


def mentioned(
    wanted: Mapping[Key, re.Pattern[str]],
    root: Path,
    files: Iterable[str],
    programs: Iterable[Sequence[str]],
) -> set[Key]:
    """Returns which patterns match in a project's code, but not in its settings.

    Args:
        wanted: the patterns, each by a key.
        root: the project's folder.
        files: its files, as paths relative to it.
        programs: argv of its programs: the words, and the files outside the project that they name.
    """
    programs, missing = dict.fromkeys(map(tuple, programs)), dict(wanted)
    inside = (root / name for name in files if name != PROJECT_FILE)
    outside = (file for argv in programs for file in _outside(root, argv))
    for text in itertools.chain(*programs, _texts(inside), _texts(outside)):
        missing = {key: pattern for key, pattern in missing.items() if not pattern.search(text)}
        if not missing:
            break
    return wanted.keys() - missing.keys()


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
        from clusterkit.submit.sweep import write_values

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
