"""resume: go on with a run that ended before it was done, as a new submission in the same run directory."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.base import JobState
from clusterkit.backends.slurm.abilities import Choice
from clusterkit.commands.deploy import Bar
from clusterkit.commands.fitting import check_fit
from clusterkit.commands.handover import hand_over, settle
from clusterkit.commands.moving import NOTES, check_target, leave_note, move
from clusterkit.commands.recorded import unreadable
from clusterkit.commands.resubmission import Ended, ResumeRequest, plan, recorded_profile
from clusterkit.commands.status import query
from clusterkit.errors import RunError
from clusterkit.results.cleaning import REMAINING, removed_checkpoint
from clusterkit.results.selection import CLEANED
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.placeholders import has_place
from clusterkit.runs.program import TOTAL_STEPS, option_of, trains, with_hardware, with_steps
from clusterkit.runs.record import collect_script, parse_collect
from clusterkit.runs.state import RunState
from clusterkit.site import Site, open_site
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings


_DOCUMENT = f"""
[ ! -e "$ck_here/moved.json" ] || echo moved
printf '\\036'
[ ! -r "$ck_here/run.json" ] || echo y
[ ! -f "$ck_here/run.json" ] || head -c {DOCUMENT_BYTES} "$ck_here/run.json"
printf '\\036'
"""
"""Prints whether the run in $ck_here has moved on, and run.json after a `y` where there is one, each with a
record separator behind it. What collects the records of the run follows."""


@dataclass(frozen=True)
class Resumed:
    """A run the scheduler has accepted again."""

    run: LedgerRun
    job_id: str
    was: RunState
    checkpoint: str | None
    """Name of the newest checkpoint the last attempt has told of; None when it has to begin at the start."""
    choice: Choice | None
    trusted: tuple[str, ...] = ()
    """A line for each folder there that a user whom the settings trust could change."""


def resume(settings: Settings, request: ResumeRequest, ledger: Ledger, name: str, *, bar: Bar) -> Resumed:
    """Submit a run again, over one login; it goes on from its newest good checkpoint.

    On another cluster than its own it goes on when all that it needs has been moved there.

    Raises:
        RunError: the run is unknown, may still run, is complete, or is not there any more, or not its
            newest checkpoint.
        ConfigError: the request is wrong.
        ImageError: the cluster does not have its image any more.
        SchedulerError: it can never run there, or the scheduler refused; the run is as it was.
        TransportError: the cluster cannot be reached.
    """
    run = ledger.find_one(name)
    target = settings.cluster(request.cluster or run.cluster)
    with ExitStack() as stack:
        site = there = stack.enter_context(open_site(settings.cluster(run.cluster)))
        ended = _look(site, ledger, run)
        _check(ended, request)
        _check_fit(settings, target, ended, request)
        if target.name != run.cluster:
            there = stack.enter_context(open_site(target))
            check_target(there, ended.run, ended.document)
            plan(there, ended, request, check=False)  # what is wrong with the request shows before the move
            move(site, there, ended.run, ended.document, settings.project.results, bar=bar)
        again, parcel, choice = plan(there, ended, request)
        newest = _newest(ended)
        _check_checkpoints(there, again, newest, settings.project.results)
        there.transport.run(["rm", "-f", *(f"{again.run_dir}/{name}" for name in NOTES)])
        job_id = hand_over(there, ledger, parcel)
        if target.name != run.cluster:
            leave_note(site, ended.run, again)
    return Resumed(replace(again, job_id=job_id), job_id, ended.state, newest, choice, there.notes)


def _look(site: Site, ledger: Ledger, run: LedgerRun) -> Ended:
    """The run with its newest job, its state and its records.

    Raises:
        RunError: its run directory is gone, or was left behind when it moved to another cluster.
    """
    if run.state == JobState.SUBMITTING:
        settle(site.cluster, site.transport, ledger, [run])
        run = ledger.get(run.run_id) or run
    script = f"ck_here={shlex.quote(run.run_dir)}\n{_DOCUMENT}{collect_script([run.run_dir])}"
    answer = site.transport.run(["sh"], stdin=script.encode("utf-8", "surrogateescape")).text
    moved, _, rest = answer.partition("\x1e")
    if moved.strip():  # what was left behind then is not to become a second run
        raise RunError(
            f"{run.run_id}: it has moved on from {run.cluster}, to what {run.run_dir}/moved.json says",
            hint="resume it where that was done; or remove that file, to go on here with what lies here",
        )
    there, text = rest[:1] == "y", rest[1:].partition("\x1e")[0]
    record = parse_collect(answer)[run.run_dir]
    if not record.exists or not there:
        raise RunError(
            f"{run.run_id}: there is no run directory {run.run_dir} on {run.cluster}",
            hint="`clusterkit submit` starts a new run",
        )
    document = parse_object(text)
    if document is None:
        raise unreadable(run)
    newest = record.submission
    if newest is not None and newest.number > run.submission and newest.job_id:
        run = replace(run, job_id=newest.job_id, submission=newest.number)  # of a chain
    (state,) = query(site.cluster, site.transport, [run])
    return Ended(run, state, record, document)


def _newest(ended: Ended) -> str | None:
    """Name of the newest checkpoint that its heartbeat tells of."""
    checkpoint = (ended.record.heartbeat or {}).get("checkpoint")
    return str(checkpoint).rpartition("/")[2] if checkpoint else None


def _check_checkpoints(site: Site, run: LedgerRun, newest: str | None, results: Path) -> None:
    """Find out whether what it would go on from was removed by `clean --all`.

    Raises:
        RunError: it was; the run would begin again, or go on from something older.
    """
    answer = site.transport.run(["sh", "-c", REMAINING, "sh", run.run_dir], check=False).text
    gone = removed_checkpoint(answer, newest)
    if gone is not None:
        raise RunError(
            f"{run.run_id} cannot go on: `clusterkit clean --all` has removed {gone} from {run.cluster}",
            hint=f"copy {results / run.run_id / 'checkpoints'} back to {run.run_dir}; "
            f"without {run.run_dir}/{CLEANED} it goes on from what is left there",
        )


def _check_fit(settings: Settings, target: Cluster, ended: Ended, request: ResumeRequest) -> None:
    if request.profile:
        check_fit(settings, target, [(request.profile, with_hardware(ended.argv, {}, request.profile)[0])])
    else:
        check_fit(settings, target, [(recorded_profile(ended.document), ended.argv)])


def _check(ended: Ended, request: ResumeRequest) -> None:
    run, state, argv = ended.run, ended.state, ended.argv
    if state.state.active:
        raise RunError(
            f"{run.run_id} is {state.state}: it cannot be resumed while it may run",
            hint=f"`clusterkit cancel {run.run_id}` ends it first",
        )
    if state.state is JobState.UNKNOWN:
        raise RunError(
            f"{run.run_id}: it is not known whether it still runs ({state.why or 'no answer'})",
            hint="try again when `clusterkit status` knows",
        )
    template = ended.document.get("template")
    if request.total_steps is not None:
        with_steps(argv, {}, template, request.total_steps)
    if state.state is JobState.COMPLETED:
        known = has_place(template, "total_steps") and ended.env.get(TOTAL_STEPS)
        steps = int((option_of(argv, "--total-steps") if trains(argv) else known) or 0)
        if request.total_steps is None or request.total_steps <= steps:
            raise RunError(
                f"{run.run_id} is COMPLETED" + (f" with {steps:,} steps" if steps else ""),
                hint=f"`clusterkit resume {run.run_id} --total-steps N` trains on, to more steps"
                if steps
                else "`clusterkit submit` starts a new run",
            )
