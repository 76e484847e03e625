"""dev: ask for a job to work in, wait for it, and open a shell inside; the job ends with the shell."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.commands.shell import run_in
from clusterkit.config.models import Retry
from clusterkit.errors import ClusterkitError, RunError
from clusterkit.interactive.inside import Inside
from clusterkit.interactive.ssh_keys import forget_ended
from clusterkit.runs.ending import end_runs
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import query
from clusterkit.runs.state import RunState
from clusterkit.runs.status import StatusRow
from clusterkit.site import log_in_ahead
from clusterkit.submit.pipeline import Submitted, resolve, submit
from clusterkit.submit.request import SubmitRequest
from clusterkit.transport.base import Bar, Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.snapshots import Allow

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


@dataclass(frozen=True)
class Callbacks:
    """What `dev` calls as the session goes on."""

    submitted: Callable[[Submitted, Profile], None]
    waits: Callable[[StatusRow], None]
    """Called repeatedly."""
    begins: Callable[[Inside], None]
    cancelled: Callable[[Left], None]
    """Called where the command is interrupted."""


def dev(
    settings: Settings,
    ledger: Ledger,
    cluster: Cluster,
    profile: Profile,
    *,
    native: tuple[str, ...],
    allow_large: Allow | None,
    keep: bool,
    terminal: str | None,
    bar: Bar,
    tell: Callbacks,
) -> Left:
    """Submit a run that only sleeps, wait until it runs, and open a shell beside it, all with one login.

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
        bar: opens progress bars.
        tell: is told what happens.

    Raises:
        RunError: the job ended before a shell could be opened.
        ClusterkitError: as `submit`.
    """
    session = _session(profile)
    request = SubmitRequest(
        cluster, session, name=NAME, native=native, allow_large=allow_large, until_done=False
    )
    plan = resolve(settings, request)
    with log_in_ahead(cluster) as login:
        try:
            done = submit(settings, plan, ledger, bar=bar, login=login)
            if done.trouble is not None:
                raise done.trouble
            (run,) = done.runs
            transport = login.transport()
            tell.submitted(done, session)
            place = _wait(cluster, transport, run, tell.waits)
            tell.begins(place)
            status = run_in(place, (), terminal=terminal) if terminal is not None else 0
        except BaseException:
            # Ctrl-C may have come while the job was handed over: then only the ledger knows of it.
            submitted = ledger.get(plan.runs[0].spec.run_id)
            if submitted is not None and submitted.job_id:
                trouble = _end(settings, ledger, cluster, login.transport(), submitted)
                tell.cancelled(Left(submitted.run_id, 1, None, trouble))
            raise
        (state,) = query(cluster, transport, [run])
        ledger.set_states([(run.run_id, state.state)])
        if keep or state.final:
            forget_ended(settings.project_dir / ".clusterkit", ledger.runs())
            return Left(run.run_id, status, state)
        return Left(run.run_id, status, None, _end(settings, ledger, cluster, transport, run))


def _session(profile: Profile) -> Profile:
    changes: dict[str, object] = {
        "recipe": None,
        "total_steps": None,
        "program": ("python", "-c", _PROGRAM),
        "signal": "none",
        "retry": Retry(),
    }
    return profile.model_copy(update=changes)


def _wait(
    cluster: Cluster, transport: Transport, run: LedgerRun, waits: Callable[[StatusRow], None]
) -> Inside:
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
        time.sleep(_PAUSES[backend_of(cluster).can.queue][asked > _PATIENCE])


def _end(
    settings: Settings, ledger: Ledger, cluster: Cluster, transport: Transport, run: LedgerRun
) -> ClusterkitError | None:
    """Ends the job, if it has not ended; returns why it could not be."""
    try:
        end_runs(cluster, transport, ledger, [run], [])
    except ClusterkitError as error:
        return error
    forget_ended(settings.project_dir / ".clusterkit", ledger.runs())
    return None
