"""diff: what differs between two runs, from what is here; of a run that is not here, from its cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import RunError
from clusterkit.ledger import Ledger
from clusterkit.report.metrics import parse
from clusterkit.run_dir import newest_request, read_run_dir
from clusterkit.sharing.comparison import Changed, Code, Comparison, changed_in, compare
from clusterkit.sharing.description import Description, describe
from clusterkit.site import connected
from clusterkit.snapshots import git
from clusterkit.transport.base import Transport
from clusterkit.verbs.report import find_pulled

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

_READ = (
    'cat "$1/run.json" || exit 1; printf "\\036"; '
    'newest=$(ls "$1/submissions" 2>/dev/null | sort -n | tail -n 1); '
    'test -z "$newest" || cat "$1/submissions/$newest/request.json" 2>/dev/null || true'
)
"""run.json and the newest request.json of the run directory $1, with a record separator between."""


def diff(settings: Settings, ledger: Ledger, a: str, b: str) -> Comparison:
    """Compare two runs.

    Args:
        settings: of the project.
        ledger: knows the runs that are not here.
        a: a run, or a folder with one.
        b: likewise.

    Raises:
        RunError: a run is not known, or cannot be read.
        TransportError: a run is not here and its cluster cannot be reached.
    """
    with ExitStack() as stack:
        cluster_of = cache(lambda name: stack.enter_context(connected(settings.cluster(name))))
        old, new = (_describe(settings, ledger, name, cluster_of) for name in (a, b))
    return compare(old, new, _code(settings.project_dir, old, new))


def _describe(
    settings: Settings, ledger: Ledger, name: str, cluster_of: Callable[[str], Transport]
) -> Description:
    try:
        (folder,) = find_pulled(settings.project.results, [name], ledger)
    except RunError:
        (run,) = ledger.find([name])  # what is wrong with the name shows here
        done = cluster_of(run.cluster).run(["sh", "-c", _READ, "sh", run.run_dir], check=False)
        document, _, request = done.text.partition("\x1e")
        if done.returncode != 0:
            raise RunError(
                f"{run.run_id}: there is no run directory {run.run_dir} on {run.cluster}",
                hint="`clusterkit status` tells what became of it",
            ) from None
        return describe(
            json.loads(document),
            f"{run.cluster}:{run.run_dir}",
            request=json.loads(request) if request else None,
        )
    directory = read_run_dir(folder)
    try:
        with (folder / "metrics.jsonl").open("rb") as lines:
            rows = parse(lines)
    except FileNotFoundError:
        rows = []
    return describe(
        directory.document,
        str(folder),
        request=newest_request(folder),
        rows=rows,
        attempts=directory.attempts,
    )


def _code(project: Path, a: Description, b: Description) -> Code:
    old, new = a.snapshot, b.snapshot
    if old.get("id") == new.get("id"):
        return Code()
    between: tuple[Changed, ...] | None = ()
    commits = str(old.get("git_commit") or ""), str(new.get("git_commit") or "")
    if commits[0] != commits[1]:
        files = git.between(project, *commits) if all(commits) else None
        between = None if files is None else tuple(Changed(*each) for each in files)
    return Code(between, *(changed_in(str(one.get("diff") or "")) for one in (old, new)))
