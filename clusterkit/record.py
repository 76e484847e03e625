"""Collects what run directories say about runs, many in one go. Pure: a shell fragment and its parser."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterkit.errors import RunError, last_words
from clusterkit.submission import Submission

_MARK = "\x1eclusterkit-record"
_FILE = re.compile(r"attempts/(\d+)/(start|exit|cancel)\.json")
_SUBMISSION = re.compile(r"submissions/(\d+)/(request\.json|asked|status|answer|error)")

# Builtins only: reading a thousand runs starts no process, but one for each that has started and not ended,
# which tells by the clock of the files when it showed life. A run directory that is gone is said so.
_COLLECT = rf"""
ck_show() {{
  [ -f "$1" ] || return 0
  echo "{_MARK} file $1"
  while IFS= read -r ck_line || [ -n "$ck_line" ]; do printf '%s\n' "$ck_line"; done <"$1"
}}
ck_run() {{
  printf '%s\n' "{_MARK} run $1"
  cd "$1" 2>/dev/null || {{ echo "{_MARK} missing"; return 0; }}
  ck_show heartbeat.json
  ck_show stopped.json
  ck_open=
  for ck_attempt in attempts/*/; do
    for ck_name in start exit cancel; do ck_show "$ck_attempt$ck_name.json"; done
    ck_start=${{ck_attempt}}start.json
    [ ! -f "$ck_start" ] || [ -f "${{ck_attempt}}exit.json" ] || ck_open=$ck_start
  done
  [ -z "$ck_open" ] || [ ! -f heartbeat.json ] ||
    echo "{_MARK} written" $(stat -c %Y heartbeat.json "$ck_open" 2>/dev/null ||
      stat -f %m heartbeat.json "$ck_open" 2>/dev/null)
  for ck_submission in submissions/*/; do
    for ck_name in request.json asked status answer error; do ck_show "$ck_submission$ck_name"; done
  done
}}
"""


@dataclass(frozen=True)
class Attempt:
    """The records of one start; None for a file that is absent or not JSON."""

    number: int
    start: Mapping[str, Any] | None = None
    exit: Mapping[str, Any] | None = None
    cancel: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RunRecord:
    """The small files of one run directory (docs/run-directory.md)."""

    exists: bool = True
    """Whether there is a run directory."""
    attempts: tuple[Attempt, ...] = ()
    """By number."""
    heartbeat: Mapping[str, Any] | None = None
    submissions: tuple[Submission, ...] = ()
    """By number; none for runs of clusterkit before 0.2."""
    stopped: Mapping[str, Any] | None = None
    """Why a run that was to go on past its time limit does not."""
    now: float | None = None
    """The cluster's clock when they were read, Unix seconds; times in the files may be of a node's clock."""
    alive: float | None = None
    """When an attempt that has not ended last showed life, by the clock of the file system."""

    @property
    def started(self) -> Attempt | None:
        """The newest attempt that was started."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.start is not None), None)

    @property
    def submission(self) -> Submission | None:
        """The newest one."""
        return self.submissions[-1] if self.submissions else None

    @property
    def request(self) -> Mapping[str, Any]:
        """request.json of the newest submission that was not refused; of the newest where all were."""
        taken = [each for each in self.submissions if each.refusal is None]
        newest = (taken or self.submissions)[-1:]
        return (newest[0].request if newest else None) or {}

    @property
    def cancelled(self) -> bool:
        """Whether a cancel was asked for the newest start, or before there was one."""
        newest = self.started
        return any(
            attempt.cancel is not None
            and (
                newest is None
                or newest.start is None
                or attempt.number >= newest.number
                or (attempt.cancel.get("job_id") or None) == newest.start.get("job_id")
            )
            for attempt in self.attempts
        )

    @property
    def packed(self) -> bool:
        """Whether its job is also that of other runs."""
        return int(self.request.get("pack") or 1) > 1

    @property
    def cancel_detail(self) -> str | None:
        """Why it was cancelled, where it was not a person who asked."""
        details = (str((attempt.cancel or {}).get("detail") or "") for attempt in reversed(self.attempts))
        return next(filter(None, details), None)


def collect_script(run_dirs: Sequence[str]) -> str:
    """A POSIX sh fragment that prints the small files of runs; it never fails.

    Give it to `sh` on standard input: for a thousand runs it is longer than one argument may be. It changes
    the working directory, so it comes last.
    """
    calls = [f"ck_run {shlex.quote(path)}" for path in run_dirs]
    return "\n".join([_COLLECT, f'echo "{_MARK} now $(date +%s)"', *calls, f'echo "{_MARK} end"', ""])


class Records(dict[str, RunRecord]):
    """Records by run directory."""

    def __missing__(self, run_dir: str) -> RunRecord:
        raise RunError(f"nothing was read of the run directory {run_dir}", hint="try again")


def parse_collect(stdout: str) -> Records:
    """Records by run directory, out of the fragment's output with anything before it.

    To ask for a run directory that is not among them is a RunError too.

    Raises:
        RunError: the output is not there or was cut short.
    """
    _, begun, rest = stdout.partition(f"{_MARK} now ")
    clock, _, body = rest.partition("\n")
    body, ended, _ = body.rpartition(f"{_MARK} end")
    if not begun or not ended:
        raise RunError(f"the run directories gave no answer: {last_words(stdout)}", hint="try again")
    now = float(clock) if clock.isdecimal() else None
    records = Records()
    for text in body.split(f"{_MARK} run ")[1:]:
        head, *chunks = text.split(f"{_MARK} ")
        files = _Files()
        for chunk in chunks:
            files.add(chunk)
        records[head.removesuffix("\n")] = files.record(now)
    return records


@dataclass
class _Files:
    """The files of one run as they are read."""

    exists: bool = True
    heartbeat: Mapping[str, Any] | None = None
    stopped: Mapping[str, Any] | None = None
    alive: float | None = None
    attempts: dict[int, dict[str, Mapping[str, Any] | None]] = field(default_factory=dict)
    submissions: dict[int, dict[str, str]] = field(default_factory=dict)

    def add(self, chunk: str) -> None:
        head, _, content = chunk.partition("\n")
        if head == "missing":
            self.exists = False
        elif head.startswith("written "):
            times = [float(word) for word in head.split()[1:] if word.isdecimal() and len(word) < 18]
            self.alive = max(times, default=None)
        elif head == "file heartbeat.json":
            self.heartbeat = _object(content)
        elif head == "file stopped.json":
            self.stopped = _object(content)
        elif match := _SUBMISSION.fullmatch(head.removeprefix("file ")):
            self.submissions.setdefault(int(match[1]), {})[match[2]] = content
        elif match := _FILE.fullmatch(head.removeprefix("file ")):
            self.attempts.setdefault(int(match[1]), {})[match[2]] = _object(content)

    def record(self, now: float | None) -> RunRecord:
        attempts = tuple(Attempt(number, **files) for number, files in sorted(self.attempts.items()))
        submissions = tuple(_submission(number, files) for number, files in sorted(self.submissions.items()))
        return RunRecord(self.exists, attempts, self.heartbeat, submissions, self.stopped, now, self.alive)


def _submission(number: int, files: Mapping[str, str]) -> Submission:
    return Submission(
        number,
        request=_object(files.get("request.json", "")),
        asked=_number(files["asked"]) or 0.0 if "asked" in files else None,
        status=_number(files.get("status", "")),
        answer=files.get("answer", ""),
        error=files.get("error", ""),
    )


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:  # a disk that filled up, or another program's file
        return None
    return value if isinstance(value, dict) else None
