"""`clusterkit rehearse`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from clusterkit.backends.base import backend_of
from clusterkit.backends.checks import Outcome
from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.ui.console import out, print_document, say, stage_lines, transfer_bar
from clusterkit.errors import ConfigError
from clusterkit.probes import ask
from clusterkit.project import load_project, open_ledger
from clusterkit.site import connected
from clusterkit.units import format_duration, parse_duration, parsed

if TYPE_CHECKING:
    from clusterkit.backends.checks import Verdict
    from clusterkit.backends.jobs import Continuation
    from clusterkit.checkup.rehearsal import RehearsalEvidence
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.runs.record import RunRecord
    from clusterkit.runs.status import StatusRow
    from clusterkit.transport.base import Transport


def rehearse(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-p", metavar="PROFILE", help="Profile whose resources and signal to rehearse."
        ),
    ] = None,
    cluster: options.Cluster = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="Time limit of each attempt; longer for programs that start slowly.",
        ),
    ] = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Rehearse how a run continues past its time limit.

    A real job of two minutes, or of --time, receives the signal, saves a checkpoint and continues, and every
    step is checked. Exits with 1 if a step failed.

    Examples:
      # two minutes on a node of that profile
      clusterkit rehearse --profile a40-2m
      # on this cluster
      clusterkit rehearse --profile a40-2m --cluster uni

    See also: clusterkit submit, until-done.md
    """
    settings = load_project(config)
    with open_ledger(settings) as ledger:
        done = rehearse_run(
            settings,
            ledger,
            settings.cluster(cluster),
            settings.profile(profile),
            None if time is None else parsed("--time", parse_duration, time),
            as_json=as_json,
        )
    (print_json if as_json else show_rehearsed)(done)
    if not done.passed:
        raise typer.Exit(1)


_SECONDS = {True: 120, False: 60}
"""Time limit (seconds) of an attempt, with and without a queue. A queue counts in minutes, and its signal may
come a minute early."""
_PAUSES = {True: 15.0, False: 1.0}
"""Seconds between two queries, with and without a queue."""
_CANCEL_SECONDS = 120.0
_TINY = ("--recipe", "local-demo", "--num-envs", "8", "--workers", "0", "--eval-every", "0")
_RARELY = ("--eval-episodes", "1", "--checkpoint-every", "0")

# $1 run directory. Prints log lines about signals, metrics lines about checkpoints, and the W&B folders.
_EVIDENCE = r"""
cd "$1" || exit 1
for log in attempts/*/log; do
  attempt=${log#attempts/}
  grep -a 'caught SIG' "$log" | sed "s,^,log ${attempt%/log} ,"
done
test ! -f metrics.jsonl ||
  grep -a -e '"kind": *"checkpoint"' -e '"kind": *"event"' metrics.jsonl | sed 's/^/metric /'
for folder in wandb/offline-run-* wandb/run-*; do test ! -d "$folder" || echo "wandb ${folder##*/}"; done
"""


