"""`clusterkit tune`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.asking import agree, at_terminal
from clusterkit.cli import options
from clusterkit.cli.ui.console import note, print_document, transfer_bar
from clusterkit.cli.ui.tune import Tuned, print_json, show_goes_on, show_tuned, waiting
from clusterkit.config.layers import PROJECT_FILE, display_path, user_file
from clusterkit.errors import ConfigError, RunError
from clusterkit.forecast.bench import PROGRAM, read_bench
from clusterkit.forecast.tuning import changes, choose, remark
from clusterkit.project import load_project, open_ledger
from clusterkit.runs.program import train_options
from clusterkit.runs.recipe_names import choose_recipe
from clusterkit.site import connected
from clusterkit.transport.base import MissingFileError

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.config.settings_file import Proposal
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.runs.status import StatusRow
    from clusterkit.submit.request import SubmitRequest


def tune(
    name: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="An earlier run of `tune`; submits a new one if left out."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="PROFILE", help="Profile to tune.")
    ] = None,
    cluster: options.Cluster = None,
    minutes: Annotated[
        int, typer.Option(metavar="N", min=1, max=120, help="Time limit of all measurements, in minutes.")
    ] = 10,
    num_envs: Annotated[
        str | None, typer.Option(metavar="A,B", help="Try only these numbers of environments.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="A,B", help="Try only these numbers of worker processes.")
    ] = None,
    overrides: options.Set = None,
    unlock: options.Unlock = None,
    precision: Annotated[
        bool, typer.Option("--precision", help="Also choose the precision, which may change the results.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for the measurements.")] = False,
    dry_run: options.DryRun = False,
    script: options.Script = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Measure on a compute node which settings are fastest.

    A short job tries different numbers of environments and worker processes (for PPO and A2C only the
    latter). After you agree, the fastest safe setting is written into the profile. What a run learns stays
    the same.

    Examples:
      # what would be submitted
      clusterkit tune --profile a40-2m --dry-run
      # measure, then ask before writing the profile
      clusterkit tune --profile a40-2m --minutes 10

    See also: clusterkit plan, clusterkit report, tune.md
    """
    from clusterkit.cli.ui.dry_run import show_dry_run
    from clusterkit.cli.ui.submit import note_jobs, show_submitted
    from clusterkit.runs.program import assignments
    from clusterkit.submit import pipeline
    from clusterkit.submit.pipeline import resolve

    settings = load_project(config)
    with open_ledger(settings) as ledger:
        if name is not None:
            if profile or cluster or num_envs or workers or overrides or unlock or script:
                raise ConfigError(
                    f"{name} was submitted with its own profile, cluster and settings to try",
                    hint="leave RUN out to measure again, or leave the options out to see its results",
                )
            run = ledger.find_one(name)
        else:
            tries = {"num-envs": num_envs, "workers": workers}
            request = bench_request(
                settings,
                settings.cluster(cluster),
                settings.profile(profile),
                minutes,
                {option: text for option, text in tries.items() if text is not None},
                assignments(overrides or (), "--set"),
                tuple(unlock or ()),
            )
            planned = resolve(settings, request)
            if dry_run or script:
                would = pipeline.dry_run(settings, planned, ledger, bar=transfer_bar)
                show_dry_run(would, script=script, as_json=as_json)
                return
            submitted = pipeline.submit(settings, planned, ledger, bar=transfer_bar)
            (note_jobs if as_json else show_submitted)(submitted)
            (run,) = submitted.runs
        if not no_wait:
            try:
                with waiting() as show_row:
                    watch_bench(settings, ledger, run, show_row)
            except KeyboardInterrupt:
                show_goes_on(run.run_id)
                raise
        elif name is None:
            show_goes_on(run.run_id)
            if as_json:
                print_document({"schema": 1, "run_id": run.run_id, "complete": False})
            return
        _take_up(settings, ledger, run, precision=precision, dry_run=dry_run, yes=yes, as_json=as_json)


NAME = "tune"
BENCH_FILE = "bench.json"
_START_SECONDS = 180
"""Added to the benchmark's own time, for the container to start and the last measurement to finish."""
_NUMBERS = re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4})*")
_MARK = "clusterkit tune, "
"""Prefix of the comments that `tune` writes in a settings file."""


