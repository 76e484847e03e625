"""resume: continue a run that ended early, as a new submission in the same run directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.errors import RunError
from clusterkit.probes import ask
from clusterkit.results.cleaning import REMAINING, removed_checkpoint
from clusterkit.results.moving import NOTES, check_target, leave_note, move
from clusterkit.results.pulled import unreadable
from clusterkit.results.selection import CLEANED
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import query
from clusterkit.runs.program import has_place, trains
from clusterkit.runs.record import RunRecord, records
from clusterkit.runs.roster import RunDocument, document
from clusterkit.runs.secret_values import SecretValues, find_secrets
from clusterkit.runs.settling import settle_open
from clusterkit.runs.spec import RunSpec
from clusterkit.runs.state import RunState
from clusterkit.site import Site, open_site
from clusterkit.snapshots.copy import fetch
from clusterkit.submit.check import check
from clusterkit.submit.feeding import feed
from clusterkit.submit.materials import Materials, must_have_image, send_environment, snapshots_home
from clusterkit.submit.pipeline import Submitted, hand_over, prepare
from clusterkit.submit.request import Changes
from clusterkit.submit.resubmit import Ended, resume_plan
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class Resumed:
    """A run that the scheduler has accepted again."""

    done: Submitted
    was: RunState
    checkpoint: str | None
    """Name of the newest checkpoint that the last attempt reported; None if the run starts from scratch."""


def resume(
    settings: Settings,
    changes: Changes,
    ledger: Ledger,
    name: str,
    *,
    bar: Bar,
    say: Callable[[str], None],
    values: SecretValues | None = None,
) -> Iterator[Resumed]:
    """Submit a run again, over one login, to resume from its newest good checkpoint.

    What waits for the queue is submitted, as far as the queue takes it. To resume on another cluster, the run
    is first moved there with all that it needs. Of a group, those runs go on that can; `say` is told of each
    other one. `values` are the secrets; None looks for them.

    Raises:
        RunError: the run is unknown, may still run, is complete, or is gone from the cluster, its newest
            checkpoint is gone, or its program refused its arguments; or no run of a group can be resumed.
        ConfigError: the request is invalid.
        ImageError: the cluster no longer has its image.
        SchedulerError: it can never run there, or the scheduler refused; the run is unchanged.
        TransportError: the cluster cannot be reached.
    """
    runs = ledger.find([name])
    resumed = 0
    with ExitStack() as stack:
        site_of = cache(lambda cluster: stack.enter_context(open_site(settings.cluster(cluster))))
        secrets = cache(
            lambda: values or find_secrets(settings)
        )  # asks a password manager once, for all runs
        waiting = [run for run in runs if run.state == JobState.DEFERRED]
        for group, cluster in dict.fromkeys((run.group, run.cluster) for run in waiting):
            accepted = len(feed(site_of(cluster), group))
            say(f"{group}: the queue took {accepted} more of its jobs")
        for cluster in dict.fromkeys(run.cluster for run in runs if run not in waiting):
            mine = [run for run in runs if run.cluster == cluster and run not in waiting]
            with bar(f"{len(mine):,} runs on {cluster}", None) if len(mine) > 1 else nullcontext():
                looks = _look(site_of(cluster), ledger, mine, changes)
            for ended in looks:
                if not isinstance(ended, RunError):
                    yield _resume(settings, changes, ledger, ended, site_of, secrets, bar)
                    resumed += 1
                elif len(runs) == 1:
                    raise ended
                else:
                    say(ended.cause)
    if not resumed and not waiting:
        raise RunError(
            f"none of the {len(runs)} runs of {runs[0].group} can be resumed",
            hint=f"`clusterkit status {runs[0].group}` shows them",
        )


def _resume(
    settings: Settings,
    changes: Changes,
    ledger: Ledger,
    ended: Ended,
    site_of: Callable[[str], Site],
    secrets: Callable[[], SecretValues],
    bar: Bar,
) -> Resumed:
    before = ended.run.cluster
    target = settings.cluster(changes.cluster or before)
    plan, materials = resume_plan(target, ended, changes), Materials.recorded(ended.spec)
    check(settings, plan, ledger)
    values = secrets()
    site, there = site_of(before), site_of(target.name)
    if there is not site:
        check_target(there, ended.spec)
    ready = prepare(there, ledger, plan, materials, values)  # raises before anything is moved
    if there is not site:
        move(site, there, ended.run, ended.spec, settings.results_to_write(), bar=bar)
    _must_be_there(settings, there, ended.run, materials, bar)
    newest = _newest(ended)
    _check_checkpoints(there, ready.placed[0].row, newest, settings.project.results)
    run_dir = ready.placed[0].row.run_dir
    there.transport.run(["rm", "-f", *(f"{run_dir}/{name}" for name in NOTES)])
    done = hand_over(there, ledger, ready)
    if there is not site:
        leave_note(site, ended.run, done.runs[0])
    return Resumed(done, ended.state, newest)


def _must_be_there(settings: Settings, site: Site, run: LedgerRun, materials: Materials, bar: Bar) -> None:
    """Raises ImageError, RunError or ConfigError if a run's image, code or environment is gone."""
    must_have_image(
        site, materials.image, hint="`clusterkit deploy --image FILE.sif` uploads the same file again"
    )
    code = f"{site.layout.snapshots}/{materials.code}"
    if site.transport.run(["test", "-d", code], check=False).returncode != 0:
        raise RunError(
            f"{run.run_id}: its code, {code}, no longer exists",
            hint="`clusterkit submit` starts a new run",
        )

    def code_here() -> Path:
        return fetch(site, materials.code, snapshots_home(settings)) / "project"

    send_environment(site, materials.environment, materials.image, bar, code_here)