@dataclass(frozen=True)
class Rehearsed:
    """The result of a rehearsal."""

    run: LedgerRun
    continuation: Continuation
    checks: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether a long run would continue past its time limit on this cluster."""
        return all(check.outcome is Outcome.PASS for check in self.checks)


def rehearse_run(
    settings: Settings,
    ledger: Ledger,
    cluster: Cluster,
    profile: Profile,
    seconds: int | None = None,
    *,
    as_json: bool,
) -> Rehearsed:
    """Submits a short run with a profile's resources, lets it be interrupted and resumed, checks each step.

    A training profile is rehearsed with a tiny recipe; the user's own program runs itself until its second
    attempt has begun.

    Args:
        settings: of the project.
        ledger: of the project.
        cluster: the target.
        profile: whose resources, partition, options and signal are rehearsed.
        seconds: time limit of an attempt; None for the shortest possible.
        as_json: whether standard output is left to JSON.

    Raises:
        ConfigError: the time limit is too short.
        ClusterkitError: as `submit`.
    """
    from clusterkit.checkup.rehearsal import checklist, over
    from clusterkit.cli.ui.submit import note_jobs, show_submitted
    from clusterkit.submit.pipeline import resolve, submit
    from clusterkit.submit.request import SubmitRequest

    shortest = _SECONDS[backend_of(cluster).can.queue]
    if seconds is not None and seconds < shortest:
        raise ConfigError(
            f"--time: an attempt of {format_duration(seconds)} is too short for the signal",
            hint=f"use at least {format_duration(shortest)}",
        )
    training = profile.program is None and settings.project.program is None and profile.recipe is not None
    short = _short(profile, seconds or shortest, training=training)
    request = SubmitRequest(cluster, short, name="rehearsal", until_done=True)
    done = submit(settings, resolve(settings, request), ledger, bar=transfer_bar)
    (note_jobs if as_json else show_submitted)(done)
    show_row = stage_lines(_line, _line, seconds=math.inf)
    assert done.continuation is not None
    (run,) = done.runs
    with connected(cluster) as transport:
        for row, record in _watch(cluster, transport, run):
            ledger.set_states([(run.run_id, row.state.state)])
            show_row(row)
            if over(record, row.state, training=training):
                break
        evidence = _evidence(transport, run, record, row)
        if row.state.state.active:
            _end(cluster, transport, row, record)
    signalled = backend_of(cluster).signalled(done.placed[0].submission.options)
    checks = checklist(evidence, short.time, done.continuation.way, training=training, signalled=signalled)
    return Rehearsed(run, done.continuation, checks)


def _short(profile: Profile, seconds: int, *, training: bool) -> Profile:
    changes: dict[str, object] = {"time": seconds}
    if training:
        hardware = ("--device", profile.device, "--precision", profile.precision)
        program = ("python", "-m", "trainer", "drill", *_TINY, *_RARELY, *hardware)
        changes |= {"recipe": None, "total_steps": None, "program": program}
        changes["signal"] = profile.signal or "USR1"
    return profile.model_copy(update=changes)


def _watch(cluster: Cluster, transport: Transport, run: LedgerRun) -> Iterator[tuple[StatusRow, RunRecord]]:
    """Yields the run's status repeatedly; for a chain, that of the newest job."""
    from clusterkit.runs.observe import query
    from clusterkit.runs.record import records
    from clusterkit.runs.status import StatusRow

    while True:
        files = records([run.run_dir])
        record = ask(transport, files).of(files)[run.run_dir]
        newest = record.submission
        job_id = newest.job_id(backend_of(cluster)) if newest else None
        if newest is not None and job_id:
            run = replace(run, job_id=job_id, submission=newest.number)
        (state,) = query(cluster, transport, [run])
        yield StatusRow(run, state), record
        time.sleep(_PAUSES[backend_of(cluster).can.queue])


def _end(cluster: Cluster, transport: Transport, row: StatusRow, record: RunRecord) -> None:
    """Cancels the run once everything was observed, so that it does not continue."""
    newest = record.started
    note = {"requested": int(time.time()), "job_id": row.run.job_id}
    folder = f"{row.run.run_dir}/attempts/{newest.number if newest else 0}"
    transport.write(f"{folder}/cancel.json", (json.dumps(note) + "\n").encode())
    transport.run(backend_of(cluster).cancel_argv([row.run.job_id]), check=False, timeout=_CANCEL_SECONDS)


def _evidence(transport: Transport, run: LedgerRun, record: RunRecord, row: StatusRow) -> RehearsalEvidence:
    from clusterkit.checkup.rehearsal import read_evidence

    text = transport.run(["sh", "-c", _EVIDENCE, "sh", run.run_dir], check=False).text
    return read_evidence(text, record, row.state, run.run_id)


def print_json(done: Rehearsed) -> None:
    """Prints the verdict and its steps as JSON."""
    steps = [
        {"outcome": check.outcome.value, "evidence": check.evidence, "cure": check.cure or None}
        for check in done.checks
    ]
    print_document({"schema": 1, "run_id": done.run.run_id, "passed": done.passed, "steps": steps})


def _line(row: StatusRow) -> str:
    state = row.state
    if state.state is JobState.RUNNING and state.attempt is None:
        return "it starts"
    if state.state is JobState.RUNNING:
        return f"attempt {state.attempt} runs on {state.node}" + (
            ", until its time limit" if state.attempt == 0 else ""
        )
    return state.state.capitalize() + (f": {state.why}" if state.why else "")


def show_rehearsed(done: Rehearsed) -> None:
    """Prints a green or red line for each step, and the verdict."""
    from clusterkit.backends.checks import Outcome

    for check in done.checks:
        mark, style = ("ok  ", "green") if check.outcome is Outcome.PASS else ("FAIL", "red")
        out.print(Text.assemble((f"{mark}  ", style), check.evidence), soft_wrap=True)
        if check.cure:
            say(f"      {check.cure}")
    if done.passed:
        out.print("A run with --until-done gets past its time limit here.", style="green", soft_wrap=True)
    else:
        out.print("A long run would not get past its time limit here.", style="red", soft_wrap=True)
