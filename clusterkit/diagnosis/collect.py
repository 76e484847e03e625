"""Collects `why`'s evidence about one run in one round trip, and parses the answer. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from clusterkit.backends.base import Backend, backend_of_kind
from clusterkit.backends.causes import Text
from clusterkit.backends.jobs import SCHEDULER_LOG, Found
from clusterkit.backends.story import SECONDS, Subject, texts
from clusterkit.backends.submission import outcome
from clusterkit.diagnosis.evidence import DiskSpace, Evidence
from clusterkit.errors import RunError, last_words
from clusterkit.probes import Probe
from clusterkit.runs.record import RunRecord, parse_records, records
from clusterkit.runs.state import RunState, fold

_LOG_LINES, _LOG_BYTES = 200, 40_000
_PART_BYTES = 8_000
_SCRIPT_BYTES = 1 << 20
_QUOTE = "\x1f"
"""Replaces an inner quote while others are removed."""

# A program can write into its run directory: job.sh is read as text and never evaluated, and a log may be
# huge, have no line ends, or be no file. Of job.sh the options for the scheduler, the binds and the values
# are told.
_FILES = rf"""
ck_quote='{_QUOTE}'
ck_bytes={_PART_BYTES}
ck_script() {{ [ ! -f job.sh ] || head -c {_SCRIPT_BYTES} job.sh; }}
ck_value() {{
  ck_script | sed -n "s/^$1=//p" | head -n 1 |
    sed "s/'\"'\"'/$ck_quote/g; s/'//g; s/$ck_quote/'/g"
}}
ck_tail() {{
  [ -f "$1" ] || return 0
  ck_part "$1" sh -c 'tail -c "$2" "$1" | tail -n "$3"' sh "$1" "$ck_bytes" "$2"
}}
cd "$ck_run" 2>/dev/null || cd /
ck_scratch=$(ck_value scratch_root) ck_image=$(ck_value image) ck_snapshot=$(ck_value snapshot)
ck_part about printf '%s\n' "user $(id -u) $(id -un)" "home $HOME" "host $(uname -n)" "now $(date +%s)" \
  "scratch ${{ck_scratch:-}}" "image ${{ck_image:-}}" "snapshot ${{ck_snapshot:-}}"
ck_part files ls -lAn . attempts
[ ! -f job.sh ] ||
  ck_part script sh -c 'head -c {_SCRIPT_BYTES} job.sh | grep -E "$1"' sh \
    '^#[A-Z]+ |^  --bind |^mounts\+=|^verify|^(python|runtime|image)='
ck_tail {SCHEDULER_LOG} 60
ck_newest=$(ls attempts 2>/dev/null | grep -x '[0-9]*' | sort -n | tail -n 1)
if [ -n "$ck_newest" ]; then
  ck_bytes={_LOG_BYTES}
  for ck_file in "attempts/$ck_newest/log" "attempts/$ck_newest/stderr"; do
    ck_tail "$ck_file" {_LOG_LINES}
  done
  ck_bytes={_PART_BYTES}
fi
[ -z "${{ck_image:-}}" ] || ck_part image ls -lLn "$ck_image"
[ -z "${{ck_snapshot:-}}" ] || ck_part snapshot ls -ldLn "$ck_snapshot"
for ck_root in run:"$ck_run" scratch:"${{ck_scratch:-}}" home:"$HOME"; do
  ck_place=${{ck_root#*:}}
  case $ck_place in /*) ;; *) continue ;; esac
  while [ -n "$ck_place" ] && [ ! -e "$ck_place" ]; do ck_place=${{ck_place%/*}}; done
  [ -z "$ck_place" ] || ck_part "df ${{ck_root%%:*}} $ck_place" df -Pk "$ck_place"
done
command -v quota >/dev/null 2>&1 && ck_part quota quota -w
command -v lfs >/dev/null 2>&1 && ck_part lfs lfs quota -q -u "$(id -un)" "$ck_run"
"""
_SIZES = re.compile(r"\s([0-9]{1,18})\s+[0-9]+\s+(-?[0-9]{1,18})\s+[0-9]+%\s")


def question(subject: Subject, number: int = 0) -> Probe[str]:
    """The probe for `parse_evidence`: a few hundred kilobytes at most. It changes nothing.

    Args:
        subject: the run.
        number: tells it from other runs' in the same round trip.
    """
    facts = {
        "run": subject.run_id,
        "job": subject.job_id,
        "dir": subject.run_dir,
        "scheduler": subject.scheduler,
        "shell": subject.shell,
        "profile": subject.profile,
        "cluster": subject.cluster,
        "recipe": subject.recipe,
    }
    head = "\n".join(f"{key} {value}" for key, value in facts.items())
    lines = [
        f"ck_limit=${{ck_limit:+timeout {SECONDS}}}",
        f"ck_run={shlex.quote(subject.run_dir)}",
        f"ck_part subject printf '%s\\n' {shlex.quote(head)}",
        f"(\n{_FILES}\n)",
        f"(\n{backend_of_kind(subject.scheduler).story(subject).script}\n:\n)",
        records([subject.run_dir]).script,
    ]
    return Probe(f"why-{number}", "\n".join(lines), str)


def parse_evidence(stdout: str) -> Evidence:
    """Parses the answer, ignoring any text before it.

    Raises:
        RunError: the answer is missing or was cut short.
    """
    stdout = stdout.replace("\r\n", "\n")
    told = {text.source: text for text in texts(stdout)}
    facts = dict(_pairs(told["subject"].lines)) if "subject" in told else {}
    if "scheduler" not in facts:
        raise RunError(f"the cluster did not answer: {last_words(stdout)}", hint="try again")
    subject = Subject(
        facts.get("run", ""),
        facts.get("job", ""),
        facts.get("dir", ""),
        facts["scheduler"],
        facts.get("shell", ""),
        facts.get("profile", ""),
        facts.get("cluster", ""),
        facts.get("recipe", ""),
    )
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
        state = fold(record, story.job, limit=backend.asked(record.request.options).seconds)
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
        numbers = _SIZES.findall("\n".join(text.lines[1:]) + " ")
        if kind == "df" and numbers:
            total, free = numbers[-1]
            yield DiskSpace(role, path, int(total) * 1024, max(0, int(free)) * 1024)
