"""`clusterkit dev`."""

from __future__ import annotations

import math
import time as clock
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.shell import own_terminal, run_in
from clusterkit.cli.submit import large_files
from clusterkit.cli.ui.console import note, say, stage_lines, transfer_bar, warn
from clusterkit.config.options import native_words
from clusterkit.errors import ClusterkitError, RunError
from clusterkit.project import load_project, open_ledger, request_of
from clusterkit.site import log_in_ahead
from clusterkit.units import format_duration, format_seconds, plural

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.interactive.inside import Inside
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.runs.state import RunState
    from clusterkit.runs.status import StatusRow
    from clusterkit.snapshots import Allow
    from clusterkit.submit.pipeline import Submitted
    from clusterkit.transport.base import Transport


def dev(
    profile: options.Profile = None,
    cluster: options.Cluster = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time limit, e.g. 30m, 4h; the profile's, at most 2h, if left out."
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the job when the shell ends.")] = False,
    native: options.Native = None,
    send_large: options.SendLarge = False,
    config: options.Config = None,
) -> None:
    """Ask for a job to work in, and open a shell inside it.

    The shell is in the container, with a copy of this project's code. The job ends with it, and Ctrl-C while
    waiting cancels the job.

    Examples:
      clusterkit dev --profile a40-2m   # with the profile's resources
      clusterkit dev --time 30m --keep  # leave the job when the shell ends

    See also: clusterkit forward, clusterkit ssh-config, interactive.md
    """
    terminal = own_terminal(needed=not keep, hint="with --keep, none is opened where there is no terminal")
    settings = load_project(config)
    chosen = settings.profile(profile)
    limit = time or format_duration(min(chosen.time, USUAL_SECONDS))
    settings, request = request_of(settings, profile=chosen.name, cluster=cluster, time=limit)
    with open_ledger(settings) as ledger:
        left = open_session(
            settings,
            ledger,
            request.cluster,
            request.profile,
            native=native_words(native),
            allow_large=large_files(send_large),
            keep=keep,
            terminal=terminal,
        )
    _show_left(left, "the job has ended with the shell")
    raise typer.Exit(left.status if left.status >= 0 else 128 - left.status)


NAME = "dev"
USUAL_SECONDS = 2 * 60 * 60
"""Time limit of a session unless the user names one: a short job starts sooner."""
_PAUSES = {True: (2.0, 10.0), False: (0.2, 1.0)}
"""Seconds between two queries, with and without a queue: at first, and after _PATIENCE queries."""
_PATIENCE = 15

# It says that a shell can be opened, and sleeps until the job is cancelled.
_PROGRAM = """
import os, signal
run, attempt = (os.environ["CLUSTERKIT_" + name] for name in ("RUN_DIR", "ATTEMPT"))
open(os.path.join(run, "attempts", attempt, "ready"), "w").close()
signal.pause()
"""


@dataclass(frozen=True)
class Left:
    """How a session ended."""

    run_id: str
    status: int
    """Of the shell; 0 without one."""
    state: RunState | None
    """The run's state where the job goes on, or had ended before the shell; None where it ended with it."""
    trouble: ClusterkitError | None = None
    """Why the job could not be ended; it goes on until its time limit."""


def open_session(
    settings: Settings,
    ledger: Ledger,
    cluster: Cluster,
    profile: Profile,
    *,
    native: tuple[str, ...],
    allow_large: Allow | None,
    keep: bool,
    terminal: str | None,
) -> Left:
    """Submits a run that only sleeps, waits until it runs, and opens a shell beside it, all with one login.

    Whatever ends this command while it waits, or the shell, ends the job.

    Args:
        settings: of the project.
        ledger: of the project.
        cluster: the target.
        profile: whose resources to ask for.
        native: scheduler options of the command line.
        allow_large: decides about files over the size limit.
        keep: leave the job when the shell ends.
        terminal: the value of TERM; None opens no shell.

    Raises:
        RunError: the job ended before a shell could be opened.
        ClusterkitError: as `submit`.
    """
    from clusterkit.interactive.ssh_keys import forget_ended
    from clusterkit.runs.observe import query
    from clusterkit.submit.pipeline import resolve, submit
    from clusterkit.submit.request import SubmitRequest

    session = _session(profile)
    request = SubmitRequest(
        cluster, session, name=NAME, native=native, allow_large=allow_large, until_done=False
    )
    plan = resolve(settings, request)
    with log_in_ahead(cluster) as login:
        try:
            done = submit(settings, plan, ledger, bar=transfer_bar, login=login)
            if done.trouble is not None:
                raise done.trouble
            (run,) = done.runs
            transport = login.transport()
            _show_submitted(done, session)
            place = _wait(cluster, transport, run)
            _show_begun(place, shell=terminal is not None)
            status = run_in(place, (), terminal=terminal) if terminal is not None else 0
        except BaseException:
            # Ctrl-C may have come while the job was handed over: then only the ledger knows of it.
            submitted = ledger.get(plan.runs[0].spec.run_id)
            if submitted is not None and submitted.job_id:
                trouble = _end(settings, ledger, cluster, login.transport(), submitted)
                _show_left(Left(submitted.run_id, 1, None, trouble), "the job is cancelled")
            raise
        (state,) = query(cluster, transport, [run])
        ledger.set_states([(run.run_id, state.state)])
        if keep or state.final:
            forget_ended(settings.project_dir / ".clusterkit", ledger.runs())
            return Left(run.run_id, status, state)
        return Left(run.run_id, status, None, _end(settings, ledger, cluster, transport, run))


