"""Reads what `clusterkit.diagnosis.collect` has collected. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from clusterkit.backends import backend_of_kind
from clusterkit.backends.base import Backend, Found, Job, JobState, parse_time
from clusterkit.backends.slurm.rows import job_state
from clusterkit.diagnosis.collect import FIELD, SACCT_FIELDS, SINFO_FIELDS, SQUEUE_FIELDS, Subject
from clusterkit.diagnosis.evidence import Evidence, Node, Space, Text
from clusterkit.errors import RunError, last_words
from clusterkit.probes.framing import TIME_UP, Section, sections
from clusterkit.runs.record import RunRecord, parse_records
from clusterkit.runs.state import RunState, fold
from clusterkit.runs.submission import outcome

_EMPTY = frozenset({"", "None", "N/A", "Unknown", "(null)", "None assigned", "n/a"})
_WORD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=(\S*)")


def parse_evidence(stdout: str) -> Evidence:
    """Evidence out of the answer, with anything before it.

    Raises:
        RunError: the answer is not there or was cut short.
    """
    stdout = stdout.replace("\r\n", "\n")
    told = list(sections(stdout))
    head = next((section for section in told if section.name == "subject"), None)
    if head is None:
        raise RunError(f"the cluster gave no answer: {last_words(stdout)}", hint="try again")
    facts = dict(_pairs(head.text.splitlines()))
    subject = Subject(
        facts.get("run", ""),
        facts.get("job", ""),
        facts.get("dir", ""),
        facts.get("scheduler", "slurm"),
        facts.get("shell", ""),
        facts.get("profile", ""),
        facts.get("cluster", ""),
    )
    texts = {section.name: _text(section) for section in told}
    return _evidence(subject, texts, parse_records(stdout)[subject.run_dir])


def _evidence(subject: Subject, texts: dict[str, Text], record: RunRecord) -> Evidence:
    backend = backend_of_kind(subject.scheduler)
    task = str(((record.started.start if record.started else None) or {}).get("job_id") or "")
    queued = _of_task(_rows(texts, "squeue", SQUEUE_FIELDS), task)
    booked = _booked(_rows(texts, "sacct", SACCT_FIELDS), task)
    job = _words(_of_state(texts.get("job"), queued.get("%T", "")))
    if "slurm.log" in texts:
        texts["slurm.log"] = _of_job(texts["slurm.log"], subject, record)
    known = _job(subject, texts, queued, booked, job)
    limit = backend.asked(record.options).seconds
    state = (
        fold(record, known, limit=limit)
        if subject.job_id or record.started
        else _unsubmitted(backend, record)
    )
    raw = known.raw_state if known else ""
    reason = queued.get("%r") or job.get("Reason") or ""
    if subject.scheduler == "local" and known is not None:
        reason = known.reason or ""
    for source in list(texts):
        if match := re.fullmatch(r"attempts/\d+/(log|stderr)", source):
            texts[match[1]] = texts[source]
    return Evidence(
        subject=subject,
        state=state,
        record=record,
        about=dict(_pairs(texts["about"].lines)) if "about" in texts else {},
        raw_state=raw,
        reason="" if reason in _EMPTY else re.sub(r"[_\s]+", " ", reason),
        job=job,
        booked=booked,
        partition=_words(texts.get("partition")),
        nodes=tuple(
            Node(row["%N"], row["%T"], row["%u"], row["%E"]) for row in _rows(texts, "nodes", SINFO_FIELDS)
        ),
        spaces=tuple(_spaces(texts)),
        texts=texts,
        people={
            source.split()[1]: " ".join(text.lines).strip()
            for source, text in texts.items()
            if source.startswith("person ")
        },
        silent=_silent(texts),
    )


def _job(
    subject: Subject,
    texts: Mapping[str, Text],
    queued: Mapping[str, str],
    booked: Mapping[str, str],
    job: Mapping[str, str],
) -> Job | None:
    """What the scheduler knows, as `status` sees it: the queue, then the books, then its memory."""
    if subject.scheduler == "local":
        return _local_job(subject.job_id, texts.get("jobs", Text("")))
    raw = queued.get("%T") or booked.get("State") or job.get("JobState") or ""
    if not raw:
        silent = _silent(texts)
        return Job(subject.job_id, JobState.UNKNOWN, "", reason=silent) if silent else None
    if not queued and not job and job_state(raw).active and not _silent(texts):
        return Job(
            subject.job_id, JobState.UNKNOWN, raw, reason="gone from the queue; accounting lags behind"
        )
    limit = queued.get("%l") or booked.get("Timelimit") or job.get("TimeLimit") or ""
    return Job(
        job_id=subject.job_id,
        state=job_state(raw),
        raw_state=raw,
        reason=_said(queued.get("%r") or job.get("Reason")),
        partition=_said(queued.get("%P") or job.get("Partition")),
        node=_said(queued.get("%N") or booked.get("NodeList") or job.get("NodeList")),
        start=_said(queued.get("%S") or job.get("StartTime")),
        elapsed_seconds=parse_time(queued.get("%M") or booked.get("Elapsed") or job.get("RunTime") or ""),
        limit_seconds=parse_time(limit),
        exit_code=_said(booked.get("ExitCode") or job.get("ExitCode")),
    )


def _local_job(job_id: str, said: Text) -> Job | None:
    """A job of this machine that lives; one that waits for others has the reason behind its id."""
    words = next((words for line in said.lines if (words := line.split())[:1] == [job_id]), None)
    if words is None:
        return None
    state = JobState.PENDING if words[1:] else JobState.RUNNING
    return Job(job_id, state, state.value, reason=" ".join(words[1:]) or None)


def _unsubmitted(backend: Backend, record: RunRecord) -> RunState:
    """The state of a run without a job: the caller has looked whether the scheduler has one of its name."""
    came = outcome(backend, record.submission, None, Found((), certain=True), now=record.now)
    return RunState(came.state, why=came.why)


def _silent(texts: Mapping[str, Text]) -> str:
    """The controller's trouble when neither the queue nor the job could be had because it gave no answer."""
    trouble = r"(?i)unable to contact|timed? ?out|connection refused|not found|no answer within|No such file"
    for name in ("squeue", "job"):
        text = texts.get(name)
        if text is not None and (found := text.last(trouble)) is not None:
            return found[1].text
    return ""


