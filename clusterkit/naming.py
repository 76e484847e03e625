"""Which runs a person means by a name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from clusterkit.errors import RunError


class Named(Protocol):
    """By what a run is known."""

    @property
    def run_id(self) -> str: ...  # noqa: D102
    @property
    def job_id(self) -> str: ...  # noqa: D102
    @property
    def group(self) -> str: ...  # noqa: D102


_Run = TypeVar("_Run", bound=Named)


def find(known: list[_Run], names: Iterable[str]) -> list[_Run]:
    """Runs by run id, unique beginning of a run id, job id, or `last`; all members of a group by its id.

    A group's id, the beginning of one, the id of its job array, and `last` after it was submitted, mean all
    of its runs.

    Args:
        known: all runs, oldest first.
        names: as they were typed.

    Raises:
        RunError: a name matches no run, or several.
    """
    found: list[_Run] = []
    for name in names:
        matches = _matching(name, known) if name else []  # every id begins with nothing
        if not matches and known:
            raise RunError(f"no run {name!r} is known in this project", hint="`clusterkit status` lists them")
        if not matches:
            raise RunError(
                f"no run {name!r}: none was submitted here yet",
                hint="`clusterkit submit` starts one; `clusterkit status` finds those of another laptop",
            )
        if len(matches) > 1 and not _is_group(name, matches):
            ids = ", ".join(run.run_id for run in matches[:4])
            raise RunError(f"{name!r} matches {len(matches)} runs: {ids}", hint="give more of the run id")
        found += matches
    return found


def _matching(name: str, known: list[_Run]) -> list[_Run]:
    """The runs a name may mean: the first kind of name that fits decides."""
    if name == "last":
        newest = known[-1:]
        group = newest[0].group if newest else ""
        return [run for run in known if run.group == group] if group else newest
    return (
        [run for run in known if name == run.run_id]
        or [run for run in known if name == run.group]
        or [run for run in known if name in (run.job_id, run.job_id.partition("_")[0])]
        or [run for run in known if run.run_id.startswith(name)]
    )


def _is_group(name: str, runs: list[_Run]) -> bool:
    """Whether runs are meant as a group: not by a text longer than its id, the beginning of some members'."""
    groups = {run.group for run in runs}
    return len(groups) == 1 and "" not in groups and (name == "last" or len(name) <= len(runs[0].group))