def _look(site: Site, ledger: Ledger, runs: Sequence[LedgerRun], changes: Changes) -> list[Ended | RunError]:
    """Reads runs of a cluster with their newest jobs, states and records, in a few round trips.

    Returns:
        In the order of the runs; a RunError for a run that cannot be resumed.
    """
    cluster, transport = site.cluster, site.transport
    runs = settle_open(cluster, transport, ledger, runs)
    documents = [document(run.run_dir, number) for number, run in enumerate(runs)]
    files = records([run.run_dir for run in runs])
    answers = ask(transport, *documents, files, timeout=300.0)
    read = answers.of(files)
    there: dict[str, LedgerRun] = {}
    specs: dict[str, RunSpec] = {}
    faults: dict[str, RunError] = {}
    for run, probe in zip(runs, documents, strict=True):
        try:
            specs[run.run_id] = _spec(run, answers.of(probe), read[run.run_dir])
            there[run.run_id] = _newest_job(site, run, read[run.run_dir])
        except RunError as error:
            faults[run.run_id] = error
    states = query(cluster, transport, list(there.values())) if there else []
    looks: dict[str, Ended] = {}
    for run, state in zip(there.values(), states, strict=True):
        looks[run.run_id] = Ended(run, state, read[run.run_dir], specs[run.run_id])
        try:
            _check(looks[run.run_id], changes)
        except RunError as error:
            faults[run.run_id] = error
    fit = [ended for name, ended in looks.items() if name not in faults]
    faults |= _refused_arguments(site, ledger, fit, changes)
    return [faults.get(run.run_id) or looks[run.run_id] for run in runs]


def _spec(run: LedgerRun, found: RunDocument, record: RunRecord) -> RunSpec:
    """Returns a run's description.

    Raises:
        RunError: its run directory is gone or damaged, or the run has moved to another cluster.
    """
    if found.moved:  # the old directory must not become a second run
        raise RunError(
            f"{run.run_id}: it has moved from {run.cluster} to where {run.run_dir}/moved.json says",
            hint="resume it in the project that moved it, or remove that file to continue here from what "
            "is left",
        )
    if not record.exists or not found.exists:
        raise RunError(
            f"{run.run_id}: there is no run directory {run.run_dir} on {run.cluster}",
            hint="`clusterkit submit` starts a new run",
        )
    if found.content is None:
        raise unreadable(run)
    record.request.whole(f"{run.run_dir} on {run.cluster}")
    return RunSpec.recorded(found.content, f"{run.run_dir}/run.json on {run.cluster}")


