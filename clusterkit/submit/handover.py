"""Submits runs to a scheduler exactly once, whatever fails along the way."""

from __future__ import annotations

import json
import posixpath
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.backends.submission import (
    GONE,
    Submission,
    SubmissionOutcome,
    bundle,
    hand_over_argv,
    job_name,
    parse_hand_over,
    unclear,
)
from clusterkit.errors import ClusterkitError, SchedulerError, TransportError, last_words
from clusterkit.folders import work_folder
from clusterkit.interruption import InterruptedChange, held_back, tell
from clusterkit.probes import ask
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.site import Site
from clusterkit.submit.plan import Plan
from clusterkit.transport import faults
from clusterkit.transport.base import Transport

_SECONDS = 180.0
"""sbatch itself gives up well before this, after its MessageTimeout and some retries."""
_OPEN_HINT = (
    "`clusterkit status` shows whether there is a job once the scheduler answers; do not submit again "
    "before then"
)


_NAMES = r"""find "$1" -maxdepth 2 -name run.json -exec grep -hos "^ *\"short\": \"$2-[0-9]*" {} +"""
"""Tells the short names of a project that the run directories in a folder have."""
_begun: dict[str, Path] = {}
"""Run id -> ledger, for each run whose hand-over this process has begun."""


class SubmissionRefusedError(SchedulerError):
    """The scheduler refused the submission, so there is no job."""


@dataclass(frozen=True)
class Parcel:
    """One submission: its files and its request. Paths are relative to the work root."""

    runs: tuple[LedgerRun, ...]
    """Ledger rows of the runs; several runs share one job array."""
    owner: str
    """`runs/<run id>` or `groups/<group>`: the folder of job.sh and `submissions/`."""
    files: Mapping[str, bytes | str]
    """Contents by path; a str is the target of a symbolic link, a path that ends in a slash is a folder."""
    options: tuple[str, ...]
    number: int = 0
    tasks: tuple[int | None, ...] = (None,)
    """Each run's index in the job array."""
    later: tuple[LedgerRun, ...] = ()
    """Further runs whose directories are among the files; later parcels submit them."""
    needs: tuple[str, ...] = ()
    """Absolute paths of the runs' image and snapshots."""
    secrets: tuple[str, ...] = ()
    """Folders of secrets among the files."""

    @property
    def job_name(self) -> str:
        """The token that identifies the job."""
        return job_name(posixpath.basename(self.owner), self.number)


def hand_over_parcel(site: Site, ledger: Ledger, parcel: Parcel, alive: str = "") -> str:
    """Writes a submission's files and calls the scheduler, in one remote command.

    The ledger records the runs first (SUBMITTING), so an interrupted submission can be settled later.

    Args:
        site: the open cluster.
        ledger: the project's ledger.
        parcel: the submission.
        alive: a work folder that is held until the group's last parcel has been submitted.

    Returns:
        The job id; for an array, that of the first run's task.

    Raises:
        SubmissionRefusedError: the scheduler refused; the files of new runs are removed.
        SchedulerError: the scheduler's answer is unclear; the submission stays open.
        TransportError: nothing could be written, or the connection failed; then the submission stays open.
    """
    if not alive:
        with work_folder(ledger.folder) as folder:
            return hand_over_parcel(site, ledger, parcel, folder.name)
    with held_back():
        return _hand_over(site, ledger, parcel, alive)


def _hand_over(site: Site, ledger: Ledger, parcel: Parcel, alive: str) -> str:
    concerned = (*parcel.runs, *parcel.later)
    before = [ledger.get(run.run_id) for run in concerned]
    token = f"{alive}.{parcel.number}"
    last = json.dumps({"token": token})
    intent = [replace(run, state=JobState.SUBMITTING, job_id="", last=last) for run in concerned]
    _begun.update(dict.fromkeys((run.run_id for run in concerned), ledger.path))
    tell(what_came)
    ledger.add_all(intent)
    transport, backend, root = site.transport, backend_of(site.cluster), site.layout.root
    ledger.add_secrets(site.cluster.name, [f"{root}/{folder}" for folder in parcel.secrets])
    submit = backend.submit_argv(
        f"{root}/{parcel.owner}/job.sh",
        run_dir=f"{root}/{parcel.owner}",
        job_name=parcel.job_name,
        options=parcel.options,
    )
    new = parcel.number == 0
    argv = hand_over_argv(root, token, parcel.owner, parcel.number, submit, new=new, needs=parcel.needs)
    try:
        done = transport.run(argv, stdin=bundle(parcel.files), timeout=_SECONDS, check=False)
    except TransportError as error:
        raise TransportError(error.cause, hint=_OPEN_HINT) from error
    answer = parse_hand_over(done.text, done.error_text)
    if answer is not None and answer.asked is None:
        _take_back(ledger, concerned, before)
        raise _unwritten(transport, root, done.error_text)
    job_ids = [replace(answer, task=task).job_id(backend) if answer else None for task in parcel.tasks]
    if None not in job_ids:
        ledger.add_all(
            replace(run, state=JobState.PENDING, job_id=job_id or "")
            for run, job_id in zip(parcel.runs, job_ids, strict=True)
        )
        return job_ids[0] or ""
    from clusterkit.runs.settling import note, settle  # deferred: rarely needed

    if answer is not None and answer.unheard:
        for run in intent[: len(parcel.runs)]:
            note(ledger, run, SubmissionOutcome(JobState.SUBMITTING, why=unclear(answer)))
        raise _open(transport, answer, "")
    settled = settle(site.cluster, transport, ledger, intent[: len(parcel.runs)], alive)
    refusal = answer.refusal if answer is not None else None
    if refusal is not None and {came.state for came in settled.values()} == {JobState.NOT_SUBMITTED}:
        _clear(site, parcel)
        _take_back(ledger, concerned, before)
        raise _refused(site, refusal)
    found = settled[parcel.runs[0].run_id].job_id
    if found is None:
        raise _open(transport, answer, done.error_text)
    return found


