"""Judges a rehearsal of the continuation past a time limit by its run directory. Pure."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterkit.backends.base import Way
from clusterkit.backends.jobs import JobState
from clusterkit.runs.record import RunRecord
from clusterkit.runs.state import RunState

_SIGNAL = re.compile(
    r"(?P<attempt>\d+) .*caught (?P<name>SIG\w+)(?:, (?P<left>\d+) s (?P<side>before|after) the time limit)?"
)


@dataclass(frozen=True)
class RehearsalCheck:
    """One line of the checklist."""

    passed: bool
    text: str
    """What was observed."""
    hint: str | None = None
    """What to do when it failed."""


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


def read_evidence(
    text: str,
) -> tuple[tuple[str, ...], tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Parses log lines about signals, lines of metrics.jsonl and names of W&B folders, each after its kind.

    A partly written line is ignored.
    """
    parts = [line.partition(" ")[::2] for line in text.split("\n")]
    metrics = []
    for kind, rest in parts:
        if kind == "metric":
            with contextlib.suppress(ValueError):
                metrics.append(json.loads(rest))
    return (
        tuple(rest for kind, rest in parts if kind == "log"),
        tuple(metrics),
        tuple(rest for kind, rest in parts if kind == "wandb"),
    )


def over(record: RunRecord, state: RunState, *, training: bool) -> bool:
    """Whether the rehearsal is complete."""
    if record.stopped is not None or not (state.state.active or state.state is JobState.UNKNOWN):
        return True
    newest = record.started
    return not training and newest is not None and newest.number > 0


def checklist(
    evidence: RehearsalEvidence, limit: int, way: Way, *, training: bool, signalled: bool
) -> tuple[RehearsalCheck, ...]:
    """The checklist in chronological order, without events that can no longer happen.

    Args:
        evidence: the rehearsal's.
        limit: time limit of an attempt, seconds.
        way: how the run continues.
        training: whether it was the trainer, whose checkpoints are known, or a user's own program.
        signalled: whether a signal was to be sent before the limit.
    """
    starts = [attempt for attempt in evidence.record.attempts if attempt.start is not None]
    if not starts:
        return (RehearsalCheck(False, f"it did not start: {evidence.state.why or evidence.state.state}"),)
    first = starts[0]
    checks = [RehearsalCheck(True, f"started on {(first.start or {}).get('node')}")]
    if signalled:
        checks.append(_signal(evidence, first.number, limit))
    if training and all(check.passed for check in checks):
        checks.append(_checkpoint(evidence, first.number))
    if len(starts) < 2:
        checks.append(_left_behind(evidence, way))
        return tuple(checks)
    second = starts[1]
    checks.append(RehearsalCheck(True, _gone_on(first.exit, second.start, way)))
    if training:
        checks.append(_resumed(evidence, second.number, second.start))
        if evidence.wandb:
            checks.append(_wandb(evidence))
        finished = evidence.state.state is JobState.COMPLETED
        checks.append(RehearsalCheck(finished, "finished" if finished else f"not finished: {_why(evidence)}"))
    return tuple(checks)


def _signal(evidence: RehearsalEvidence, attempt: int, limit: int) -> RehearsalCheck:
    matches = [match for match in map(_SIGNAL.fullmatch, evidence.signals) if match]
    match = next((each for each in matches if int(each["attempt"]) == attempt), None)
    if match is None:
        return RehearsalCheck(
            False,
            f"no signal came before the time limit of {limit} s",
            "the scheduler ignores the option for it: see `clusterkit logs`, and ask the administrators",
        )
    if match["left"] is None or (match["side"] == "before" and int(match["left"]) > 0):
        left = f", {match['left']} s before the time limit" if match["left"] else ""
        return RehearsalCheck(True, f"{match['name']} arrived{left}")
    return RehearsalCheck(
        False, f"{match['name']} came only at the time limit", "the scheduler ignores the option for it"
    )


def _checkpoint(evidence: RehearsalEvidence, attempt: int) -> RehearsalCheck:
    saved = [line for line in evidence.metrics if line["kind"] == "checkpoint" and line["attempt"] == attempt]
    if not saved:
        return RehearsalCheck(
            False,
            "no checkpoint was written after the signal",
            "give it more time: `drill --time 10m` where programs are slow to start, "
            "a larger `signal_before` of the profile where checkpoints are slow to write",
        )
    last = saved[-1]
    return RehearsalCheck(True, f"checkpoint of step {last['step']:,} written in {last['seconds']:.1f} s")


def _left_behind(evidence: RehearsalEvidence, way: Way) -> RehearsalCheck:
    return RehearsalCheck(
        False,
        f"no second attempt by {way}: {_why(evidence)}",
        "set `continue_by` of the cluster to another way: requeue, array or chain",
    )


def _gone_on(ended: Mapping[str, Any] | None, start: Mapping[str, Any] | None, way: Way) -> str:
    if ended is None or start is None:
        return f"went on by {way}"
    return f"went on by {way}, {max(0, int(start['started']) - int(ended['ended']))} s later"


def _resumed(evidence: RehearsalEvidence, attempt: int, start: Mapping[str, Any] | None) -> RehearsalCheck:
    checkpoint = str((start or {}).get("checkpoint") or "")
    messages = [
        str(line.get("message"))
        for line in evidence.metrics
        if line["kind"] == "event" and line["attempt"] == attempt
    ]
    said = next((text for text in messages if text.startswith("resumed from ")), None)
    if said is not None and checkpoint and checkpoint in said:
        return RehearsalCheck(True, f"second attempt {said}")
    return RehearsalCheck(
        False, f"second attempt did not resume from {checkpoint or 'a checkpoint'}: {said or 'silent'}"
    )


def _wandb(evidence: RehearsalEvidence) -> RehearsalCheck:
    strangers = [name for name in evidence.wandb if not name.endswith(f"-{evidence.run_id}")]
    if strangers:
        return RehearsalCheck(
            False, f"W&B has another run: {strangers[0]}", "let the program keep WANDB_RUN_ID"
        )
    return RehearsalCheck(True, f"one W&B run, in {len(evidence.wandb)} parts")


def _why(evidence: RehearsalEvidence) -> str:
    if evidence.record.stopped is not None:
        return str(evidence.record.stopped.get("why"))
    return evidence.state.why or str(evidence.state.state)
