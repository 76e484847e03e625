"""A project as a Python program has it: where runs begin, and where earlier ones are found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.api.runs import Runs, no_bar
from clusterkit.api.words import in_python
from clusterkit.errors import ConfigError
from clusterkit.project import load_project, open_ledger, request_of, with_command
from clusterkit.submit import pipeline
from clusterkit.submit.sweep import axes, write_values

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


def open_project(path: str | Path = ".") -> Project:
    """Opens a project.

    Args:
        path: a folder, in or above which a clusterkit.toml lies; or that file.

    Raises:
        ConfigError: there is no such project, or its settings are wrong.
    """
    place = Path(path)
    return Project(load_project(None, place) if place.is_dir() else load_project(place))


class Project:
    """A project, as `clusterkit.open` makes it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        return f"<project {self.settings.project.name}, {self.settings.project_dir}>"

    @in_python
    def submit(
        self,
        command: Sequence[str] = (),
        *,
        profile: str | None = None,
        cluster: str | None = None,
        name: str | None = None,
        seed: int | None = None,
        seeds: Iterable[int] = (),
        sweep: Mapping[str, Iterable[object]] | None = None,
        total_steps: int | None = None,
        time: str | None = None,
        nodes: int | None = None,
        until_done: bool | None = None,
        max_parallel: int | None = None,
        pack: int = 1,
        allow_unread: bool = False,
        send_large: bool = False,
    ) -> Runs:
        """Submits a run, or a group of runs, and does not wait for it.

        Args:
            command: the program and its arguments, or only arguments of the project's program.
            profile: None is the project's default.
            cluster: None is the project's default.
            name: None is the profile's.
            seed: of a single run.
            seeds: one run for each.
            sweep: values by name; one run for each combination.
            total_steps: instead of the profile's.
            time: the limit, such as "4h", instead of the profile's.
            nodes: instead of the profile's.
            until_done: whether to continue past the time limit; None is as the settings have it.
            max_parallel: the most jobs of a group at a time.
            pack: how many runs share a job and its GPU.
            allow_unread: submit although a seed or value does not reach the program.
            send_large: send files above `max_file_size`.

        Raises:
            ClusterkitError: as `clusterkit submit` fails.
        """
        if isinstance(command, str):
            hint = f"write {command.split()!r}; a profile is named with profile=..."
            raise ConfigError(f"{command!r}: a command is a list of words", hint=hint)
        settings, arguments = with_command(self.settings, [str(word) for word in command])
        swept = [f"{key}={write_values(map(str, values))}" for key, values in (sweep or {}).items()]
        settings, request = request_of(
            settings,
            profile=profile,
            cluster=cluster,
            arguments=arguments,
            axes=axes(",".join(map(str, seeds)) or None, swept),
            time=time,
            total_steps=total_steps,
            nodes=nodes,
        )
        request = replace(
            request,
            name=name,
            seed=seed,
            until_done=until_done,
            max_parallel=max_parallel,
            pack=pack,
            allow_unread=allow_unread,
            allow_large=lambda *_: send_large,
        )
        with open_ledger(settings) as ledger:
            done = pipeline.submit(settings, pipeline.resolve(settings, request), ledger, bar=no_bar)
        if done.trouble:
            raise done.trouble
        return Runs(self.settings, done.runs, {run.spec.run_id: run.spec.sweep or {} for run in done.placed})

    def runs(self, *names: str) -> Runs:
        """Returns earlier runs.

        Args:
            names: as a command takes them: ids of runs and groups, their beginnings, "last"; none for all.

        Raises:
            RunError: a name matches no run.
        """
        with open_ledger(self.settings, only_reads=True, of=names) as ledger:
            return Runs(self.settings, ledger.find(names) if names else ledger.runs())
