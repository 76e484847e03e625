"""init --local: propose settings for this machine and the program found in the project, without a login."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.backends.survey import Choice, Option
from clusterkit.config.lines import Entry, WrittenTable
from clusterkit.config.merge import added
from clusterkit.config.settings import Settings
from clusterkit.config.settings_file import Proposal, checked, read
from clusterkit.environments.environment import find_file
from clusterkit.errors import ConfigError
from clusterkit.hardware import Hardware, recognise
from clusterkit.submit.check import hardware_of
from clusterkit.submit.own_program import command_argv, project_python, with_places

PROFILE = "here"
DEMO = "local-demo"
"""The shipped profile for the bundled trainer, which the user's own program does not need."""
_ABOUT = "Runs go to this machine: `clusterkit submit`. `clusterkit init HOST` adds a cluster."
_USUAL = ("train.py", "main.py", "run.py")
_NO_PROGRAM = re.compile(r"setup\.py|conftest\.py|__init__\.py|test_.*|.*_test\.py")


@dataclass(frozen=True)
class Local(Proposal):
    """A proposal for this machine."""

    settings: Settings
    """The settings once the file is written."""
    machine: str
    """The machine's hardware, on one line."""


def init_local(
    file: Path, program: str | None, *, trainer: bool = False, choose: Callable[[Choice], str] | None = None
) -> Local:
    """Inspect this machine and the project and propose settings.

    Args:
        file: the settings file.
        program: the program as typed in a shell; None searches for a script.
        trainer: whether runs train with the bundled trainer instead.
        choose: asks which of several scripts is the program; None if nobody can be asked.

    Raises:
        ConfigError: the existing file or the program is wrong, another program is already set, or no script,
            or no single one, was found.
    """
    if trainer and program is not None:
        raise ConfigError("--trainer and --program exclude each other", hint="leave one of them out")
    old = read(file)
    settings = checked(file, old or "")
    own = settings.project.program
    typed = _named(program, file.parent) if program is not None else None
    named = typed and with_places(file.parent, typed)
    if own and (trainer or (named and list(own) not in (typed, named))):
        raise ConfigError(
            f"{file.name} already sets program = {list(own)!r}",
            hint="change it there; nothing else needs to change",
        )
    found = named or (None if own or trainer else _found(file.parent, choose))
    chosen = list(own) if own else found
    has = hardware_of(settings.cluster("local"))
    assert has is not None
    elsewhere = settings.project.default_cluster != "local"
    packages = None if settings.project.environment else find_file(file.parent)
    here = draft(
        has, chosen, _python(file.parent) if chosen else None, elsewhere=elsewhere, packages=packages
    )
    # What `init --local` writes without a program trains with the bundled trainer.
    demo = chosen and not own and settings.project.default_profile == DEMO
    without = ("project", "default_profile") if demo else None
    new = added(old or "", here.project, here.tables, without=without)
    return Local(file, old, new, checked(file, new), has.words)


def _named(program: str, project: Path) -> list[str]:
    try:
        words = shlex.split(program)
    except ValueError as error:
        raise ConfigError(f"--program {program}: {error}", hint="quote it as for a shell") from error
    if not words:
        raise ConfigError("--program is empty", hint='write e.g. --program "python train.py"')
    return command_argv(project, words)


def _found(project: Path, choose: Callable[[Choice], str] | None) -> list[str]:
    """Returns the command of the script that is the program, with the places of seed and output."""
    scripts = _scripts(project)
    if not scripts:
        raise ConfigError(
            f"{project}: no Python script here, and none of {', '.join(_USUAL)} in a folder below",
            hint='name your program: `clusterkit init --local --program "bash run.sh"`; or, for the bundled '
            "trainer, `clusterkit init --local --trainer`",
        )
    script = scripts[0]
    if len(scripts) > 1:
        if choose is None:
            raise ConfigError(
                f"several scripts could be the program: {', '.join(scripts)}",
                hint=f'name it: `clusterkit init --local --program "python {script}"`',
            )
        options = tuple(Option(name, "") for name in scripts)
        script = choose(Choice("--program", "Which script is the program?", options))
    return with_places(project, ["python", script])


def _scripts(project: Path) -> list[str]:
    """Returns what may be the program: scripts of the usual names, else any here, else those of a folder."""
    here = sorted(path.name for path in project.glob("*.py") if path.is_file())
    here = [name for name in here if not _NO_PROGRAM.fullmatch(name)]
    below = [path for name in _USUAL for path in sorted(project.glob(f"[!.]*/{name}"))]
    usual = [name for name in _USUAL if name in here]
    return usual or here or [path.relative_to(project).as_posix() for path in below]


def _python(project: Path) -> str | None:
    """The interpreter of the project's own environment, if it is not clusterkit's."""
    found = project_python(project)
    own = found and Path(found).parent.parent.resolve() == Path(sys.prefix).resolve()
    return None if own else found


@dataclass(frozen=True)
class LocalDraft:
    """The tables for this machine."""

    project: WrittenTable
    tables: tuple[WrittenTable, ...]


def draft(
    has: Hardware,
    program: Sequence[str] | None,
    python: str | None,
    *,
    elsewhere: bool = False,
    packages: str | None = None,
) -> LocalDraft:
    """Returns the settings for running a project on this machine.

    Args:
        has: the machine's hardware.
        program: argv of the user's own program; None trains with the bundled trainer.
        python: the interpreter with the program's imports, if not clusterkit's own.
        elsewhere: whether the user's own settings send runs to another machine, which stays so.
        packages: the file from which an environment of the program's packages could be built.
    """
    head: tuple[str, ...] = () if elsewhere else (_ABOUT,)
    project = [] if elsewhere else [Entry("default_cluster", "local", "this machine; no login")]
    cluster = []
    if python is not None:
        cluster.append(Entry("python", python, "has what the program imports"))
    tables = [WrittenTable(("clusters", "local"), tuple(cluster))] if cluster else []
    if program is None:
        head += ('Your own program instead of the bundled trainer: program = ["python", "train.py"]',)
        project.append(
            Entry("default_profile", DEMO, "shipped: four tasks in minutes; `clusterkit profiles`")
        )
        return LocalDraft(WrittenTable(("project",), tuple(project), head), tuple(tables))
    if packages is not None:
        head += (f'Its packages, built once wherever runs start: environment = "{packages}"',)
    project.append(Entry("default_profile", PROFILE, "what a run requests, below"))
    project.append(Entry("program", list(program), "`submit -- --lr 0.3` adds arguments"))
    cpus = has.cpus or 1
    entries = [
        Entry("cpus", cpus, "all of this machine's" if has.cpus else ""),
        Entry("threads", cpus, "OMP_NUM_THREADS of each run"),
        Entry("time", "4h", "ends the run then; `resume` continues from a checkpoint"),
    ]
    if has.gpus:
        gpu = recognise(has.gpu_name)
        entries.insert(0, Entry("gpu", gpu[0] if gpu else "gpu", has.gpu_name))
    about = f"One run of {' '.join(program)} on this machine ({has.words})."
    if "{seed}" in program:
        advice = "`submit --seed 7` fills in {seed}; `submit --seeds 1..3` runs three seeds."
    else:
        advice = 'If it takes a seed, add "--seed", "{seed}" to `program`; `submit --seeds 1..3` runs three.'
    tables.append(WrittenTable(("profiles", PROFILE), tuple(entries), (about, advice)))
    return LocalDraft(WrittenTable(("project",), tuple(project), head), tuple(tables))
