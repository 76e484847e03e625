"""Asks Slurm about one job and parses its answers. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterkit.backends.causes import Line, Text
from clusterkit.backends.jobs import SCHEDULER_LOG, Job, JobState
from clusterkit.backends.slurm import tables
from clusterkit.backends.slurm.explain import explain
from clusterkit.backends.slurm.rows import FIELD_SEPARATOR, job_state, known, parse_time
from clusterkit.backends.slurm.tables import NodeRow, Partition, SlurmTables
from clusterkit.backends.story import SECONDS, Subject, plain_reason, texts
from clusterkit.probes import TIME_UP
from clusterkit.untrusted import decimal

_WORD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=(\S*)")
_TROUBLE = r"(?i)unable to contact|timed? ?out|connection refused|not found|no answer within|No such file"


SQUEUE_FIELDS = ("%i", "%T", "%r", "%P", "%N", "%S", "%M", "%l")
"""All exist in Slurm 20.11."""
SACCT_FIELDS = ("JobID", "State", "ExitCode", "NodeList", "Elapsed", "Timelimit", "ReqMem", "MaxRSS")
NODE_FIELDS = "NTuE"

_QUEUE = "${ck_fs}".join(SQUEUE_FIELDS)
_BOOKS = ",".join(SACCT_FIELDS)
_PART_BYTES = 8_000
_PARTITION_BYTES = 1 << 18
"""A partition is one line, which begins with its name; its accounts may be thousands."""
_SCRIPT_BYTES = 1 << 20
_JOB_ID = re.compile(r"(?P<number>[0-9]+(?:_[0-9]+)?)(?:;(?P<cluster>[A-Za-z0-9_.-]+))?")

# $ck_job is the job's number, $ck_at chooses its cluster, $ck_script is its job.sh. Without accounting
# `sacct` and `sacctmgr` fail, which is an answer too. A controller that does not answer is asked once. The
# partition and the dependencies are read from what it says of the job.
_ASK = rf"""
SLURM_TIME_FORMAT=standard SLURM_BITSTR_LEN=0; export SLURM_TIME_FORMAT SLURM_BITSTR_LEN
ck_fs='{FIELD_SEPARATOR}' ck_bytes={_PART_BYTES}
ck_queue=$($ck_limit squeue $ck_at -h -t all -j "$ck_job" -o "{_QUEUE}" 2>&1 </dev/null)
[ $? -ne {TIME_UP} ] || ck_queue='no answer within {SECONDS} s'
ck_part squeue printf '%s\n' "$ck_queue"
ck_booked=$($ck_limit sacct $ck_at -n -P -D --delimiter="$ck_fs" -j "$ck_job" -o {_BOOKS} \
  2>&1 </dev/null)
ck_part sacct printf '%s\n' "$ck_booked"
for ck_uid in $(printf '%s\n' "$ck_booked" | sed -n 's/.*CANCELLED by \([0-9]*\).*/\1/p' | sort -u); do
  ck_part "person $ck_uid" id -un "$ck_uid"
done
ck_word() {{ printf '%s\n' "$ck_told" | sed -n "s/.*[[:space:]]$1=\([^[:space:]]*\).*/\1/p" | head -n 1; }}
ck_wanted() {{
  [ ! -f "$ck_script" ] ||
    head -c {_SCRIPT_BYTES} "$ck_script" | sed -n 's/^#SBATCH --partition=//p' | head -n 1
}}
ck_ask_controller() {{
  ck_told=$($ck_limit scontrol $ck_at show job "$ck_job" 2>&1 </dev/null)
  ck_part job printf '%s\n' "$ck_told"
  ck_partition=$(ck_word Partition)
  [ -n "$ck_partition" ] || ck_partition=$(ck_wanted)
  if [ -n "$ck_partition" ]; then
    ck_bytes={_PARTITION_BYTES}
    ck_part partition {tables.partitions("$ck_at")} "${{ck_partition%%,*}}"
    ck_bytes={_PART_BYTES}
    ck_part nodes {tables.nodes('$ck_at -h -N -p "$ck_partition"', NODE_FIELDS, "${ck_fs}")}
  fi
  ck_before=$(ck_word Dependency | grep -o '[0-9][0-9_]*' | sort -u | head -n 8 | tr '\n' ',')
  [ -z "$ck_before" ] ||
    ck_part dependencies sacct $ck_at -n -P -X -j "${{ck_before%,}}" -o JobID,State,JobName
  case $(ck_word Reason) in
    QOS* | Assoc* | Max* | AccountingPolicy* | Invalid*)
      ck_part qos {tables.QOS} where name="$(ck_word QOS)"
      ck_part association {tables.ASSOCIATIONS} account="$(ck_word Account)"
      ;;
  esac
}}
case $ck_queue in
  *'Unable to contact'* | *'no answer within'* | *'not found'* | *'No such file'*) ;;
  *) ck_ask_controller ;;
