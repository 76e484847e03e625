"""What the shell may complete a word of the command line to.

Only from what lies here: the command line itself, the ledger, the settings files and the results folder. No
cluster is asked, and what is absent or broken completes to nothing, silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import ClusterkitError

if TYPE_CHECKING:
    from clusterkit.runs.ledger import LedgerRun

_SAFE = re.compile(r"[\w.@%+:,/=-]+")
"""Values that no shell takes for anything but a word; others are not offered."""
_MOST = 200
"""Runs that are offered, the newest ones."""

Candidate = tuple[str, str]
"""A value, and what is said about it; empty for nothing."""


@dataclass(frozen=True)
class ProjectFolder:
    """The project of the command line that is completed."""

    config: Path | None
    """What `--config` names, or the nearest clusterkit.toml."""
    folder: Path
    words: tuple[str, ...]
    """The arguments that stand before."""

    def tables(self) -> Iterator[Mapping[str, Any]]:
        """The user's settings file and the project's, as far as they can be read."""
        from clusterkit.config.sources import read_layer, user_file

        for file in (user_file(), self.config):
            try:
                if file:
                    yield read_layer(file).data
            except ClusterkitError:
                continue

    def keys(self, table: str) -> list[str]:
        """The keys of a table in these files."""
        found = (values.get(table) for values in self.tables())
        return [key for one in found if isinstance(one, dict) for key in one]

    def runs(self) -> list[LedgerRun]:
        """The runs of the ledger, the newest first."""
        import sqlite3

        from clusterkit.runs.ledger import Ledger

        path = self.folder / ".clusterkit" / "ledger.sqlite3"
        try:
            if not path.is_file():
                return []
            with Ledger.for_reading(path) as ledger:
                return ledger.runs()[::-1]
        except (ClusterkitError, sqlite3.Error, OSError):
            return []


Source = Callable[[ProjectFolder], Iterable[Candidate]]


def project(config: str | None, words: Iterable[str]) -> ProjectFolder:
    """The project that a command line with this `--config` is about."""
    from clusterkit.config.sources import find_project_file

    here = Path.cwd()
    file = Path(config) if config else find_project_file(here)
    return ProjectFolder(file, file.resolve().parent if file else here, tuple(words))


def _runs(at: ProjectFolder) -> Iterator[Candidate]:
    runs = at.runs()
    if runs:
        yield "last", runs[0].run_id
    for run in runs[:_MOST]:
        yield run.run_id, f"{run.state}, {run.profile}"


def _runs_and_groups(at: ProjectFolder) -> Iterator[Candidate]:
    yield from _runs(at)
    yield from _groups(at)


def _groups(at: ProjectFolder) -> Iterator[Candidate]:
    sizes: dict[str, int] = {}
    for run in at.runs():
        if run.group:
            sizes[run.group] = sizes.get(run.group, 0) + 1
    for group, size in list(sizes.items())[:_MOST]:
        yield group, f"{size} runs"


def _run_names(at: ProjectFolder) -> Iterator[Candidate]:
    return ((name, "") for name in dict.fromkeys(run.name for run in at.runs()))


def _clusters(at: ProjectFolder) -> Iterator[Candidate]:
    return ((name, "") for name in dict.fromkeys([*at.keys("clusters"), "local"]))


def _profiles(at: ProjectFolder) -> Iterator[Candidate]:
    from clusterkit.resources import resource

    shipped = sorted(file.stem for file in resource("templates", "profiles").glob("*.toml"))
    return ((name, "") for name in dict.fromkeys([*at.keys("profiles"), *shipped]))


def _states(_at: ProjectFolder) -> Iterator[Candidate]:
    from clusterkit.backends.jobs import JobState

    return ((name, "") for name in ("active", "ended", *(state.value.lower() for state in JobState)))


def _recipe_keys(_at: ProjectFolder) -> Iterator[Candidate]:
    from trainer import recipe

    keys = dict.fromkeys(key for name in recipe.names() for key in recipe.load(name).values)
    return ((key, "") for key in sorted(keys))


def _assignments(at: ProjectFolder) -> Iterator[Candidate]:
    return ((f"{key}=", about) for key, about in _recipe_keys(at))


def _axes(at: ProjectFolder) -> Iterator[Candidate]:
    from trainer import recipe

    yield from (("seed=", "also as --seeds"), ("lr=", "actor_lr, critic_lr and alpha_lr"), ("task=", ""))
    yield from ((f"profile={name}", "") for name, _ in _profiles(at))
    yield from ((f"recipe={name}", "") for name in recipe.names())
    yield from _assignments(at)


def _tasks(_at: ProjectFolder) -> Iterator[Candidate]:
    from trainer import recipe

    return ((task, "") for task in recipe.task_names("MT50"))


def _checkpoints(at: ProjectFolder) -> Iterator[Candidate]:
    yield from (("last", "the newest"), ("best", "by its evaluations"))
    results = at.folder / next(
        (
            str(given["results"])
            for values in reversed(list(at.tables()))
            if isinstance(given := values.get("project"), dict) and "results" in given
        ),
        "results",
    )
    newest = next((run.run_id for run in at.runs()), "")
    for name in ("".join(word for word in at.words if (results / word).is_dir()), newest):
        folders = sorted((results / name / "checkpoints").glob("step-*"), reverse=True) if name else []
        if folders:
            yield from ((folder.name, "") for folder in folders)
            return


def _keys(at: ProjectFolder) -> Iterator[Candidate]:
    yield "project", ""
    for table, source in (("clusters", _clusters), ("profiles", _profiles)):
        yield from ((f"{table}.{name}", "") for name, _ in source(at))


def _hosts(_at: ProjectFolder) -> Iterator[Candidate]:
    from clusterkit.transport.hosts import configured_hosts

    return ((name, "") for name in configured_hosts())


def _examples(_at: ProjectFolder) -> Iterator[Candidate]:
    from clusterkit.resources import resource

    return ((file.stem, "") for file in sorted(resource("templates", "clusters").glob("*.toml")))


def _these(*values: str) -> Source:
    return lambda _at: ((value, "") for value in values)


FILES = ("FILE", "FOLDER", "IMAGE.sif", "FILE.tar.zst", "PATH")
"""Metavars of files: the shell completes them itself."""

BY_OPTION: Mapping[str, Source] = {
    "--cluster": _clusters,
    "--on": _clusters,
    "--name": _run_names,
    "--checkpoint": _checkpoints,
    "--set": _assignments,
    "--unlock": _recipe_keys,
    "--sweep": _axes,
    "--bootstrap": _these("docker", "debootstrap", "localimage"),
    "--example": _examples,
    "--from": _these("docker-daemon:", "docker-archive:", "oci:", "docker://"),
}
"""Options whose metavar does not tell what they take."""

BY_METAVAR: Mapping[str, Source] = {
    "RUN": _runs_and_groups,
    "RUN|ARCHIVE": _runs,
    "A": _runs,
    "B": _runs,
    "GROUP": _groups,
    "CLUSTER": _clusters,
    "PROFILE": _profiles,
    "STATE": _states,
    "TASK": _tasks,
    "KEY": _keys,
    "HOST": _hosts,
    "RUNTIME": _these("apptainer", "singularity", "none"),
}


def values_of(option: str, metavar: str, at: ProjectFolder) -> list[Candidate]:
    """What an option or an argument may be given.

    Args:
        option: its long name; empty for an argument.
        metavar: what stands for its value in the help; `a|b|c` are the values themselves.
        at: the project.
    """
    source = BY_OPTION.get(option) or BY_METAVAR.get(metavar)
    if source is None and re.fullmatch(r"[a-z]+(\|[a-z]+)+", metavar):
        source = _these(*metavar.split("|"))
    found = source(at) if source else ()
    return [(value, _plain(about)) for value, about in found if _SAFE.fullmatch(value)]


def _plain(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
