"""Judges a rehearsal of the continuation past a time limit by its run directory. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterkit.backends.checks import Outcome, Verdict, failed, passed
from clusterkit.backends.jobs import JobState, Way
from clusterkit.runs.record import RunRecord
from clusterkit.runs.state import RunState
from clusterkit.untrusted import parse_object

_SIGNAL = re.compile(
    r"(?P<attempt>\d+) .*caught (?P<name>SIG\w+)(?:, (?P<left>\d+) s (?P<side>before|after) the time limit)?"
)


@dataclass(frozen=True)
class RehearsalEvidence:
    """The evidence that a rehearsal left."""

    record: RunRecord
    state: RunState
    signals: tuple[str, ...]
    """Log lines about signals, each after its attempt's number."""
    metrics: tuple[Mapping[str, Any], ...]
    """Lines of metrics.jsonl about checkpoints and events."""
    wandb: tuple[str, ...]
    """Names of W&B's run folders."""
    run_id: str


def read_evidence(text: str, record: RunRecord, state: RunState, run_id: str) -> RehearsalEvidence:
    """Parses log lines about signals, lines of metrics.jsonl and names of W&B folders, each after its kind.

    A partly written line is ignored.
    """
    parts = [line.partition(" ")[::2] for line in text.split("\n")]
    metrics = []
    for kind, rest in parts:
        if kind == "metric" and (row := parse_object(rest)) is not None:
            metrics.append(row)
    return RehearsalEvidence(
        record,
        state,
        signals=tuple(rest for kind, rest in parts if kind == "log"),
        metrics=tuple(metrics),
        wandb=tuple(rest for kind, rest in parts if kind == "wandb"),
        run_id=run_id,
    )


def over(record: RunRecord, state: RunState, *, training: bool) -> bool:
    """Returns whether the rehearsal is complete."""
    if record.stopped is not None or not (state.state.active or state.state is JobState.UNKNOWN):
        return True
    newest = record.started
    return not training and newest is not None and newest.number > 0


def checklist(
    evidence: RehearsalEvidence, limit: int, way: Way, *, training: bool, signalled: bool
) -> tuple[Verdict, ...]:
    """Returns the checklist in chronological order, without events that can no longer happen.

    Args:
        evidence: the rehearsal's.
        limit: time limit of an attempt, seconds.
        way: how the run continues.
        training: whether it was the trainer, whose checkpoints are known, or a user's own program.
        signalled: whether a signal was to be sent before the limit.
    """
    starts = [attempt for attempt in evidence.record.attempts if attempt.start is not None]
    if not starts:
        return (failed(f"it did not start: {evidence.state.why or evidence.state.state}", ""),)
    first = starts[0]
    checks = [passed(f"started on {(first.start or {}).get('node')}")]
    if signalled:
        checks.append(_signal(evidence, first.number, limit))
    if training and all(check.outcome is Outcome.PASS for check in checks):
        checks.append(_checkpoint(evidence, first.number))
    if len(starts) < 2:
        checks.append(_left_behind(evidence, way))
        return tuple(checks)
    second = starts[1]
    checks.append(passed(_gone_on(first.exit, second.start, way)))
    if training:
        checks.append(_resumed(evidence, second.number, second.start))
        if evidence.wandb:
            checks.append(_wandb(evidence))
        finished = evidence.state.state is JobState.COMPLETED
        checks.append(passed("finished") if finished else failed(f"not finished: {_why(evidence)}", ""))
    return tuple(checks)


def _signal(evidence: RehearsalEvidence, attempt: int, limit: int) -> Verdict:
    matches = [match for match in map(_SIGNAL.fullmatch, evidence.signals) if match]
    match = next((line for line in matches if int(line["attempt"]) == attempt), None)
    if match is None:
        return failed(
            f"no signal came before the time limit of {limit} s",
            "the scheduler ignores the signal option: see `clusterkit logs`, and ask the administrators",
        )
    if match["left"] is None or (match["side"] == "before" and int(match["left"]) > 0):
        left = f", {match['left']} s before the time limit" if match["left"] else ""
        return passed(f"{match['name']} arrived{left}")
    return failed(f"{match['name']} came only at the time limit", "the scheduler ignores the signal option")


def _checkpoint(evidence: RehearsalEvidence, attempt: int) -> Verdict:
    saved = [line for line in evidence.metrics if line["kind"] == "checkpoint" and line["attempt"] == attempt]
    if not saved:
        return failed(
            "no checkpoint was written after the signal",
            "give it more time: `rehearse --time 10m` where programs are slow to start, "
            "a larger `signal_before` of the profile where checkpoints are slow to write",
        )
    last = saved[-1]
    return passed(f"checkpoint of step {last['step']:,} written in {last['seconds']:.1f} s")


def _left_behind(evidence: RehearsalEvidence, way: Way) -> Verdict:
    return failed(
        f"no second attempt by {way}: {_why(evidence)}",
        "set the cluster's `continue_by` to another way: requeue, array or chain",
    )


def _gone_on(ended: Mapping[str, Any] | None, start: Mapping[str, Any] | None, way: Way) -> str:
    if ended is None or start is None:
        return f"continued by {way}"
    return f"continued by {way}, {max(0, int(start['started']) - int(ended['ended']))} s later"


def _resumed(evidence: RehearsalEvidence, attempt: int, start: Mapping[str, Any] | None) -> Verdict:
    checkpoint = str((start or {}).get("checkpoint") or "")
    messages = [
        str(line.get("message"))
        for line in evidence.metrics
        if line["kind"] == "event" and line["attempt"] == attempt
    ]
    message = next((text for text in messages if text.startswith("resumed from ")), None)
    if message is not None and checkpoint and checkpoint in message:
        return passed(f"second attempt {message}")
    return failed(
        f"second attempt did not resume from {checkpoint or 'a checkpoint'}: {message or 'silent'}", ""
    )


def _wandb(evidence: RehearsalEvidence) -> Verdict:
    strangers = [name for name in evidence.wandb if not name.endswith(f"-{evidence.run_id}")]
    if strangers:
        return failed(f"W&B has a different run: {strangers[0]}", "keep WANDB_RUN_ID in the program")
    return passed(f"one W&B run, in {len(evidence.wandb)} parts")


def _why(evidence: RehearsalEvidence) -> str:
    if evidence.record.stopped is not None:
        return str(evidence.record.stopped.get("why"))
    return evidence.state.why or str(evidence.state.state)
