"""Helpers that several commands share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clusterkit.cli.guide import Command
from clusterkit.errors import ConfigError
from clusterkit.units import parse_duration

if TYPE_CHECKING:
    from clusterkit.config.models import Profile
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.snapshots import Allow, Large
    from clusterkit.submit.request import Changes

_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
Value = TypeVar("Value")


class ProgramCommand(Command):
    """Accepts program arguments only after `--`, so that forgetting `--profile` does not submit a run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rejects program arguments before `--`."""
        behind = args[args.index("--") + 1 :] if "--" in args else []
        rest = super().parse_args(ctx, args)
        given = ctx.params.get("arguments") or []
        if len(given) > len(behind) and not ctx.resilient_parsing:  # not during shell completion
            raise ConfigError(
                f"unexpected argument {given[0]!r}",
                hint="name a profile with `--profile`; put the program's own arguments last, after `--`",
            )
        return rest


def load(config: Path | None) -> Settings:
    """Loads this project's settings."""
    with without_plugins():
        from clusterkit.config.settings import load_settings

    return load_settings(config=config)


def load_project(config: Path | None) -> Settings:
    """Loads the settings for a command that starts a program or sends the project's code.

    Raises:
        ConfigError: there is no settings file of a project, and so no project.
    """
    settings = load(config)
    _must_be_project(settings, None)
    return settings


def chosen_profile(settings: Settings, name: str | None, arguments: Sequence[str] | None = None) -> str:
    """Returns the name of the profile to run; None is the default one, if anything names a program.

    Raises:
        ConfigError: the name is unknown; or nothing names a program, or only the arguments after `--` do.
    """
    if name is None and settings.project.program is None:
        from clusterkit.submit.own_program import check_arguments

        check_arguments(settings.project_dir, arguments or (), None)
    return settings.profile_to_run(name).name


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


def asking_for(
    settings: Settings,
    profiles: Iterable[str],
    *,
    time: str | None,
    total_steps: int | None,
    gpus: int | None = None,
    nodes: int | None = None,
) -> Settings:
    """Returns the settings with the command line's values applied to these profiles.

    Raises:
        ConfigError: a value is wrong.
    """
    if time:
        parsed("--time", parse_duration, time)
    asked = {"time": time, "total_steps": total_steps, "gpus": gpus, "nodes": nodes}
    given = {key: value for key, value in asked.items() if value}
    changed = {settings.profile(name).name: given for name in profiles}
    return settings.with_values({"profiles": changed}) if given else settings


def note_unread(settings: Settings, profiles: Iterable[Profile]) -> None:
    """Says what the user's files set in these profiles and the user's own program does not get."""
    for profile in {profile.name: profile for profile in profiles}.values():
        if keys := settings.unread(profile):
            from clusterkit.cli.ui.console import note  # deferred: most settings are worth no note

            words = ", ".join(keys)
            note(f"{profile.name}: only the bundled trainer reads {words}; your program gets nothing of it")


def given_words(time: str | None, total_steps: int | None, nodes: int | None) -> tuple[str, ...]:
    """Returns the options that `asking_for` applied to a profile, as typed on the command line."""
    given = {"--time": time, "--total-steps": total_steps, "--nodes": nodes}
    return tuple(word for name, value in given.items() if value for word in (name, str(value)))


def native_words(texts: list[str] | None) -> tuple[str, ...]:
    """Normalizes `--sbatch` values, given with or without leading dashes, to `--name=value`."""
    return tuple(text if text.startswith("-") else f"--{text}" for text in texts or ())


def parsed(option: str, parse: Callable[[str], Value], text: str) -> Value:
    """Parses an option's value, such as a time or a size.

    Args:
        option: the option's name, for the error.
        parse: raises ValueError for an invalid value.
        text: the value as given.

    Raises:
        ConfigError: the value is invalid.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


def changes(
    settings: Settings,
    *,
    profile: str | None,
    cluster: str | None,
    time: str | None,
    total_steps: int | None,
    until_done: bool | None,
    native: list[str] | None,
) -> Changes:
    """Collects the options of `resume` and `rerun` that change a run when it is submitted again.

    Raises:
        ConfigError: the profile or cluster does not exist, or the time is invalid.
    """
    from clusterkit.submit.request import Changes

    return Changes(
        profile=None if profile is None else settings.profile(profile),
        cluster=None if cluster is None else settings.cluster(cluster).name,
        time=None if time is None else parsed("--time", parse_duration, time),
        total_steps=total_steps,
        until_done=until_done,
        native=native_words(native),
    )


def large_files(send: bool) -> Allow:
    """Returns what approves files over the size limit: the option, or the user at the terminal."""

    def approved(files: Sequence[Large], limit: int) -> bool:
        from clusterkit.asking import at_terminal
        from clusterkit.cli.ui.deploy import ask_about_large

        return send or (at_terminal() and ask_about_large(files, limit))

    return approved