def _newest_job(site: Site, run: LedgerRun, record: RunRecord) -> LedgerRun:
    """Returns the run with its newest job."""
    newest = record.submission
    job_id = newest.job_id(backend_of(site.cluster)) if newest else None
    if newest is not None and newest.number > run.submission and job_id:
        return replace(run, job_id=job_id, submission=newest.number)  # the newest job of a chain
    return run


def _newest(ended: Ended) -> str | None:
    """Name of the newest checkpoint in the run's heartbeat."""
    checkpoint = (ended.record.heartbeat or {}).get("checkpoint")
    return str(checkpoint).rpartition("/")[2] if checkpoint else None


def _check_checkpoints(site: Site, run: LedgerRun, newest: str | None, results: Path) -> None:
    """Check that `clean --all` has not removed the checkpoint to resume from.

    Raises:
        RunError: it has; the run would start from scratch or from an older checkpoint.
    """
    answer = site.transport.run(["sh", "-c", REMAINING, "sh", run.run_dir], check=False).text
    gone = removed_checkpoint(answer, newest)
    if gone is not None:
        raise RunError(
            f"{run.run_id} cannot be resumed: `clusterkit storage clean --last-checkpoint` has removed "
            f"{gone} from {run.cluster}",
            hint=f"copy {results / run.run_id / 'checkpoints'} back to {run.run_dir}; "
            f"or remove {run.run_dir}/{CLEANED} to resume from what is left there",
        )


def _check(ended: Ended, changes: Changes) -> None:
    run, state, program = ended.run, ended.state, ended.program
    if state.state.active:
        raise RunError(
            f"{run.run_id} is {state.state}: it cannot be resumed while it may still run",
            hint=f"`clusterkit cancel {run.run_id}` ends it first",
        )
    if state.state is JobState.UNKNOWN:
        raise RunError(
            f"{run.run_id}: it is not known whether it is still running ({state.why or 'no answer'})",
            hint="try again once `clusterkit status` shows its state",
        )
    if changes.total_steps is not None:
        program.with_steps(changes.total_steps)
    if state.state is JobState.COMPLETED:
        counts = trains(program.argv) or (program.has_places and has_place(program.argv, "total_steps"))
        steps = (program.total_steps or 0) if counts else 0
        if changes.total_steps is None or changes.total_steps <= steps:
            made = steps if state.progress is None else round(state.progress * steps)
            of_all = f" of {steps:,}" if made < steps else ""  # it had learnt enough: `stop_at`
            raise RunError(
                f"{run.run_id} is COMPLETED" + (f" with {made:,}{of_all} steps" if steps else ""),
                hint=f"`clusterkit resume {run.run_id} --total-steps N` trains it for more steps"
                if steps
                else "`clusterkit submit` starts a new run",
            )


def _refused_arguments(
    site: Site, ledger: Ledger, runs: Sequence[Ended], changes: Changes
) -> dict[str, RunError]:
    """Returns the errors of runs without progress that failed because their program refused its arguments.

    A further submission would pass the same arguments to the same code.
    """
    same = changes.profile is None and changes.total_steps is None
    doubtful = [ended for ended in runs if ended.state.state is JobState.FAILED and not _newest(ended)]
    if not same or not doubtful:
        return {}
    from clusterkit.commands.why import ask as collect  # deferred: most runs need no diagnosis
    from clusterkit.diagnosis import diagnose, parse_evidence
    from clusterkit.diagnosis.rules.program import WRONG_ARGUMENT

    texts = collect(site.cluster, site.transport, ledger, [ended.run for ended in doubtful])
    faults = {}
    for ended, text in zip(doubtful, texts, strict=True):
        finding = diagnose(parse_evidence(text)).finding
        if finding.cause is WRONG_ARGUMENT:
            said = f": {finding.evidence[0].text}" if finding.evidence else ""
            faults[ended.run.run_id] = RunError(
                f"{ended.run.run_id}: {finding.sentence}{said}; `resume` would pass the same arguments again",
                hint=f"{finding.cure}: `{finding.next}`",
            )
    return faults
