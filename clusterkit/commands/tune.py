"""tune: measure on a real node which settings are fastest, and propose them for a profile."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit import __version__
from clusterkit.config.edit import with_keys
from clusterkit.config.settings_file import Proposal, read
from clusterkit.config.sources import PROJECT_FILE, user_file
from clusterkit.errors import ConfigError, RunError
from clusterkit.forecast import measurements
from clusterkit.forecast.bench import PROGRAM, Bench, read_bench
from clusterkit.forecast.tuning import Chosen, changes, choose, remark
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import Observer
from clusterkit.runs.program import train_options
from clusterkit.runs.recipe_names import choose_recipe
from clusterkit.runs.selection import known_state, settled
from clusterkit.runs.state import RunState
from clusterkit.runs.status import StatusRow, ask_cluster
from clusterkit.runs.watching import watch
from clusterkit.site import connected
from clusterkit.submit.request import SubmitRequest
from clusterkit.transport.base import MissingFileError

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings

NAME = "tune"
BENCH_FILE = "bench.json"
_START_SECONDS = 180
"""Added to the benchmark's own time, for the container to start and the last measurement to finish."""
_NUMBERS = re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4})*")
_MARK = "clusterkit tune, "
"""Prefix of the comments that `tune` writes in a settings file."""


@dataclass(frozen=True)
class Tuned:
    """The measurements and the resulting changes of the profile."""

    run: LedgerRun
    state: RunState
    profile: Profile
    bench: Bench
    chosen: Chosen
    changes: Mapping[str, str | int]
    kept: int
    """Number of measurements added to the project's record."""


def request(
    settings: Settings,
    cluster: Cluster,
    profile: Profile,
    minutes: int,
    tries: Mapping[str, str],
    overrides: Mapping[str, str] | None = None,
    unlock: Sequence[str] = (),
) -> SubmitRequest:
    """The request for a measuring run: a short run with the profile's own hardware.

    Args:
        settings: of the project.
        cluster: the target.
        profile: to tune.
        minutes: time for all measurements.
        tries: the benchmark's options `num-envs` and `workers`, with the values to try.
        overrides: recipe values as text, by name.
        unlock: recipe values that may be overridden.

    Raises:
        ConfigError: the profile does not run the bundled trainer or uses several GPUs, or its recipe or a
            value to try is invalid.
        RecipeLockedError: an overridden value is not unlocked.
    """
    if profile.program or settings.project.program or profile.recipe is None:
        hint = "the profile names no recipe; `clusterkit profiles` lists those with one"
        if settings.project.program:
            hint = "your project sets its own program; `clusterkit report --advice RUN` shows what a run used"
        raise ConfigError(
            f"profile {profile.name} does not use clusterkit's trainer, and nothing else can be measured",
            hint=hint,
        )
    recipe = choose_recipe(profile.recipe, overrides or {}, unlock)
    if profile.gpu_count > 1:
        raise ConfigError(
            f"profile {profile.name} learns on {profile.gpu_count} GPUs together, but only one can be "
            "measured",
            hint="tune a profile with a single GPU, or compare short runs: --sweep profile=A,B",
        )
    if "num-envs" in tries and recipe.entry.loop == "on-policy":
        raise ConfigError(
            f"--num-envs: with {recipe.name} their number says how long a rollout is, and so what is learnt",
            hint="leave it out: of such a recipe the number of worker processes is tuned",
        )
    for name, text in tries.items():
        least = 0 if name == "workers" else 1
        if not _NUMBERS.fullmatch(text) or min(map(int, text.split(","))) < least:
            raise ConfigError(
                f"--{name} {text}: must be whole numbers of at least {least}",
                hint="separate them with commas, e.g. 10,20,40",
            )
    options = train_options(profile, profile.seed if profile.seed is not None else 0)
    options += [word for name, text in (overrides or {}).items() for word in ("--set", f"{name}={text}")]
    options += [word for name in unlock for word in ("--unlock", name)]
    more = [word for name, text in tries.items() for word in (f"--try-{name}", text)]
    argv = (*PROGRAM, "--seconds", str(60 * minutes), *more)
    short = profile.model_copy(
        update={
            "program": (*argv, "--recipe", profile.recipe, *options),
            "recipe": None,
            "total_steps": None,
            "time": 60 * minutes + _START_SECONDS,
            "until_done": False,
            "signal": "none",
        }
    )
    return SubmitRequest(cluster, short, name=NAME, until_done=False)


