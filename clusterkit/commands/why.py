"""why: find the one cause of a run's state, the lines that prove it, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterkit import probes
from clusterkit.backends.base import Backend, backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.diagnosis import Diagnosis, Evidence, Subject, diagnose, parse_evidence, question
from clusterkit.diagnosis.arguments import OWN_PROGRAM
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import query
from clusterkit.runs.run_dir import read_run_dir
from clusterkit.runs.selection import known_state, settled
from clusterkit.runs.settling import settle_open
from clusterkit.site import connected
from clusterkit.transport.base import Bar, Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings


_SECONDS = 180.0
"""Time limit of the whole collection; each query has its own, shorter limit on the cluster."""


def why(settings: Settings, ledger: Ledger, run: LedgerRun) -> Diagnosis:
    """Diagnose why a run waits, failed or is silent, in one round trip that changes nothing on the cluster.

    A second round trip is needed if the submission was interrupted and must be settled first, or if the run
    directory records a later job than the ledger.

    Raises:
        RunError: the answer was cut short.
        TransportError: the cluster cannot be reached.
    """
    cluster = settings.cluster(run.cluster)
    with connected(cluster) as transport:
        (text,) = ask(cluster, transport, ledger, [run])
    return _for_here(settings, diagnose(parse_evidence(text)), run.run_id)


def _for_here(settings: Settings, found: Diagnosis, name: str) -> Diagnosis:
    """Returns a diagnosis that says where the settings name the program, and fetches nothing twice.

    Args:
        settings: of the project.
        found: what the cluster tells.
        name: of the run, or of its group.
    """
    subject, finding = found.evidence.subject, found.finding
    profile, copy = settings.profiles.get(subject.profile), settings.project.results / subject.run_id
    key = ("profiles", subject.profile, "program") if profile and profile.program else ("project", "program")
    cure = finding.cure.replace(OWN_PROGRAM, f"{OWN_PROGRAM} ({settings.merged.origin(key)})")
    synced = finding.next.startswith("clusterkit sync-results") and (copy / "run.json").is_file()
    command = f"clusterkit report {name}" if synced and read_run_dir(copy).ended else finding.next
    return replace(found, finding=replace(finding, cure=cure, next=command))


def ask(
    cluster: Cluster,
    transport: Transport,
    ledger: Ledger,
    runs: Sequence[LedgerRun],
    *,
    seconds: float = _SECONDS,
) -> list[str]:
    """Collect the evidence about runs of a cluster in one round trip; see `why` for further ones.

    It has the format that `parse_evidence` reads.

    Args:
        cluster: of the runs.
        transport: to it.
        ledger: of the project.
        runs: their rows.
        seconds: time limit for each run, of each round trip.

    Raises:
        RunError: an answer was cut short.
        TransportError: the cluster cannot be reached.
    """
    runs = settle_open(cluster, transport, ledger, runs)
    texts = _collect(cluster, transport, runs, seconds)
    again = {
        number: replace(run, job_id=later)
        for number, (run, text) in enumerate(zip(runs, texts, strict=True))
        if (later := _later_job(backend_of(cluster), parse_evidence(text), run)) is not None
    }
    newer = dict(zip(again, _collect(cluster, transport, list(again.values()), seconds), strict=True))
    return [newer.get(number, text) for number, text in enumerate(texts)]


def _collect(cluster: Cluster, transport: Transport, runs: Sequence[LedgerRun], seconds: float) -> list[str]:
    questions = [
        question(
            Subject(
                run.run_id,
                run.job_id,
                run.run_dir,
                scheduler=cluster.kind,
                shell=_shell(cluster),
                profile=run.profile,
                cluster=run.cluster,
                recipe=run.recipe,
            ),
            number,
        )
        for number, run in enumerate(runs)
    ]
    answers = probes.ask(transport, *questions, timeout=seconds * len(runs))
    return [answers.of(each) for each in questions]


def _later_job(backend: Backend, evidence: Evidence, run: LedgerRun) -> str | None:
    """The job to diagnose if another laptop or a chain of jobs continued the run after the ledger's job.

    The next job of a chain waits while the previous one runs; it counts once it has started, or once the run
    has asked to continue.
    """
    record, found = evidence.record, None
    begun = {(attempt.start or {}).get("submission") for attempt in record.attempts}
    wants = evidence.exit.get("why") in ("requeue", "timeout") and not (record.stopped or record.cancelled)
    for later in record.submissions:
        job_id = later.job_id(backend)
        if later.number <= run.submission or job_id is None:
            continue
        if later.kind != "chain" or later.number in begun or wants:
            found = job_id
    return found if found != run.job_id else None


def _shell(cluster: Cluster) -> str:
    """The ssh command, with the same configuration, that the user can run on the cluster."""
    if cluster.host is None:
        return ""
    config = ["-F", str(cluster.ssh_config.path)] if cluster.ssh_config else []
    return shlex.join(["ssh", *config, cluster.host])


MOST = 24
"""Most runs of a group whose evidence is collected, of all clusters together."""


@dataclass(frozen=True)
class Shared:
    """A cause and the runs that share it."""

    exemplar: Diagnosis
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Causes:
    """The causes of the states of a group's runs."""

    group: str
    runs: int
    shared: tuple[Shared, ...]
    """Causes that need action first, then the most frequent."""
    not_asked: tuple[str, ...]
    """Runs beyond the first `MOST`, which were not examined."""


def why_group(settings: Settings, ledger: Ledger, runs: Sequence[LedgerRun], *, bar: Bar) -> Causes:
    """Find out why each run of a group waits, failed or is silent, with one login per cluster.

    Of completed runs only the first is examined. The scheduler is not asked again about runs that the ledger
    knows as ended, and the evidence about all others comes in one round trip.

    Args:
        settings: of the project.
        ledger: knows the runs.
        runs: of one group.
        bar: opens progress bars.

    Raises:
        RunError: an answer was cut short.
        TransportError: a cluster cannot be reached.
    """
    found: dict[str, tuple[Diagnosis, list[str]]] = {}
    not_asked: list[str] = []
    left = MOST
    for name in dict.fromkeys(run.cluster for run in runs):
        mine = [run for run in runs if run.cluster == name]
        cluster = settings.cluster(name)
        with connected(cluster) as transport, bar(f"{len(mine):,} runs on {name}", None):
            going = [run for run in mine if not settled(run)]
            states = {run.run_id: known_state(run).state for run in mine}
            asked = query(cluster, transport, going) if going else []
            states |= {run.run_id: state.state for run, state in zip(going, asked, strict=True)}
            completed = [run for run in mine if states[run.run_id] is JobState.COMPLETED]
            like = {run.run_id: completed[0].run_id for run in completed}
            examined = [run for run in mine if like.get(run.run_id, run.run_id) == run.run_id]
            examined, left = examined[:left], left - len(examined[:left])
            texts = ask(cluster, transport, ledger, examined)
        diagnoses = {
            run.run_id: _for_here(settings, diagnose(parse_evidence(text)), run.group)
            for run, text in zip(examined, texts, strict=True)
        }
        for run in mine:
            diagnosis = diagnoses.get(like.get(run.run_id, run.run_id))
            if diagnosis is None:
                not_asked.append(run.run_id)
            else:
                found.setdefault(diagnosis.finding.cause.slug, (diagnosis, []))[1].append(run.run_id)
    shared = [Shared(exemplar, tuple(ids)) for exemplar, ids in found.values()]
    shared.sort(key=lambda each: (not each.exemplar.finding.cause.trouble, -len(each.run_ids)))
    return Causes(runs[0].group, len(runs), tuple(shared), tuple(not_asked))
