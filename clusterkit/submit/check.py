"""Checks, before any work, that runs can start: the hardware they need, runs they wait for, their scripts."""

from __future__ import annotations

import difflib
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.base import Backend, backend_of
from clusterkit.backends.jobs import JobState, Kind, Parent
from clusterkit.config.options import NATIVE_OPTION
from clusterkit.errors import ConfigError, RunError, SchedulerError
from clusterkit.hardware import Hardware, HardwareNeed, Shortage, memory_of, shortages
from clusterkit.probes import ask, shell_path
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.program import option_of, trains
from clusterkit.site import Site, connected
from clusterkit.snapshots import Snapshot, Tree
from clusterkit.submit.plan import After, Plan

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings

_SECONDS = 60.0
_NAMED = 3
"""Maximum number of profiles in a hint."""
_FIRST = ("local-demo", "check")
"""Shipped profiles that run nearly everywhere."""
_OWN_TRAINER = ("trainer.py", "trainer/__init__.py", "trainer/__main__.py")
_OF_OURS = (["check"], ["drill"], ["bench"])
"""Commands of the bundled trainer that a shipped profile, `drill` and `tune` run as programs."""
_SHELL_OR_PYTHON = re.compile(r"(.*/)?(python[0-9.]*|(ba|z|da)?sh)")


def check(settings: Settings, plan: Plan, ledger: Ledger) -> tuple[str, ...]:
    """Checks a plan for errors before any work.

    Returns:
        Descriptions of requested hardware that the machine lacks, for runs that can start anyway.

    Raises:
        ConfigError, RunError: a dependency is unknown or on another cluster.
        SchedulerError: a run can never work on the cluster.
        TransportError: the machine did not answer.
    """
    check_after(ledger, plan.cluster, plan.after, plan.native)
    for run in plan.runs:
        _check_exports(run.submission.options, settings.secrets.names)
    wanted = {run.profile.name: (run.profile, run.program.argv) for run in plan.runs}
    return check_fit(settings, plan.cluster, wanted.values())


def _check_exports(options: Sequence[str], secrets: Sequence[str]) -> None:
    """Raises ConfigError if an option passes a secret on to the scheduler, which shows it to others."""
    for option in options:
        name, _, value = option.partition("=")
        passed = {text.partition("=")[0] for text in value.split(",")} if name == "--export" else set()
        if shown := passed.intersection(secrets):
            raise ConfigError(
                f"{option.partition('=')[0]} names {min(shown)}, which is among the names of [secrets]",
                hint="leave it out: the program gets its value anyway",
            )


def hardware_of(cluster: Cluster) -> Hardware | None:
    """Returns the hardware of a machine that starts jobs at once; None for a cluster with a queue."""
    probe = backend_of(cluster).machine(shell_path(cluster.scratch_root))
    if probe is None:
        return None
    with connected(cluster) as transport:
        return ask(transport, probe, timeout=_SECONDS).of(probe)


def wants_gpu(cluster: Cluster, profile: Profile) -> bool:
    """Returns whether a run needs a GPU; on a machine without allocations the profile's `device` decides."""
    return profile.device == "cuda" if not backend_of(cluster).can.queue else profile.gpu_count > 0


def need_of(cluster: Cluster, profile: Profile, argv: Sequence[str] = ()) -> HardwareNeed:
    """Returns the hardware that a run of a profile needs.

    Args:
        cluster: the target.
        profile: the run's profile.
        argv: the run's program; the bundled trainer's `--device` overrides the profile's device.
    """
    device = option_of(argv, "--device") if trains(argv) else None
    needs_gpu = wants_gpu(
        cluster, profile if device is None else profile.model_copy(update={"device": device})
    )
    table = cluster.gpus.get(profile.gpu or "")
    return HardwareNeed(
        cpus=profile.cpus,
        memory=profile.memory,
        gpus=max(profile.gpu_count, 1) if needs_gpu else profile.gpu_count,
        gpu=profile.gpu or "",
        gpu_memory=(table.memory if table else None) or memory_of(profile.gpu or ""),
        without_gpu=not needs_gpu,
        scratch=profile.scratch,
    )


