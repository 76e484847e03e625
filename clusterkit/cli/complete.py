"""Completion candidates for words of the command line.

They come only from local sources: the command line itself, the ledger, the settings files and the results
folder. No cluster is contacted, and a missing or broken source silently yields nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import ClusterkitError
from clusterkit.resources import DOCS
from clusterkit.runs.names import group_label
from clusterkit.runtimes import BUILT_IN

if TYPE_CHECKING:
    from clusterkit.runs.ledger import LedgerRun

_SAFE = re.compile(r"[\w.@%+:,/=-]+")
"""Values that every shell reads as one plain word; others are not offered."""
_MOST = 200
"""The maximum number of runs to offer; the newest ones are kept."""

_SHORT_NAMES = (("lr=", "every learning rate"), ("task=", "the recipe of that task"))
"""Short names of recipe values, for --set and --sweep."""

Candidate = tuple[str, str]
"""A value and its description, which may be empty."""


@dataclass(frozen=True)
class ProjectFolder:
    """The project that the command line being completed refers to."""

    config: Path | None
    """The file given by `--config`, or the nearest clusterkit.toml."""
    folder: Path
    words: tuple[str, ...]
    """The arguments before the word being completed."""

    def tables(self) -> Iterator[Mapping[str, Any]]:
        """Yields the contents of the user's and the project's settings files, skipping unreadable ones."""
        from clusterkit.config.layers import read_layer, user_file

        for file in (user_file(), self.config):
            try:
                if file:
                    yield read_layer(file).data
            except ClusterkitError:
                continue

    def keys(self, table: str) -> list[str]:
        """Returns the keys of a table in these files."""
        found = (values.get(table) for values in self.tables())
        return [key for one in found if isinstance(one, dict) for key in one]

    def runs(self) -> list[LedgerRun]:
        """Returns the ledger's runs, newest first."""
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
    """Locates the project that a command line with this `--config` refers to."""
    from clusterkit.config.layers import find_project_file

    here = Path.cwd()
    file = Path(config) if config else find_project_file(here)
    return ProjectFolder(file, file.resolve().parent if file else here, tuple(words))


def _runs(at: ProjectFolder) -> Iterator[Candidate]:
    runs = at.runs()
    if runs:
        yield "last", runs[0].run_id
    yield from ((run.short, f"{run.state}, {run.run_id}") for run in runs[:_MOST] if run.short)
    yield from ((run.run_id, f"{run.state}, {run.profile}") for run in runs[:_MOST])


def _runs_and_groups(at: ProjectFolder) -> Iterator[Candidate]:
    yield from _runs(at)
    yield from _groups(at)


def _groups(at: ProjectFolder) -> Iterator[Candidate]:
    runs = [run for run in at.runs() if run.group]
    sizes = Counter(name for run in runs for name in dict.fromkeys((group_label(run), run.group)))
    return ((group, f"{size} run{'s' * (size != 1)}") for group, size in list(sizes.items())[:_MOST])


def _run_names(at: ProjectFolder) -> Iterator[Candidate]:
    return ((name, "") for name in dict.fromkeys(run.name for run in at.runs()))


def _clusters(at: ProjectFolder) -> Iterator[Candidate]:
    return ((name, "") for name in dict.fromkeys([*at.keys("clusters"), "local"]))


def _profiles(at: ProjectFolder) -> Iterator[Candidate]:
    from clusterkit.resources import TEMPLATES

    shipped = sorted(file.stem for file in (TEMPLATES / "profiles").glob("*.toml"))
    if "program" in at.keys("project"):  # the bundled trainer's are not for it
        shipped = []
    return ((name, "") for name in dict.fromkeys([*at.keys("profiles"), *shipped]))


def _states(_at: ProjectFolder) -> Iterator[Candidate]:
    from clusterkit.backends.jobs import JobState

    return ((name, "") for name in ("active", "ended", *(state.value.lower() for state in JobState)))


def _recipe_keys(_at: ProjectFolder) -> Iterator[Candidate]:
    from trainer import recipe

    keys = dict.fromkeys(key for name in recipe.names() for key in recipe.load(name).values)
    return ((key, "") for key in sorted(keys))


def _assignments(at: ProjectFolder) -> Iterator[Candidate]:
    yield from _SHORT_NAMES
    yield from ((f"{key}=", about) for key, about in _recipe_keys(at))


def _axes(at: ProjectFolder) -> Iterator[Candidate]:
    from trainer import recipe

    yield "seed=", "also as --seeds"
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
    yield from (("allow", "what the project names for this machine"), ("project", ""))
    for table, source in (("clusters", _clusters), ("profiles", _profiles)):
        yield from ((f"{table}.{name}", "") for name, _ in source(at))


def _hosts(_at: ProjectFolder) -> Iterator[Candidate]:
    from clusterkit.transport.hosts import configured_hosts

    return ((name, "") for name in configured_hosts())


def _examples(_at: ProjectFolder) -> Iterator[Candidate]:
    from clusterkit.resources import TEMPLATES

    return ((file.stem, "") for file in sorted((TEMPLATES / "clusters").glob("*.toml")))


def _these(*values: str) -> Source:
    return lambda _at: ((value, "") for value in values)


FILES = ("FILE", "FOLDER", "IMAGE.sif", "FILE.tar.zst", "PATH")
"""Metavars of file arguments, which the shell completes itself."""

BY_OPTION: Mapping[str, Source] = {
    "--cluster": _clusters,
    "--name": _run_names,
    "--checkpoint": _checkpoints,
    "--set": _assignments,
    "--unlock": _recipe_keys,
    "--sweep": _axes,
    "--bootstrap": _these("docker", "debootstrap", "localimage"),
    "--example": _examples,
    "--from": _these("docker-daemon:", "docker-archive:", "oci:", "docker://"),
}
"""Options whose metavar does not say what values they take."""

BY_METAVAR: Mapping[str, Source] = {
    "RUN": _runs_and_groups,
    "RUN|ARCHIVE": _runs_and_groups,
    "A": _runs,
    "B": _runs,
    "GROUP": _groups,
    "CLUSTER": _clusters,
    "PROFILE": _profiles,
    "STATE": _states,
    "TASK": _tasks,
    "KEY": _keys,
    "HOST": _hosts,
    "PAGE": lambda _at: ((file.stem, "") for file in sorted(DOCS.glob("*.md"))),
    "RUNTIME": _these(*BUILT_IN),
}


def values_of(option: str, metavar: str, at: ProjectFolder) -> list[Candidate]:
    """Lists the values that an option or an argument accepts.

    Args:
        option: the option's long name; empty for an argument.
        metavar: the placeholder shown in the help; `a|b|c` lists the values themselves.
        at: the project.
    """
    source = BY_OPTION.get(option) or BY_METAVAR.get(metavar)
    if source is None and re.fullmatch(r"[a-z]+(\|[a-z]+)+", metavar):
        source = _these(*metavar.split("|"))
    found = source(at) if source else ()
    return [(value, _plain(about)) for value, about in found if _SAFE.fullmatch(value)]


def _plain(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
