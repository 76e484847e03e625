"""Parses the answer of `clusterkit.diagnosis.collect`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from clusterkit.backends import backend_of_kind
from clusterkit.backends.base import Backend
from clusterkit.backends.causes import Text
from clusterkit.backends.jobs import SCHEDULER_LOG, Found
from clusterkit.backends.story import Subject, texts
from clusterkit.diagnosis.evidence import DiskSpace, Evidence
from clusterkit.errors import RunError, last_words
from clusterkit.runs.record import RunRecord, parse_records
from clusterkit.runs.state import RunState, fold
from clusterkit.runs.submission import outcome


def parse_evidence(stdout: str) -> Evidence:
    """Parses the answer, ignoring any text before it.

    Raises:
        RunError: the answer is missing or was cut short.
    """
    stdout = stdout.replace("\r\n", "\n")
    told = {text.source: text for text in texts(stdout)}
    facts = dict(_pairs(told["subject"].lines)) if "subject" in told else {}
    if "scheduler" not in facts:
        raise RunError(f"the cluster gave no answer: {last_words(stdout)}", hint="try again")
    subject = Subject(
        facts.get("run", ""),
        facts.get("job", ""),
        facts.get("dir", ""),
        facts["scheduler"],
        facts.get("shell", ""),
        facts.get("profile", ""),
        facts.get("cluster", ""),
    )
    return _evidence(subject, told, stdout)


def _evidence(subject: Subject, told: dict[str, Text], stdout: str) -> Evidence:
    record = parse_records(stdout)[subject.run_dir]
    backend = backend_of_kind(subject.scheduler)
    about = dict(_pairs(told["about"].lines)) if "about" in told else {}
    start = (record.started.start if record.started else None) or {}
    ids = [(attempt.start or {}).get("job_id") for attempt in record.attempts]
    ids += [submission.job_id(backend) for submission in record.submissions]
    subject = replace(
        subject,
        started=str(start.get("job_id") or ""),
        node=str(start.get("node") or ""),
        jobs=tuple(str(each) for each in ids if each),
        user=about.get("user", "").partition(" ")[2],
    )
    story = backend.story(subject).read(stdout)
    if subject.job_id or record.started:
        state = fold(record, story.job, limit=backend.asked(record.options).seconds)
    else:
        state = _unsubmitted(backend, record)
    if story.log is not None:
        told[SCHEDULER_LOG] = story.log
    for source in list(told):
        if match := re.fullmatch(r"attempts/\d+/(log|stderr)", source):
            told[match[1]] = told[source]
    return Evidence(subject, state, record, story, about, tuple(_spaces(told)), told)


def _unsubmitted(backend: Backend, record: RunRecord) -> RunState:
    """The state of a run without a job; the caller has already searched for a job of its name."""
    came = outcome(backend, record.submission, None, Found((), certain=True), now=record.now)
    return RunState(came.state, why=came.why)


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, _, value = line.partition(" ")
        yield key, value


def _spaces(told: Mapping[str, Text]) -> Iterator[DiskSpace]:
    for source, text in told.items():
        kind, _, rest = source.partition(" ")
        role, _, path = rest.partition(" ")
        numbers = re.findall(r"\s(\d+)\s+\d+\s+(-?\d+)\s+\d+%\s", "\n".join(text.lines[1:]) + " ")
        if kind == "df" and numbers:
            total, free = numbers[-1]
            yield DiskSpace(role, path, int(total) * 1024, max(0, int(free)) * 1024)