def check_fit(
    settings: Settings, cluster: Cluster, wanted: Iterable[tuple[Profile, Sequence[str]]]
) -> tuple[str, ...]:
    """Checks that runs can work on a cluster.

    Args:
        settings: the project's settings, for the hint.
        cluster: the target.
        wanted: the profile and argv of each run.

    Returns:
        Descriptions of requested hardware that the machine lacks, for runs that can start anyway.

    Raises:
        SchedulerError: a run can never work on the cluster; the hint names profiles that can.
        TransportError: the machine did not answer.
    """
    has = hardware_of(cluster)
    if has is None:
        return ()
    warnings: dict[str, None] = {}
    for profile, argv in wanted:
        found = shortages(has, need_of(cluster, profile, argv))
        if found and found[0].never:
            raise SchedulerError(
                f"{profile.name} can never run on {cluster.name}: {found[0]} ({has.words})",
                hint=another(settings, cluster, has),
            )
        warnings |= dict.fromkeys(f"{profile.name}: {one}" for one in found)
    return tuple(warnings)


def lacks(
    cluster: Cluster, profile: Profile, argv: Sequence[str], has: Hardware | None
) -> tuple[Shortage, ...]:
    """Returns the requested hardware that the machine lacks; empty for a cluster with a queue."""
    return () if has is None else shortages(has, need_of(cluster, profile, argv))


def another(settings: Settings, cluster: Cluster, has: Hardware) -> str:
    """Returns the hint for a run that can never work on a cluster."""
    names = [*(name for name in _FIRST if name in settings.profiles), *settings.profiles]
    missing = {
        name: shortages(has, need_of(cluster, settings.profiles[name])) for name in dict.fromkeys(names)
    }
    fitting = [name for name, found in missing.items() if not any(one.never for one in found)]
    fitting.sort(key=lambda name: len(missing[name]))
    elsewhere = [name for name, one in settings.clusters.items() if backend_of(one).can.queue]
    here = f"`--profile {' or '.join(fitting[:_NAMED])}` runs here" if fitting else ""
    there = f"`--cluster {' or '.join(elsewhere[:_NAMED])}` may have it"
    return "; ".join(filter(None, (here, there if elsewhere else "`clusterkit init HOST` adds a cluster")))


def check_after(ledger: Ledger, cluster: Cluster, after: Sequence[After], native: Sequence[str]) -> None:
    """Checks without a connection that the runs are known and on this cluster.

    Raises:
        RunError: a run is unknown.
        ConfigError: a run is on another cluster or has further jobs, or `native` sets a dependency too.
    """
    if after and "dependency" in backend_of(cluster).names(native):
        raise ConfigError(
            f"--after and {NATIVE_OPTION} dependency=... both set a dependency", hint="use one of them"
        )
    for run, _ in _runs(ledger, after):
        if run.cluster != cluster.name:
            raise ConfigError(
                f"--after {run.run_id}: it is on {run.cluster}, but this run goes to {cluster.name}",
                hint="a scheduler can only wait for its own jobs",
            )
        if run.until_done in ("array", "chain") and run.state != JobState.COMPLETED:
            raise ConfigError(
                f"--after {run.run_id}: it continues in further jobs ({run.until_done})",
                hint='if the site allows it, continue_by = "requeue" keeps the run in one job',
            )


def parents(site: Site, ledger: Ledger, after: Sequence[After]) -> tuple[Parent, ...]:
    """Returns the jobs to wait for, without runs that have already completed.

    Raises:
        RunError: a run ended without completing, or has no job, so the wait would never end.
        TransportError, SchedulerError: the cluster did not answer.
    """
    wanted = _runs(ledger, after)
    if not wanted:
        return ()
    from clusterkit.runs.observe import query  # deferred: most runs wait for nothing

    states = query(site.cluster, site.transport, [run for run, _ in wanted])
    found: list[tuple[LedgerRun, Kind]] = []
    for (run, kind), state in zip(wanted, states, strict=True):
        if state.state.active or state.state is JobState.UNKNOWN:
            if not run.job_id:
                raise RunError(
                    f"--after {run.run_id}: it is not known yet whether it has a job",
                    hint="`clusterkit status` will show it in a moment",
                )
            found.append((run, kind))
        elif state.state is not JobState.COMPLETED and kind == "ok":
            raise RunError(
                f"--after {run.run_id}: it ended as {state.state}, so the new run would never start",
                hint=f"--after {run.run_id}:any only waits for its end",
            )
    return tuple(_folded(backend_of(site.cluster), found, ledger))