def _take_back(ledger: Ledger, runs: Sequence[LedgerRun], before: Sequence[LedgerRun | None]) -> None:
    """Restores the rows of runs whose submission left no trace."""
    ledger.restore(runs, before)
    for run in runs:
        _begun.pop(run.run_id, None)


def short_names(site: Site, ledger: Ledger, plan: Plan, project: str) -> list[str]:
    """Returns the short names of a plan's runs; of new ones, `PROJECT-N` with a number that was never given.

    In a group, each run's own part follows: its seed if no other has that, else its index. Another laptop, or
    a ledger that is lost, may have given numbers, so a new ledger asks the cluster for those of its runs.
    """
    first = plan.runs[0].spec
    if plan.runs[0].submission.number > 0:
        return [run.spec.short for run in plan.runs]
    trial = first.group["id"] if first.group and plan.group is None else None
    earlier = (run.short for run in ledger.runs() if trial and run.group == trial and run.short)
    base = next(earlier, "").partition("/")[0]
    if not base:
        command = ["sh", "-c", _NAMES, "sh", f"{site.layout.root}/runs", project]
        taken = [] if ledger.ids() else site.transport.run(command, check=False).text.splitlines()
        base = f"{project}-{ledger.new_number(line.rpartition(chr(34))[2] for line in taken)}"
    if first.group is None:
        return [base]
    specs = [run.spec for run in plan.runs]
    seeds = Counter(spec.seed for spec in specs if plan.group)
    own = (f"seed{one.seed}" if seeds[one.seed] == 1 else (one.group or {})["index"] for one in specs)
    return [f"{base}/{part}" for part in own]


def settle_unclear(site: Site, ledger: Ledger) -> dict[str, SubmissionOutcome]:
    """Settles earlier interrupted submissions to this cluster; returns their outcomes by run id."""
    unclear = [run for run in ledger.runs(cluster=site.cluster.name) if run.state == JobState.SUBMITTING]
    if not unclear:
        return {}
    from clusterkit.runs.settling import settle  # deferred: rarely needed

    return settle(site.cluster, site.transport, ledger, unclear)


def what_came() -> InterruptedChange | None:
    """Returns what the ledger knows of the runs that this process has begun to hand over."""
    rows: list[LedgerRun] = []
    for path in dict.fromkeys(_begun.values()):
        with Ledger.for_reading(path) as ledger:
            rows += [run for run in map(ledger.get, _begun) if run is not None]
    unknown = [run for run in rows if run.state == JobState.SUBMITTING]
    taken = [run for run in rows if run not in unknown and run.state != JobState.NOT_SUBMITTED]
    if not unknown and not taken:
        return InterruptedChange("nothing was submitted")
    if all(run.state == JobState.CANCELLED for run in rows):
        return None  # whoever cancelled them says so
    several = len(_begun) > 1
    names = " ".join(dict.fromkeys((several and run.group) or run.run_id for run in (*taken, *unknown)))
    if unknown:
        count = f"{len(unknown)} of the {len(_begun)} runs of " if several else ""
        words = f"whether {count}{names} reached the scheduler is not known"
        return InterruptedChange(words, "`clusterkit status` finds out; do not submit again before then")
    of_all = f"{len(taken)} of " if len(taken) < len(_begun) else ""
    words = f"{of_all}{len(_begun)} runs of {names} were submitted" if several else f"{names} was submitted"
    if later := sum(run.state == JobState.DEFERRED for run in taken):
        words += f", {later} of them for when the queue has room"
    return InterruptedChange(
        words, f"`clusterkit status {names}` shows the state, `clusterkit cancel {names}` ends it"
    )


