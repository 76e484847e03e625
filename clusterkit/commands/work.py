"""work push, work pull: exchange files between the project folder and the working copy of a live session."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clusterkit.folders import work_folder
from clusterkit.results import work_base
from clusterkit.results.work_here import ProjectFiles, changed_links, project_files
from clusterkit.results.work_plan import WorkPlan, new_base, plan_exchange, set_apart
from clusterkit.results.work_there import (
    WORK,
    WorkChange,
    arrived_folder,
    change_work,
    list_work,
    read_work,
)
from clusterkit.runs.ledger import LedgerRun
from clusterkit.site import connected
from clusterkit.snapshots.snapshot import ManifestEntry
from clusterkit.transport.base import Bar, SyncOptions, Transport

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

Way = Literal["push", "pull"]


@dataclass(frozen=True)
class WorkRequest:
    """What an exchange is to do."""

    way: Way
    delete: bool = False
    """Whether deletions travel."""
    force: bool = False
    """Whether it replaces files that both sides have changed."""
    dry_run: bool = False


@dataclass(frozen=True)
class Exchanged:
    """What an exchange did, or would do."""

    run_id: str
    sent: tuple[str, ...]
    removed: tuple[str, ...]
    conflicts: tuple[str, ...]
    """Files that both sides have changed, left as they are."""
    deleted: tuple[str, ...]
    """Files that one side has deleted and the other keeps, as `delete` was not asked for."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Path -> why it does not travel."""


@dataclass(frozen=True)
class _Sides:
    """Both sides of an exchange and what they agreed on last."""

    base: Mapping[str, ManifestEntry]
    links: Mapping[str, ManifestEntry]
    """Of the base; they are only remembered."""
    here: ProjectFiles
    there: Mapping[str, ManifestEntry]
    left_there: Mapping[str, str]

    def plan(self, request: WorkRequest) -> tuple[WorkPlan, dict[str, str]]:
        """Returns what is to be done, and what is left at the source, with the reasons."""
        pushing = request.way == "push"
        source, target = (self.here.files, self.there) if pushing else (self.there, self.here.files)
        apart = {*self.here.left, *self.here.links}
        every = plan_exchange(self.base, source, target, apart=apart)
        plan = plan_exchange(
            self.base,
            source,
            target,
            apart=apart | self.left_there.keys(),
            delete=request.delete,
            force=request.force,
        )
        if pushing:
            left = {**self.here.left, **changed_links(self.here, self.links)}
            for name in (*every.send, *every.conflicts):
                if above := set_apart(name, self.left_there):
                    left[name] = f"{self.left_there[above]}, there"
            return plan, left
        held = {name for name in (*plan.send, *plan.remove) if self.here.decides(name)}
        decisive = dict.fromkeys(sorted(held), "it decides which files leave this machine")
        kept = WorkPlan(
            tuple(name for name in plan.send if name not in held),
            tuple(name for name in plan.remove if name not in held),
            plan.conflicts,
            plan.deleted,
        )
        known = {*self.here.left, *self.here.links}
        return kept, {name: why for name, why in self.left_there.items() if name not in known} | decisive


def exchange(settings: Settings, run: LedgerRun, request: WorkRequest, *, bar: Bar) -> Exchanged:
    """Copies what has changed on one side since the last exchange, with one login.

    Safe to interrupt and to repeat.

    Args:
        settings: of the project.
        run: a live session, which may have ended.
        request: what to do.
        bar: opens progress bars.

    Raises:
        RunError: the run is no live session of this folder, or its working copy is gone.
        TransportError: the connection or a transfer failed.
        ClusterkitError: a file of the project cannot be read.
    """
    home = settings.project_dir / ".clusterkit"
    work_base.load(home, run.run_id)  # before the login
    with connected(settings.cluster(run.cluster)) as transport, work_base.alone(home):
        sides = _look(settings, run, transport)
        plan, left = sides.plan(request)
        if request.dry_run:
            return Exchanged(run.run_id, plan.send, plan.remove, plan.conflicts, plan.deleted, left)
        if request.way == "push":
            faults = _push(transport, run, sides, plan, bar)
        else:
            faults = _pull(transport, run, sides, plan, home, bar)
        moved = {name for name in (*plan.send, *plan.remove) if name not in faults}
        source, target = sides.here.files, sides.there
        if request.way == "pull":
            source, target = target, source
        base = new_base(sides.base, source, target, moved)
        if base != sides.base:
            work_base.save(home, run.run_id, {**sides.links, **base})
    return Exchanged(
        run.run_id,
        tuple(name for name in plan.send if name in moved),
        tuple(name for name in plan.remove if name in moved),
        plan.conflicts,
        plan.deleted,
        {**left, **faults},
    )


def not_pulled(settings: Settings, run: LedgerRun, transport: Transport) -> tuple[str, ...]:
    """Files of a working copy that were changed there and have not come home.

    Raises:
        ClusterkitError: as `exchange`.
    """
    sides = _look(settings, run, transport)
    plan, left = sides.plan(WorkRequest("pull"))
    return tuple(sorted({*plan.differing, *left}))


def _look(settings: Settings, run: LedgerRun, transport: Transport) -> _Sides:
    known = work_base.load(settings.project_dir / ".clusterkit", run.run_id)
    listed = list_work(transport, run.run_dir)
    here = project_files(settings)
    free, left = here.admit(listed.files)
    refused = {name: why for name, why in listed.refused.items() if not here.excluded.match(name)}
    return _Sides(
        {name: entry for name, entry in known.items() if entry.kind != "link"},
        {name: entry for name, entry in known.items() if entry.kind == "link"},
        here,
        read_work(transport, run.run_dir, free.values()),
        {**left, **refused},
    )


def _push(transport: Transport, run: LedgerRun, sides: _Sides, plan: WorkPlan, bar: Bar) -> dict[str, str]:
    """Sends files; returns those that were left, each with the reason."""
    here = sides.here
    if plan.send:
        options = SyncOptions(files_from=plan.send, files_only=True, checksum=True, mode="D700,Fgo=,Fu+rw")
        with bar("code", sum(here.files[name].bytes for name in plan.send)) as progress:
            transport.push(here.root, arrived_folder(run.run_dir), options=options, progress=progress)
    there, names = sides.there, (*plan.send, *plan.remove)
    changes = [WorkChange(name, there.get(name), here.files.get(name)) for name in names]
    return change_work(transport, run.run_dir, changes)


def _pull(
    transport: Transport, run: LedgerRun, sides: _Sides, plan: WorkPlan, home: Path, bar: Bar
) -> dict[str, str]:
    """Brings files home; returns as `_push`."""
    here, there, faults = sides.here, sides.there, dict[str, str | None]()
    if plan.send:
        wanted = [there[name].bytes for name in plan.send]
        options = SyncOptions(
            files_from=plan.send, files_only=True, max_size=max(*wanted, 1), mode="D700,F600"
        )
        with work_folder(home) as staging, bar("code", sum(wanted)) as progress:
            source = posixpath.join(run.run_dir, WORK, "")
            transport.pull(source, staging / "arrived", options=options, progress=progress)
            for name in plan.send:
                faults[name] = here.place(name, staging / "arrived" / name, there[name])
    for name in plan.remove:
        faults[name] = here.remove(name)
    return {name: why for name, why in faults.items() if why is not None}
