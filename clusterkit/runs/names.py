"""Finds the runs that a name means, by one rule for every command. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from clusterkit.errors import RunError
from clusterkit.units import listed


class Named(Protocol):
    """The names of a run."""

    @property
    def run_id(self) -> str: ...  # noqa: D102
    @property
    def job_id(self) -> str: ...  # noqa: D102
    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def short(self) -> str: ...  # noqa: D102


_Run = TypeVar("_Run", bound=Named)

_DAY = len("20260102")
"""Digits of a day in an id; a short name has fewer."""
_NAMED = 4
"""Maximum number of run ids in a message."""


def find(known: list[_Run], names: Iterable[str]) -> list[_Run]:
    """Finds runs by run id, short name, unique prefix, job id or `last`, and all members of a group.

    A group's id or short name, a prefix of its id, the id of its job array, and `last` if it was submitted
    last mean all of its runs.

    Args:
        known: all runs, oldest first.
        names: the names as typed.

    Raises:
        RunError: a name is empty, matches no run, or matches several that are not a group.
    """
    found: list[_Run] = []
    for name in names:
        if not name:  # a script's unset variable; it would be a prefix of every run id
            raise RunError("the name of a run is empty", hint="`clusterkit status` lists the runs")
        matches = _matching(name, known)
        if not matches and known:
            raise RunError(f"no run {name!r} is known in this project", hint="`clusterkit status` lists them")
        if not matches:
            raise RunError(
                f"no run {name!r}: none was submitted here yet",
                hint="`clusterkit submit` starts one; `clusterkit status` finds those of another laptop",
            )
        if len(matches) > 1 and not _is_group(name, matches):
            raise RunError(
                f"{name!r} may mean {listed(_choices(matches), _NAMED)}",
                hint="give more of the run id, or of the group's",
            )
        found += matches
    return found


def find_one(known: list[_Run], name: str) -> _Run:
    """Finds the single run that a name means, for commands that take one.

    Raises:
        RunError: as `find`, or the name means several runs.
    """
    return only(find(known, [name]), name)


def only(runs: Sequence[_Run], name: str) -> _Run:
    """Returns the single run that `find` returned for a name.

    Raises:
        RunError: `find` returned several.
    """
    if len(runs) > 1:
        raise RunError(
            f"{name!r} means the {len(runs)} runs of group {runs[0].group}; this command needs one run",
            hint=f"name one of them: {listed([run.run_id for run in runs], _NAMED)}",
        )
    return runs[0]


def _matching(name: str, known: list[_Run]) -> list[_Run]:
    """Returns the runs that a name may mean, by the first kind of name that matches any."""
    if name == "last":
        newest = known[-1:]
        group = newest[0].group if newest else ""
        return [run for run in known if run.group == group] if group else newest
    return (
        [run for run in known if name == run.run_id]
        or [run for run in known if name == run.group]
        or [run for run in known if name in (run.short, run.short.partition("/")[0])]
        or [run for run in known if name in (run.job_id, run.job_id.partition("_")[0])]
        or [run for run in known if _begins(run.run_id, name, run)]
    )


def in_group(run: Named, name: str) -> bool:
    """Returns whether a run is of the group that a name, or the beginning of an id, means."""
    return bool(run.group) and (name == run.short.partition("/")[0] or _begins(run.group, name, run))


def label(run: Named) -> str:
    """Returns the short name of a run; the id of one that has none."""
    return run.short or run.run_id


def group_label(run: Named) -> str:
    """Returns the short name of a run's group; the id of one that has none."""
    return run.short.partition("/")[0] or run.group


def _begins(identity: str, name: str, run: Named) -> bool:
    """Returns whether an id begins so; a short name that no run has yet is the beginning of none."""
    stem, _, number = name.partition("/")[0].rpartition("-")
    of_project = stem != "" and stem == run.short.partition("/")[0].rpartition("-")[0]
    is_short = of_project and number.isdecimal() and len(number) < _DAY
    return identity.startswith(name) and not is_short


def _is_group(name: str, runs: list[_Run]) -> bool:
    """Returns whether a name means a whole group; a name longer than the group's id means single members."""
    groups = {run.group for run in runs}
    whole = name in ("last", group_label(runs[0])) or len(name) <= len(runs[0].group)
    return len(groups) == 1 and "" not in groups and whole


def _choices(runs: Sequence[_Run]) -> list[str]:
    """Returns what an ambiguous name may mean: runs of one group, or else runs and whole groups."""
    if len({run.group for run in runs}) == 1:
        return [run.run_id for run in runs]
    sizes: dict[str, int] = {}
    for run in runs:
        sizes[run.group or run.run_id] = sizes.get(run.group or run.run_id, 0) + 1
    return [f"{name} ({size} runs)" if size > 1 else name for name, size in sizes.items()]