def wait(settings: Settings, ledger: Ledger, run: LedgerRun, on_row: Callable[[StatusRow], None]) -> None:
    """Wait for the run to end; safe to interrupt, because `collect` works at any time.

    Args:
        settings: of the project.
        ledger: of the project.
        run: the measuring run.
        on_row: called repeatedly with the run's status.

    Raises:
        RunError: its cluster no longer answers.
    """
    if settled(run):
        return
    for watched in watch(settings, ledger, names=[run.run_id]):
        (row,) = watched.report.rows
        on_row(row)
    if row.state.state.active:
        raise RunError(
            f"{run.run_id} can no longer be watched: {'; '.join(watched.report.silent.values())}",
            hint=f"it continues; `clusterkit tune {run.run_id}` reads what it measures",
        )


def collect(settings: Settings, ledger: Ledger, run: LedgerRun, *, precision: bool) -> Tuned:
    """Read the measurements, record them, and choose the best settings.

    Args:
        settings: of the project.
        ledger: of the project.
        run: the measuring run.
        precision: whether the profile's precision may be changed.

    Raises:
        RunError: it measured nothing, or is not a measuring run.
        ConfigError: its profile no longer exists.
        TransportError: its cluster cannot be reached.
    """
    if run.name != NAME:
        raise RunError(
            f"{run.run_id} is not a run of `tune`", hint="`clusterkit tune --profile NAME` starts one"
        )
    cluster, profile = settings.cluster(run.cluster), settings.profile(run.profile)
    run = ledger.get(run.run_id) or run
    state = known_state(run)
    with connected(cluster) as transport:
        if not settled(run):
            observer = Observer(cluster, transport)
            state = ask_cluster(settings, ledger, observer, [run], search=False).states[run.run_id]
        try:
            bench = read_bench(transport.read(f"{run.run_dir}/{BENCH_FILE}"))
        except MissingFileError:
            active = state.state.active
            raise RunError(
                f"{run.run_id} has measured nothing{' yet' if active else f': it is {state.state}'}",
                hint="wait until it has started"
                if active
                else f"`clusterkit why {run.run_id}` shows the cause, `clusterkit logs {run.run_id}` shows "
                "its log",
            ) from None
    # recorded while the run is active, the same figures would be recorded again with a later date
    lines = (
        measurements.of_bench(bench, cluster.name, __version__)
        if bench.complete or not state.state.active
        else []
    )
    kept = measurements.append(settings.project_dir / ".clusterkit", lines)
    chosen = choose(bench, memory=profile.memory, precision=precision)
    changed = changes(bench, chosen.row, profile) if chosen.row else {}
    return Tuned(run, state, profile, bench, chosen, changed, kept)


def edit(settings: Settings, tuned: Tuned) -> Proposal:
    """The change to the project's settings file that applies the chosen settings to the profile.

    The project's file wins over all others, so a few keys in it change any profile, even a shipped one.

    Raises:
        ConfigError: the file cannot be read, or its form cannot be edited.
    """
    assert tuned.chosen.row is not None, "nothing was chosen"
    file = _project_file(settings)
    old = read(file)
    table = ("profiles", tuned.profile.name)
    new = with_keys(old or "", table, tuned.changes, remark(tuned.bench, tuned.chosen.row), _MARK)
    return Proposal(file, old, new)


def _project_file(settings: Settings) -> Path:
    """The project's settings file, or the path that a new one would have."""
    own = user_file()
    return next(
        (file for file in reversed(settings.files) if file != own), settings.project_dir / PROJECT_FILE
    )