def other_jobs(site: Site, run_dir: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns what came of a run's jobs beside the first: the ids, and why the scheduler refused others.

    Both are empty if the cluster does not answer; `status` finds the jobs later.
    """
    from clusterkit.runs.record import records  # deferred: most runs have one job

    probe = records([run_dir])
    try:
        found = ask(site.transport, probe).of(probe)[run_dir].alternatives[1:]
    except ClusterkitError:
        return (), ()
    ids = (one.job_id(backend_of(site.cluster)) for one in found)
    return tuple(filter(None, ids)), tuple(one.refusal for one in found if one.refusal is not None)


@held_back()
def hand_over_job(
    site: Site,
    owner: str,
    files: Mapping[str, bytes | str],
    *,
    job_name: str,
    options: Sequence[str],
    new: bool,
) -> str:
    """Submits a job that is not a run and not in the ledger, in one remote command.

    Args:
        site: the open cluster.
        owner: the job's folder in the work root; `submissions/0/` in it keeps the answer.
        files: contents by path in the work root, including `job.sh` in that folder.
        job_name: identifies the job; no earlier job may have had it.
        options: the backend's options.
        new: the folder does not exist yet; otherwise only `job.sh` is replaced.

    Returns:
        The job id.

    Raises:
        SubmissionRefusedError: the scheduler refused the job.
        SchedulerError: the scheduler's answer is unclear, and no job with the name exists.
        TransportError: nothing could be written, or the connection failed.
        KeyboardInterrupt: Ctrl-C came; a caller that holds it back gets the job id first.
    """
    transport, backend, root = site.transport, backend_of(site.cluster), site.layout.root
    folder = f"{root}/{owner}"
    submit = backend.submit_argv(f"{folder}/job.sh", run_dir=folder, job_name=job_name, options=options)
    argv = hand_over_argv(root, secrets.token_hex(6), owner, 0, submit, new=new)
    whole = {**files, f"{owner}/submissions/0/": ""}
    done = transport.run(argv, stdin=bundle(whole), timeout=_SECONDS, check=False)
    answer = parse_hand_over(done.text, done.error_text)
    if answer is not None and answer.asked is None:
        raise _unwritten(transport, root, done.error_text)
    if answer is not None and (job_id := answer.job_id(backend)) is not None:
        return job_id
    if answer is not None and answer.refusal is not None and not answer.doubtful:
        raise _refused(site, answer.refusal)
    from clusterkit.runs.settling import day_before  # deferred: rarely needed

    search = backend.find(job_name, f"{folder}/job.sh", day_before(""))
    found = ask(transport, search, check=False).of(search)
    if found.ids:
        return found.ids[-1]
    if answer is not None and answer.refusal is not None and found.certain:
        raise _refused(site, answer.refusal)
    hint = f"check for a job named {job_name} there before you repeat the command"
    raise _open(transport, answer, done.error_text, hint)


def _clear(site: Site, parcel: Parcel) -> None:
    """Removes the files of new runs, and all secrets, after a refusal."""
    gone = [f"{site.layout.root}/{folder}" for folder in parcel.secrets]
    if parcel.number == 0:
        gone += [run.run_dir for run in (*parcel.runs, *parcel.later)]
        gone.append(f"{site.layout.root}/{parcel.owner}")
    if gone:
        site.transport.run(["rm", "-rf", *gone], check=False)


def _unwritten(transport: Transport, root: str, words: str) -> TransportError:
    """Returns the error for a run that could not be written; the scheduler was not asked."""
    said = faults.telling(words) or f"cannot write below {root}"
    if said.endswith(GONE):
        return TransportError(
            f"{transport.where}: nothing was submitted: {said}",
            hint="`clusterkit deploy` sends it again; then repeat the command",
        )
    return TransportError(
        f"{transport.where}: the run could not be written, and nothing was submitted: {said}",
        hint=faults.room_hint(words) or f"check {root} with `clusterkit doctor`",
    )


def _open(
    transport: Transport, answer: Submission | None, words: str, hint: str = _OPEN_HINT
) -> SchedulerError:
    """Returns the error for a submission that may have created a job, with the tools' messages."""
    if answer is None:
        cause = f"the submission was interrupted there: {last_words(words)}"
    elif answer.refusal is not None:
        cause = f"the scheduler gave no clear answer: {answer.refusal}"
    else:
        cause = f"the scheduler's answer contains no job id: {last_words(answer.answer)}"
    return SchedulerError(f"{transport.where}: {cause}", hint=hint)


def _refused(site: Site, words: str) -> SubmissionRefusedError:
    return SubmissionRefusedError(
        f"{site.transport.where}: the scheduler refused the job: {words}",
        hint=backend_of(site.cluster).refusal_hint(words),
    )