def _runs(ledger: Ledger, after: Sequence[After]) -> list[tuple[LedgerRun, Kind]]:
    kinds: dict[LedgerRun, Kind] = {}
    for one in after:
        for run in ledger.find([one.name]):
            kinds[run] = "ok" if "ok" in (one.kind, kinds.get(run)) else "any"
    return list(kinds.items())


def _folded(backend: Backend, found: Sequence[tuple[LedgerRun, Kind]], ledger: Ledger) -> list[Parent]:
    """Replaces the tasks of a job array with the array itself if all of its tasks are awaited."""
    wanted = Counter((backend.array_id(run.job_id), kind) for run, kind in found)
    tasks = Counter(backend.array_id(run.job_id) for run in ledger.runs() if run.state != JobState.COMPLETED)
    folded: dict[tuple[str, Kind], Parent] = {}
    for run, kind in found:
        base = backend.array_id(run.job_id)
        job_id = base if wanted[base, kind] >= tasks[base] else run.job_id
        folded.setdefault((job_id, kind), Parent(job_id, run.run_dir, kind))
    return list(folded.values())


def check_script(tree: Tree, argv: Sequence[str]) -> None:
    """Checks, before submission, that the program's script will exist in the job.

    Args:
        tree: the project files that are sent; an empty tree disables the check.
        argv: the program, started in the project folder.

    Raises:
        ConfigError: the program names a project script that is not sent.
    """
    script = _script(argv)
    if not tree.files or script is None:
        return
    name = posixpath.normpath(script)
    parts = name.split("/")
    folders = {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    if folders.intersection(tree.files) or any(file.startswith(f"{name}/") for file in tree.files):
        return
    if (tree.root / name).exists():
        raise ConfigError(
            f"the program {script} would not be uploaded: git ignores it, `exclude` names it, or it looks "
            "like a secret",
            hint=f'include = ["/{name}"] in [project] includes it, unless `exclude` names it',
        )
    raise _no_script(script, tree.root, tree.files)


def check_script_here(folder: Path, argv: Sequence[str]) -> None:
    """Checks, before settings name a program, that its script exists.

    Args:
        folder: of the project.
        argv: the program.

    Raises:
        ConfigError: there is no such script.
    """
    script = _script(argv)
    if script is not None and not os.path.exists(folder / script):  # noqa: PTH110 - any text, however long
        raise _no_script(script, folder, [path.name for path in folder.iterdir()])


def _no_script(script: str, folder: Path, files: Iterable[str]) -> ConfigError:
    close = difflib.get_close_matches(posixpath.normpath(script), files, n=1)
    return ConfigError(
        f"the program {script} is not in {folder}" + (f"; did you mean {close[0]}?" if close else ""),
        hint="programs start in the folder of clusterkit.toml; give the script's path relative to it",
    )


def check_trainer(snapshot: Snapshot, argv: Sequence[str]) -> None:
    """Checks, before submission, that `python -m trainer` as a user's own program is not ambiguous.

    Args:
        snapshot: the project files and the bundled trainer that are sent.
        argv: the user's own program.

    Raises:
        ConfigError: it would start the bundled trainer, and the project has a `trainer` of its own.
    """
    tree = snapshot.project
    own = next((file for file in tree.files if file in _OWN_TRAINER), None)
    if snapshot.bundle is None or tree.root.resolve() == snapshot.bundle.root:  # a checkout of clusterkit
        return
    if own and list(argv[:3]) == ["python", "-m", "trainer"] and list(argv[3:4]) not in _OF_OURS:
        started = f"python {own}" if "/" not in own else "python -m trainer.__main__"
        raise ConfigError(
            f"`python -m trainer` is the bundled trainer, and {tree.root / own} has the same name",
            hint=f"write `{started}` for your own",
        )


def _script(argv: Sequence[str]) -> str | None:
    """Returns the script's path relative to the project; None if the script is looked up elsewhere."""
    first, *rest = argv
    if _SHELL_OR_PYTHON.fullmatch(first):
        script = rest[0] if rest else "-"
        return None if script.startswith(("-", "/", "..")) else script
    return first if "/" in first and not first.startswith(("/", "..")) else None