esac
"""


def script(subject: Subject) -> str:
    """Returns the fragment for everything that `read` parses; empty for a run without a job."""
    match = _JOB_ID.fullmatch(subject.job_id)
    if match is None:
        return ""
    at = f"-M {match['cluster']}" if match["cluster"] else ""
    job = shlex.quote(f"{subject.run_dir}/job.sh")
    return f"ck_job={match['number']} ck_at={at!r} ck_script={job}\n{_ASK}"


@dataclass(frozen=True)
class JobAnswer:
    """Slurm's answers about one job."""

    subject: Subject
    known: Job | None
    """The job as `status` sees it."""
    reason: str
    """The reason from squeue or scontrol, with underscores as blanks."""
    silent: str
    """The controller's error if it answered neither squeue nor scontrol."""
    job: Mapping[str, str]
    """`scontrol show job`."""
    booked: Mapping[str, str]
    """The newest start in sacct; MaxRSS is the largest of its steps."""
    tables: SlurmTables
    """The job's partition, its nodes and, where a limit is the reason, the QOS and the association."""
    texts: Mapping[str, Text]
    """By section."""

    @property
    def partition(self) -> Partition:
        """The job's partition, without fields where it is unknown."""
        return next((row for row in self.tables.partitions.values() if row.fields), Partition({}, ""))

    @property
    def nodes(self) -> tuple[NodeRow, ...]:
        """The nodes of its partitions."""
        return self.tables.nodes

    @property
    def waiting(self) -> bool:
        """Whether it is in the queue."""
        return self.known is not None and self.known.state.waiting

    def waits_for(self, reason: str) -> bool:
        """Returns whether it is in the queue for a reason that starts with a pattern."""
        return self.waiting and re.match(reason, self.reason) is not None

    @property
    def number(self) -> str:
        """Its id for Slurm's commands."""
        return self.subject.job_id.partition(";")[0]

    def columns(self, *names: str) -> Line | None:
        """Returns columns of sacct as evidence."""
        return _line("sacct", self.booked, names)

    def words(self, *names: str) -> Line | None:
        """Returns fields of `scontrol show job` as evidence."""
        return _line("scontrol show job", self.job, names)

    @property
    def queue(self) -> Line | None:
        """Squeue's reason as evidence."""
        raw = self.known.raw_state if self.known else ""
        return Line("squeue", f"{raw}, reason {self.reason}") if self.reason else None

    def tail(self, section: str, lines: int) -> tuple[Line, ...]:
        """Returns the last lines of a section."""
        return self.texts.get(section, Text("")).tail(lines)


def node_line(node: NodeRow) -> Line:
    """Returns a node's state and its reason as evidence."""
    reason = f", {node.reason!r} (set by {node.author})" if node.reason not in ("", "none") else ""
    return Line("sinfo", f"node {node.name} is {node.state}{reason}")


def read(subject: Subject, answer: str) -> JobAnswer:
    """Parses Slurm's part of an answer."""
    parsed = {text.source: text for text in texts(answer)}
    queued = _of_task(_rows(parsed, "squeue", SQUEUE_FIELDS), subject.started)
    booked = _newest(_rows(parsed, "sacct", SACCT_FIELDS), subject.started)
    job = _words(_of_state(parsed.get("job"), queued.get("%T", "")))
    if SCHEDULER_LOG in parsed:
        parsed[SCHEDULER_LOG] = _of_job(parsed[SCHEDULER_LOG], subject)
    reason = plain_reason(known(queued.get("%r") or job.get("Reason")))
    silent = _silent(parsed)
    names = {"partitions": "partition", "nodes": "nodes", "qos": "qos", "associations": "association"}
    parts = {table: "\n".join(parsed[name].lines) for table, name in names.items() if name in parsed}
    return JobAnswer(
        subject=subject,
        known=_job(subject.job_id, queued, booked, job, reason=reason, silent=silent),
        reason=reason,
        silent=silent,
        job=job,
        booked=booked,
        tables=SlurmTables(parts, NODE_FIELDS, FIELD_SEPARATOR),
        texts=parsed,
    )


