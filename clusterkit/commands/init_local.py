"""init --local: propose settings for this machine and the program found in the project, without a login."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from clusterkit.backends.local.survey import DEMO, draft
from clusterkit.config.merge import added
from clusterkit.config.settings import Settings
from clusterkit.config.settings_file import Proposal, checked, read
from clusterkit.errors import ConfigError
from clusterkit.runs.check import hardware_of
from clusterkit.runs.interpreter import project_python
from clusterkit.runs.own_words import started, with_seed

_USUAL = ("train.py", "main.py", "run.py")


@dataclass(frozen=True)
class Local(Proposal):
    """A proposal for this machine."""

    settings: Settings
    """The settings once the file is written."""
    machine: str
    """The machine's hardware, on one line."""


def init_local(file: Path, program: str | None) -> Local:
    """Inspect this machine and the project and propose settings.

    Args:
        file: the settings file.
        program: the program as typed in a shell; None searches for a script.

    Raises:
        ConfigError: the existing file or the program is wrong, or another program is already set.
    """
    old = read(file)
    settings = checked(file, old or "")
    own = settings.project.program
    typed = _named(program, file.parent) if program is not None else None
    named = typed and with_seed(file.parent, typed)
    if own and list(own) not in (typed, named) and named:
        raise ConfigError(
            f"{file.name} already sets program = {list(own)!r}",
            hint="change it there; nothing else needs to change",
        )
    chosen = list(own) if own else named or _found(file.parent)
    has = hardware_of(settings.cluster("local"))
    assert has is not None
    here = draft(has, chosen, _python(file.parent) if chosen else None)
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
    argv = started(words)
    found = argv[-len(words) :] == words or (project / words[0]).is_file()
    return argv if found else words  # looked up on PATH


def _found(project: Path) -> list[str] | None:
    """The script that is probably the program, with its seed's place; None if there is none or several."""
    scripts = sorted(path.name for path in project.glob("*.py") if path.is_file())
    usual = [name for name in _USUAL if name in scripts]
    if not usual and len(scripts) != 1:
        return None
    return with_seed(project, ["python", (usual or scripts)[0]])


def _python(project: Path) -> str | None:
    """The interpreter of the project's own environment, if it is not clusterkit's."""
    found = project_python(project)
    own = found and Path(found).parent.parent.resolve() == Path(sys.prefix).resolve()
    return None if own else found