def bench_request(
    settings: Settings,
    cluster: Cluster,
    profile: Profile,
    minutes: int,
    tries: Mapping[str, str],
    overrides: Mapping[str, str],
    unlock: Sequence[str],
) -> SubmitRequest:
    """Returns the request for a measuring run: a short run with the profile's own hardware.

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
    from clusterkit.submit.request import SubmitRequest

    if profile.program or settings.project.program or profile.recipe is None:
        hint = "the profile names no recipe; `clusterkit profiles` lists those with one"
        if settings.project.program:
            hint = "your project sets its own program; `clusterkit report --advice RUN` shows what a run used"
        raise ConfigError(
            f"profile {profile.name} does not use clusterkit's trainer, and nothing else can be measured",
            hint=hint,
        )
    recipe = choose_recipe(profile.recipe, overrides, unlock)
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
    options += [word for name, text in overrides.items() for word in ("--set", f"{name}={text}")]
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


def watch_bench(
    settings: Settings, ledger: Ledger, run: LedgerRun, show_row: Callable[[StatusRow], None]
) -> None:
    """Waits for the run to end; safe to interrupt, because `collect` works at any time.

    Args:
        settings: of the project.
        ledger: of the project.
        run: the measuring run.
        show_row: called repeatedly with the run's status.

    Raises:
        RunError: its cluster no longer answers.
    """
    from clusterkit.runs.selection import settled
    from clusterkit.runs.watching import watch

    if settled(run):
        return
    for watched in watch(settings, ledger, names=[run.run_id]):
        (row,) = watched.report.rows
        show_row(row)
    if row.state.state.active:
        raise RunError(
            f"{run.run_id} can no longer be watched: {'; '.join(watched.report.silent.values())}",
            hint=f"it continues; `clusterkit tune {run.run_id}` reads what it measures",
        )


def collect(settings: Settings, ledger: Ledger, run: LedgerRun, *, precision: bool) -> Tuned:
    """Reads the measurements and chooses the best settings.

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
    from clusterkit.runs.observe import Observer
    from clusterkit.runs.selection import known_state, settled
    from clusterkit.runs.status import ask_cluster

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
    chosen = choose(bench, memory=profile.memory, precision=precision)
    changed = changes(bench, chosen.row, profile) if chosen.row else {}
    return Tuned(run, state, profile, bench, chosen, changed)


def profile_edit(settings: Settings, tuned: Tuned) -> Proposal:
    """Returns the change to the project's settings file that applies the chosen settings to the profile.

    The project's file wins over all others, so a few keys in it change any profile, even a shipped one.

    Raises:
        ConfigError: the file cannot be read, or its form cannot be edited.
    """
    from clusterkit.config.edit import with_keys
    from clusterkit.config.settings_file import Proposal, read

    assert tuned.chosen.row is not None, "nothing was chosen"
    file = _project_file(settings)
    old = read(file)
    table = ("profiles", tuned.profile.name)
    new = with_keys(old or "", table, tuned.changes, remark(tuned.bench, tuned.chosen.row), _MARK)
    return Proposal(file, old, new)


def _project_file(settings: Settings) -> Path:
    """Returns the project's settings file, or the path that a new one would have."""
    own = user_file()
    return next(
        (file for file in reversed(settings.files) if file != own), settings.project_dir / PROJECT_FILE
    )


def _take_up(
    settings: Settings,
    ledger: Ledger,
    run: LedgerRun,
    *,
    precision: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    from clusterkit.cli.ui.init import show_changes
    from clusterkit.config.settings_file import save

    tuned = collect(settings, ledger, run, precision=precision)
    if not as_json:
        show_tuned(tuned)
    written = False
    if tuned.changes:
        change = profile_edit(settings, tuned)
        if not as_json:
            show_changes(change)
        if dry_run:
            note("dry run: nothing was written")
        elif agreed(change, yes=yes):
            save(change)
            written = True
            note(f"{display_path(change.file)} is written; the next run with {tuned.profile.name} uses it")
    if as_json:
        print_json(tuned, carried_out=written)


def agreed(change: Proposal, *, yes: bool) -> bool:
    """Returns whether to write the change: --yes, or the user's answer at the terminal."""
    if yes:
        return True
    if not at_terminal():
        note("nothing was written; --yes writes it")
        return False
    return agree(f"Write this into {display_path(change.file)}?")