def _of_task(rows: Sequence[dict[str, str]], task: str) -> dict[str, str]:
    """The row of a job; of an array that of the task that runs, else waits, else started last."""
    active = [row for row in rows if job_state(row["%T"]).active]
    active.sort(key=lambda row: job_state(row["%T"]).waiting)
    started = [row for row in rows if row["%i"] == task]
    return next(iter([*active, *started, *rows]), {})


def _of_state(text: Text | None, raw: str) -> Text | None:
    """Of an array, which scontrol shows task by task, one in this state."""
    paragraphs = "\n".join(text.lines).split("\n\n") if text else []
    matching = [each for each in paragraphs if f"JobState={raw} " in each]
    return Text(text.source, tuple(matching[0].split("\n"))) if text and raw and matching else text


def _of_job(log: Text, subject: Subject, record: RunRecord) -> Text:
    """The scheduler's log without what it says of the run's earlier jobs: all of them write into one file."""
    ids = [str((attempt.start or {}).get("job_id") or "") for attempt in record.attempts]
    backend = backend_of_kind(subject.scheduler)
    ids += [each.job_id(backend) or "" for each in record.submissions]
    now, *earlier = (re.split("[_;]", each)[0] for each in (subject.job_id, *ids))
    others = set(earlier) - {now, ""}
    named = re.compile(r"\b(?:StepId=|JOB |STEP |JobId=)(\d+)")
    kept = (line for line in log.lines if not {*named.findall(line)} & others)
    return Text(log.source, tuple(kept))


def _booked(rows: Sequence[Mapping[str, str]], task: str) -> dict[str, str]:
    """The newest start: its own row, with the largest memory of its steps, and a memory kill."""
    newest: dict[str, str] = {}
    of_task = [row for row in rows if row["JobID"].partition(".")[0] == task]
    for row in of_task or rows:
        if "." not in row["JobID"]:
            newest = dict(row)
        elif newest:
            if _bytes(row["MaxRSS"]) > _bytes(newest["MaxRSS"]):
                newest["MaxRSS"] = row["MaxRSS"]
            if row["State"].startswith("OUT_OF_ME") and newest["State"] == "FAILED":
                newest["State"] = row["State"]
    return newest


def _bytes(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)([KMGT]?)n?c?", text)
    return float(match[1]) * 1024 ** " KMGT".index(match[2] or " ") if match else 0.0


def _text(section: Section) -> Text:
    words = section.text + (f"\n{section.last}" if section.status == TIME_UP else "")
    return Text(section.name, tuple(words.rstrip("\n").split("\n")) if words.strip() else ())


def _rows(texts: Mapping[str, Text], name: str, fields: Sequence[str]) -> list[dict[str, str]]:
    lines = texts[name].lines if name in texts else ()
    parts = (line.split(FIELD) for line in lines)
    return [
        dict(zip(fields, (each.strip() for each in row), strict=True))
        for row in parts
        if len(row) == len(fields)
    ]


def _words(text: Text | None) -> dict[str, str]:
    """`Key=value` words as scontrol prints them; the first of a name counts."""
    words: dict[str, str] = {}
    for key, value in _WORD.findall("\n".join(text.lines) if text else ""):
        words.setdefault(key, "" if value in _EMPTY else value)
    return words


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, _, value = line.partition(" ")
        yield key, value


def _said(value: str | None) -> str | None:
    return None if value is None or value in _EMPTY else value


def _spaces(texts: Mapping[str, Text]) -> Iterator[Space]:
    for source, text in texts.items():
        kind, _, rest = source.partition(" ")
        role, _, path = rest.partition(" ")
        numbers = re.findall(r"\s(\d+)\s+\d+\s+(-?\d+)\s+\d+%\s", "\n".join(text.lines[1:]) + " ")
        if kind == "df" and numbers:
            total, free = numbers[-1]
            yield Space(role, path, int(total) * 1024, max(0, int(free)) * 1024)