def _session(profile: Profile) -> Profile:
    from clusterkit.config.models import Retry

    changes: dict[str, object] = {
        "recipe": None,
        "total_steps": None,
        "program": ("python", "-c", _PROGRAM),
        "signal": "none",
        "retry": Retry(),
    }
    return profile.model_copy(update=changes)


def _wait(cluster: Cluster, transport: Transport, run: LedgerRun) -> Inside:
    from clusterkit.interactive.inside import Inside
    from clusterkit.runs.observe import query
    from clusterkit.runs.status import StatusRow

    waits = stage_lines(_waits, _waits_for, seconds=math.inf)
    asked = 0
    while True:
        (state,) = query(cluster, transport, [run])
        if state.final:
            why = f": {state.why}" if state.why else ""
            raise RunError(
                f"{run.run_id} has ended as {state.state}{why}",
                hint=f"`clusterkit why {run.run_id}` shows the cause",
            )
        waits(StatusRow(run, state))
        if state.state is JobState.RUNNING and state.attempt is not None:
            ready = f"{run.run_dir}/attempts/{state.attempt}/ready"
            if transport.run(["test", "-e", ready], check=False).returncode == 0:
                return Inside(run, state, cluster, transport)
        asked += 1
        clock.sleep(_PAUSES[backend_of(cluster).can.queue][asked > _PATIENCE])


def _end(
    settings: Settings, ledger: Ledger, cluster: Cluster, transport: Transport, run: LedgerRun
) -> ClusterkitError | None:
    """Ends the job, if it has not ended; returns why it could not be."""
    from clusterkit.interactive.ssh_keys import forget_ended
    from clusterkit.runs.ending import end_runs

    try:
        end_runs(cluster, transport, ledger, [run], [])
    except ClusterkitError as error:
        return error
    forget_ended(settings.project_dir / ".clusterkit", ledger.runs())
    return None


def _show_submitted(done: Submitted, profile: Profile) -> None:
    from clusterkit.cli.ui.console import warn_of_trusted
    from clusterkit.cli.ui.submit import warn_lacking, warn_of_settled

    warn_lacking(done.lacking)
    warn_of_trusted(done.trusted)
    warn_of_settled(done.settled)
    (run,) = done.runs
    say(run.run_id)
    limit, hours = format_duration(profile.time), profile.nodes * profile.time / 3600
    asked = f"{profile.nodes} nodes with " if profile.nodes > 1 else ""
    if profile.gpu_count:
        asked += f"{profile.gpu_count} {profile.gpu} for {limit}, "
        asked += f"at most {plural(f'{hours * profile.gpu_count:.3g}', 'GPU hour')}"
    else:
        most = plural(f"{hours * profile.cpus:.3g}", "CPU hour")
        asked += f"{plural(profile.cpus, 'CPU')} for {limit}, at most {most}"
    note(f"job {run.job_id} on {run.cluster}: {asked}")


def _waits_for(row: StatusRow) -> tuple[object, ...]:
    """Returns what a new line is printed for: not a start that moves by seconds."""
    start = row.state.expected_start
    return row.state.state, row.state.why, start and round(start / 60)


def _waits(row: StatusRow) -> str:
    state = row.state
    if state.state is JobState.RUNNING:
        return f"it starts on {state.node}" if state.node else "it starts"
    text = "it waits" if state.state.waiting else f"it is {state.state}"
    text += f": {state.why}" if state.why else ""
    if state.expected_start is not None:
        left = max(0.0, state.expected_start - clock.time())
        text += f"; expected to start in {format_seconds(left)}, at {_at(state.expected_start)}"
    return f"{text}; Ctrl-C cancels it"


def _show_begun(place: Inside, *, shell: bool) -> None:
    state = place.state
    until = ""
    if state.limit_seconds is not None:
        until = (
            f", until {_at(clock.time() + state.limit_seconds - (state.elapsed_seconds or 0))} at the latest"
        )
    note(f"it runs on {state.node}{until}" + ("; Ctrl-D leaves it" if shell else ""))


def _show_left(left: Left, ended: str) -> None:
    if left.trouble is not None:
        warn(f"{left.run_id} may go on:", f" {left.trouble.cause}; `clusterkit cancel {left.run_id}` ends it")
    elif left.state is None:
        note(ended)
    elif left.state.final:
        why = f": {left.state.why}" if left.state.why else ""
        note(f"the job has ended as {left.state.state}{why}")
    else:
        note(f"the job goes on: `clusterkit shell {left.run_id}` opens a shell, `clusterkit cancel` ends it")


def _at(moment: float) -> str:
    """Returns a time of day here; with the day unless it is today."""
    there = clock.localtime(moment)
    today = there[:3] == clock.localtime()[:3]
    return clock.strftime("%H:%M" if today else "%b %d %H:%M", there)
