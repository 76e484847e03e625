"""What commands begin with: a project's settings and ledger, and a request for runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import ConfigError
from clusterkit.units import parse_duration, parsed

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.submit.request import SubmitRequest
    from clusterkit.submit.sweep import SweepAxis

_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


def load(config: Path | None, start: Path | None = None) -> Settings:
    """Loads a project's settings.

    Args:
        config: the settings file; None searches for it.
        start: the folder where the search begins; None is the current one.

    Raises:
        ConfigError: the settings are wrong.
    """
    with without_plugins():
        from clusterkit.config.settings import load_settings

    return load_settings(config=config, start=start)


def load_project(config: Path | None, start: Path | None = None) -> Settings:
    """Loads settings as `load` does, for what starts a program or sends the project's code.

    Raises:
        ConfigError: there is no settings file of a project, and so no project.
    """
    settings = load(config, start)
    _must_be_project(settings, None)
    return settings


@contextmanager
def without_plugins() -> Iterator[None]:
    """Keeps pydantic from searching all installed packages for plugins when models are defined inside."""
    before = os.environ.get(_NO_PLUGINS)
    os.environ[_NO_PLUGINS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_PLUGINS]  # the user's own programs inherit the environment
        else:
            os.environ[_NO_PLUGINS] = before


def open_ledger(settings: Settings, *, only_reads: bool = False, of: Iterable[str] | None = None) -> Ledger:
    """Opens this project's ledger, and removes files that a killed command left beside it.

    Args:
        settings: the project's settings.
        only_reads: the command also works with a read-only ledger, and then does not store what it learns.
        of: the runs or folders named by a command about earlier runs; None for any other command.

    Raises:
        ConfigError: a command about earlier runs was called outside any project.
    """
    from clusterkit.folders import sweep
    from clusterkit.runs.ledger import Ledger

    home = settings.project_dir / ".clusterkit"
    if of is not None and not any(os.path.lexists(name) for name in of):
        _must_be_project(settings, home)
    path = home / "ledger.sqlite3"
    ledger = Ledger.for_reading(path) if only_reads else Ledger(path)
    sweep(home)  # what is opened is no link
    if (home / "ssh").is_dir():
        from clusterkit.interactive.ssh_keys import forget_ended

        forget_ended(home, ledger.runs())
    return ledger


def _must_be_project(settings: Settings, runs: Path | None) -> None:
    """Refuses a folder without a project's settings, unless it has the folder `runs` of earlier runs."""
    folder = settings.project_dir
    if settings.of_project or (runs and runs.exists()):
        return
    where = "`cd` into the project; or `clusterkit init --local` begins one here"
    if runs and (above := next((each for each in folder.parents if (each / runs.name).is_dir()), None)):
        where = f"`cd {shlex.quote(str(above))}`, where runs were submitted"
    also = f", and no {runs.name} here" if runs else ""
    raise ConfigError(f"{folder}: no project: no clusterkit.toml here or above{also}", hint=where)


def request_of(
    settings: Settings,
    *,
    profile: str | None = None,
    cluster: str | None = None,
    arguments: Sequence[str] = (),
    axes: Sequence[SweepAxis] = (),
    then: Sequence[str] = (),
    time: str | None = None,
    total_steps: int | None = None,
    gpus: int | None = None,
    nodes: int | None = None,
) -> tuple[Settings, SubmitRequest]:
    """Returns a request for runs, and the settings with its changes to their profiles.

    Args:
        settings: the project's settings.
        profile: name of the profile; None is the default one.
        cluster: name of the cluster; None is the default one.
        arguments: of the program.
        axes: the sweep's axes, which may choose profiles.
        then: profiles of the following stages.
        time: time limit, instead of the profiles'.
        total_steps: instead of the profiles'.
        gpus: GPUs of each node, instead of the profiles'.
        nodes: instead of the profiles'.

    Raises:
        ConfigError: a name or value is wrong, or nothing names a program.
    """
    from clusterkit.submit.request import SubmitRequest

    swept = any(axis.name in ("profile", "recipe") for axis in axes)
    chosen = settings.profile(profile).name if swept else chosen_profile(settings, profile, arguments)
    stages = {chosen, *then, *(value for axis in axes if axis.name == "profile" for value in axis.values)}
    if time:
        parsed("--time", parse_duration, time)
    asked = {"time": time, "total_steps": total_steps, "gpus": gpus, "nodes": nodes}
    changed = {key: value for key, value in asked.items() if value}
    if changed:
        profiles = {settings.profile(name).name: changed for name in stages}
        settings = settings.with_values({"profiles": profiles})
    typed = {"--time": time, "--total-steps": total_steps, "--nodes": nodes}
    request = SubmitRequest(
        cluster=settings.cluster(cluster),
        profile=settings.profile(chosen),
        arguments=tuple(arguments),
        given=tuple(word for name, value in typed.items() if value for word in (name, str(value))),
        axes=tuple(axes),
        then=tuple(then),
    )
    return settings, request


def chosen_profile(settings: Settings, name: str | None, arguments: Sequence[str] = ()) -> str:
    """Returns the name of the profile to run; None is the default one, if anything names a program.

    Raises:
        ConfigError: the name is unknown; or nothing names a program, or only the arguments after `--` do.
    """
    if name is None and settings.project.program is None:
        from clusterkit.submit.own_program import check_arguments

        check_arguments(settings.project_dir, arguments, None)
    return settings.profile_to_run(name).name


def with_command(settings: Settings, words: Sequence[str]) -> tuple[Settings, list[str]]:
    """Returns the settings by which a command's program runs, and its arguments.

    A program among the words takes the place of the one that is set, for the runs of these settings.

    Args:
        settings: the project's settings.
        words: the program and its arguments, or only arguments of the project's program.
    """
    from clusterkit.submit.own_program import command_argv, split_command, with_places

    folder, own = settings.project_dir, list(settings.project.program or ())
    named, arguments = split_command(folder, words)
    argv = command_argv(folder, named) if named else own
    if argv and argv != own[: len(argv)]:
        settings = settings.with_values({"project": {"program": with_places(folder, argv, arguments)}})
    return settings, arguments