def _job(
    job_id: str,
    queued: Mapping[str, str],
    booked: Mapping[str, str],
    job: Mapping[str, str],
    *,
    reason: str,
    silent: str,
) -> Job | None:
    """Returns the job as `status` sees it: from squeue, then sacct, then scontrol."""
    raw = queued.get("%T") or booked.get("State") or job.get("JobState") or ""
    if not raw:
        return Job(job_id, JobState.UNKNOWN, "", reason=silent) if silent else None
    if not queued and not job and job_state(raw).active and not silent:
        return Job(job_id, JobState.UNKNOWN, raw, reason="gone from the queue; accounting lags behind")
    limit = queued.get("%l") or booked.get("Timelimit") or job.get("TimeLimit") or ""
    return Job(
        job_id=job_id,
        state=job_state(raw),
        raw_state=raw,
        reason=known(queued.get("%r") or job.get("Reason")),
        explained=explain(reason),
        depends=reason == "Dependency",
        in_vain=reason == "DependencyNeverSatisfied",
        partition=known(queued.get("%P") or job.get("Partition")),
        node=known(queued.get("%N") or booked.get("NodeList") or job.get("NodeList")),
        start=known(queued.get("%S") or job.get("StartTime")),
        elapsed_seconds=parse_time(queued.get("%M") or booked.get("Elapsed") or job.get("RunTime") or ""),
        limit_seconds=parse_time(limit),
        exit_code=known(booked.get("ExitCode") or job.get("ExitCode")),
    )


def _silent(answered: Mapping[str, Text]) -> str:
    """Returns the controller's error if it answered neither squeue nor scontrol."""
    for name in ("squeue", "job"):
        text = answered.get(name)
        if text is not None and (match := text.last(_TROUBLE)) is not None:
            return match[1].text
    return ""


def _of_task(rows: Sequence[dict[str, str]], task: str) -> dict[str, str]:
    """Returns a job's row; for an array that of the task that runs, else waits, else started last."""
    active = [row for row in rows if job_state(row["%T"]).active]
    active.sort(key=lambda row: job_state(row["%T"]).waiting)
    started = [row for row in rows if row["%i"] == task]
    return next(iter([*active, *started, *rows]), {})


def _of_state(text: Text | None, raw: str) -> Text | None:
    """Returns an array's task in this state, from scontrol's list of tasks."""
    paragraphs = "\n".join(text.lines).split("\n\n") if text else []
    matching = [paragraph for paragraph in paragraphs if f"JobState={raw} " in paragraph]
    return Text(text.source, tuple(matching[0].split("\n"))) if text and raw and matching else text


def _of_job(log: Text, subject: Subject) -> Text:
    """Returns the log without Slurm's messages about earlier jobs of the run, which share the file."""
    now, *earlier = (re.split("[_;]", identifier)[0] for identifier in (subject.job_id, *subject.jobs))
    others = set(earlier) - {now, ""}
    named = re.compile(r"\b(?:StepId=|JOB |STEP |JobId=)(\d+)")
    return Text(log.source, tuple(line for line in log.lines if not {*named.findall(line)} & others))


def _newest(rows: Sequence[Mapping[str, str]], task: str) -> dict[str, str]:
    """Returns the newest start's row, with the largest memory of its steps and any memory kill."""
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
    return (decimal(match[1]) or 0.0) * 1024 ** " KMGT".index(match[2] or " ") if match else 0.0


def _rows(answered: Mapping[str, Text], name: str, fields: Sequence[str]) -> list[dict[str, str]]:
    lines = answered[name].lines if name in answered else ()
    parts = (line.split(FIELD_SEPARATOR) for line in lines)
    return [
        dict(zip(fields, (cell.strip() for cell in row), strict=True))
        for row in parts
        if len(row) == len(fields)
    ]


def _words(text: Text | None) -> dict[str, str]:
    """Returns scontrol's `Key=value` fields; the first of each name counts."""
    words: dict[str, str] = {}
    for key, value in _WORD.findall("\n".join(text.lines) if text else ""):
        words.setdefault(key, known(value) or "")
    return words


def _line(source: str, values: Mapping[str, str], names: Sequence[str]) -> Line | None:
    words = [f"{name}={values[name]}" for name in names if values.get(name)]
    return Line(source, " ".join(words)) if words else None
