"""diff: compare two runs, from their local copies or, without one, from their clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

from clusterkit.errors import RunError
from clusterkit.results import metrics
from clusterkit.results.recorded import read_recorded
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.run_dir import read_run_dir
from clusterkit.sharing.comparison import Changed, ComparedCode, Comparison, changed_in, compare
from clusterkit.sharing.description import Description, describe
from clusterkit.site import connected
from clusterkit.snapshots import git
from clusterkit.snapshots.collect import left_out
from clusterkit.submit.materials import excluded
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


def pair(ledger: Ledger, named: Sequence[str]) -> tuple[str, str]:
    """Completes the names of the two runs to compare: the earlier one first.

    Args:
        ledger: knows the order in which runs were submitted.
        named: two names; one, to compare that run with the one before it; or none, for the last two.

    Raises:
        RunError: the run is unknown, or no run was submitted before it.
    """
    if len(named) == 2:
        return named[0], named[1]
    known = ledger.runs()
    if len(known) < 2:
        raise RunError(
            f"there is nothing to compare: this project has {len(known) or 'no'} run{'s' * (not known)}",
            hint="`clusterkit submit` starts one",
        )
    later = ledger.find_one(named[0]) if named else known[-1]
    place = known.index(later)
    if place == 0:
        raise RunError(
            f"no run was submitted before {later.run_id}",
            hint=f"name the run to compare it with: `clusterkit diff {later.run_id} RUN`",
        )
    return known[place - 1].run_id, later.run_id


def diff(settings: Settings, ledger: Ledger, a: str, b: str) -> Comparison:
    """Compare two runs.

    Args:
        settings: of the project.
        ledger: finds runs that were not synced.
        a: a run, or the path of a run directory.
        b: likewise.

    Raises:
        RunError: a run is unknown, or cannot be read.
        TransportError: a run has no local copy and its cluster cannot be reached.
    """
    with ExitStack() as stack:
        transport_to = cache(lambda name: stack.enter_context(connected(settings.cluster(name))))
        old, new = (_describe(settings, ledger, name, transport_to) for name in (a, b))
    return compare(old, new, _code(settings, old, new))


def _describe(
    settings: Settings, ledger: Ledger, name: str, transport_to: Callable[[str], Transport]
) -> Description:
    found = read_recorded(settings.project.results, ledger, name, transport_to)
    if found.folder is None:
        assert found.run is not None, "else it is not known where it lies"
        where = f"{found.run.cluster}:{found.run.run_dir}"
        return describe(found.document, where, request=found.request)
    rows = metrics.read(found.folder / "metrics.jsonl")
    attempts = read_run_dir(found.folder).attempts
    return describe(found.document, str(found.folder), request=found.request, rows=rows, attempts=attempts)


def _code(settings: Settings, a: Description, b: Description) -> ComparedCode:
    """The code differences, without files such as results, which may be in git but are not code."""
    project = settings.project_dir
    elsewhere = left_out(project, excluded(settings))
    old, new = a.snapshot, b.snapshot
    if old.get("id") == new.get("id"):
        return ComparedCode()
    between: tuple[Changed, ...] | None = ()
    commits = str(old.get("git_commit") or ""), str(new.get("git_commit") or "")
    if commits[0] != commits[1]:
        files = git.between(project, *commits) if all(commits) else None
        between = (
            None if files is None else tuple(Changed(*each) for each in files if not elsewhere.match(each[0]))
        )
    return ComparedCode(between, *(changed_in(str(one.get("diff") or "")) for one in (old, new)))
