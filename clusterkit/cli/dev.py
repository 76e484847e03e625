"""`clusterkit dev`."""

from __future__ import annotations

import math
import time as clock
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.backends.jobs import JobState
from clusterkit.cli.common import (
    ClusterOption,
    ConfigOption,
    NativeOption,
    ProfileOption,
    SendLargeOption,
    asking_for,
    large_files,
    load_project,
    native_words,
    open_ledger,
)
from clusterkit.cli.shell import own_terminal
from clusterkit.cli.ui.console import note, say, warn
from clusterkit.cli.ui.progress import stage_lines, transfer_bar
from clusterkit.units import format_duration, format_seconds, plural

if TYPE_CHECKING:
    from clusterkit.commands.dev import Left
    from clusterkit.config.models import Profile
    from clusterkit.interactive.inside import Inside
    from clusterkit.runs.status import StatusRow
    from clusterkit.submit.pipeline import Submitted


def dev(
    profile: ProfileOption = None,
    cluster: ClusterOption = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time limit, e.g. 30m, 4h; the profile's, at most 2h, if left out."
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the job when the shell ends.")] = False,
    native: NativeOption = None,
    send_large: SendLargeOption = False,
    config: ConfigOption = None,
) -> None:
    """Ask for a job to work in, and open a shell inside it.

    The shell is in the container, with a copy of this project's code. The job ends with it, and Ctrl-C while
    waiting cancels the job.
    """
    from clusterkit.commands.dev import USUAL_SECONDS, Callbacks
    from clusterkit.commands.dev import dev as command

    terminal = own_terminal(needed=not keep, hint="with --keep, none is opened where there is no terminal")
    settings = load_project(config)
    chosen = settings.profile(profile)
    limit = time or format_duration(min(chosen.time, USUAL_SECONDS))
    settings = asking_for(settings, [chosen.name], time=limit, total_steps=None)
    with open_ledger(settings) as ledger:
        left = command(
            settings,
            ledger,
            settings.cluster(cluster),
            settings.profile(chosen.name),
            native=native_words(native),
            allow_large=large_files(send_large),
            keep=keep,
            terminal=terminal,
            bar=transfer_bar,
            tell=Callbacks(
                _show_submitted,
                stage_lines(_waits, _waits_for, seconds=math.inf),
                lambda place: _show_begun(place, shell=terminal is not None),
                lambda left: _show_left(left, "the job is cancelled"),
            ),
        )
    _show_left(left, "the job has ended with the shell")
    raise typer.Exit(left.status if left.status >= 0 else 128 - left.status)


def _show_submitted(done: Submitted, profile: Profile) -> None:
    from clusterkit.cli.ui.lines import warn_of_trusted
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
    """What a new line is printed for: not a start that moves by seconds."""
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
    """A time of day here; with the day unless it is today."""
    there = clock.localtime(moment)
    today = there[:3] == clock.localtime()[:3]
    return clock.strftime("%H:%M" if today else "%b %d %H:%M", there)
