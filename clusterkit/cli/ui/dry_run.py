"""The output of a dry run: a summary that fits on a screen, JSON, or only the job script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from rich.text import Text

from clusterkit.backends.base import backend_of
from clusterkit.cli.ui.console import note, out, printable
from clusterkit.cli.ui.deploy import described, warn_of
from clusterkit.cli.ui.lines import labelled
from clusterkit.cli.ui.submit import (
    described_way,
    note_name,
    print_runs,
    retry_words,
    warn_lacking,
)
from clusterkit.cli.ui.sweep import show_plan
from clusterkit.units import format_bytes, format_duration, listed, plural

if TYPE_CHECKING:
    from clusterkit.submit.group import GroupPart
    from clusterkit.submit.pipeline import DryRun

_ROWS = 8
"""The maximum number of lines of a group's grid."""
_FILES = 8
"""The maximum number of code files to name."""
_SCRIPT = "--script prints the job script"


def show_dry_run(found: DryRun, *, script: bool = False, as_json: bool = False) -> None:
    """Prints what would run, where, with what, and the upload; for a group, its grid and its first run.

    Args:
        found: what would be submitted.
        script: print only the job script.
        as_json: print JSON.
    """
    if script or as_json:
        (_print_script if script else print_dry_run)(found)
        return
    group = found.plan.group is not None
    spec = found.first.spec
    note_name(spec.name, found.plan.group.id if found.plan.group else spec.run_id)
    if group:
        show_plan(found.plan, to=out, rows=_ROWS)
        for part in found.parts:
            labelled(f"part {part.number}", _size(part))
        out.print(Text(f"\nthe first of {plural(len(found.plan.runs), 'run')}", "bold"))
    _show_run(found)
    warn_lacking(found.lacking)
    if found.snapshot is None:
        note("dry run: nothing was sent or changed")
        return
    warn_of(found.snapshot)
    scripts = f"{_SCRIPT}s of the group and of its first run" if group else _SCRIPT
    note(f"dry run: nothing was sent or changed; {scripts}")


def _print_script(found: DryRun) -> None:
    """Prints the exact job script; for a group, each part's script and then the first run's."""
    for part, script in zip(found.parts, found.scripts, strict=True):
        out.file.write(f"# ---- part {part.number}: {_size(part)}\n{script}")
    if found.scripts:
        out.file.write(f"# ---- {found.first.spec.run_id}\n")
    out.file.write(found.first.scripts["job.sh"])


def _size(part: GroupPart) -> str:
    return f"{plural(len(part.tasks), 'job')}, {plural(len(part.members), 'run')}"


def _show_run(found: DryRun) -> None:
    spec, image, snapshot = found.first.spec, found.image, found.snapshot
    here = found.plan.cluster.here
    labelled("run", spec.run_id)
    labelled("program", printable(shlex.join(spec.argv)))
    labelled("resources", _resources(spec.profile))
    if snapshot is None:
        labelled("code", f"{spec.snapshot['id'][:12]}, of {spec.rerun_of}; sent if it is not there")
    else:
        names = [printable(name) for name in snapshot.project.files]
        labelled("code", f"{described(snapshot)}: {listed(names, _FILES)}")
    if image:
        labelled("image", f"{image.digest[:12]}, {format_bytes(image.bytes)}, uploaded by deploy")
    elif not here:
        labelled("image", spec.versions.get("image") or "none: it runs without a container")
    if here and list(spec.argv[:1]) == ["python"]:
        labelled("python", printable(found.first.job.cluster.interpreter))
    if facts := spec.environment:
        packages = plural(facts["packages"], "package")
        labelled("packages", f"{facts['file']}: {packages}, environment {facts['digest'][:12]}, built once")
    if env := found.first.planned.profile.env:
        labelled("environment", printable(" ".join(f"{name}={shlex.quote(env[name])}" for name in env)))
    if found.continuation and found.first.planned.goes_on:
        labelled("time limit", f"continues past it by {described_way(found.continuation)}")
    if words := retry_words(found.plan):
        labelled("failures", words)
    labelled(backend_of(found.plan.cluster).tool, shlex.join(found.first.submission.options))
    labelled("where", f"{spec.cluster}: {found.first.row.run_dir}")


def _resources(profile: Mapping[str, Any]) -> str:
    nodes = f"{profile['nodes']} nodes, each with " if profile.get("nodes", 1) > 1 else ""
    words = [format_duration(profile["time"]), nodes + plural(profile["cpus"], "CPU")]
    if profile["memory"] is not None:
        words.append(format_bytes(profile["memory"]))
    if profile["gpu"] is not None:
        words.append(f"{profile['gpus']} x {profile['gpu']}")
    return f"{', '.join(words)} (profile {profile['name']})"


def print_dry_run(*plans: DryRun, more: Sequence[Mapping[str, Any]] = ()) -> None:
    """Prints the runs that would be submitted, in the same form; arguments as of `print_submitted`."""
    print_runs(
        plans[0], [_planned(plan) for plan in plans], more, carried_out=False, lacking=plans[0].lacking
    )


def _planned(found: DryRun) -> list[dict[str, Any]]:
    first = found.first.row
    folder = PurePosixPath(first.run_dir).parent
    part_of = {index: part.number for part in found.parts for index in part.members}
    return [
        first.as_object()
        | {
            "run_id": one.spec.run_id,
            "profile": one.profile.name,
            "recipe": one.recipe or None,
            "seed": one.spec.seed or 0,
            "job_id": None,
            "submitted": None,
            "run_dir": str(folder / one.spec.run_id),
            "total_steps": one.spec.total_steps,
            "state": None,
            "part": part_of.get(number, 0),
        }
        for number, one in enumerate(found.plan.runs)
    ]
