"""Reads the small files of many run directories at once. Pure: a shell fragment and its parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterkit.backends.submission import REQUEST, Submission
from clusterkit.errors import RunError, last_words
from clusterkit.probes import MARK, Probe
from clusterkit.untrusted import (
    RECORD_BYTES,
    Shape,
    flag,
    number,
    ordinal,
    parse_object,
    shaped,
    table,
    text,
    whole,
)

_FILE = re.compile(r"attempts/([0-9]{1,9})/(start|exit|cancel)\.json")
_SUBMISSION = re.compile(r"submissions/([0-9]{1,9})/(request\.json|asked|status|answer|error)")
_FOLDERS = 2000
"""Maximum number of attempts, or of submissions, of a run."""
_ALL_BYTES = 4 << 20
"""Maximum total size of a run's small files, in bytes."""

# Shell builtins read the files, so that a thousand runs do not cost a process each. One `find` for all runs
# first lists oversized files, and one `stat` gets the runs' last signs of life, by the file system's clock.
# Only regular files are opened. A name or a line that could be mistaken for one of our marks is not printed.
# A deleted run directory is reported as missing.
_COLLECT = rf"""
ck_rs='{MARK[0]}' ck_nl='
'
ck_paths() {{
  printf '%s\000' "$1"/heartbeat.json "$1"/stopped.json "$1"/attempts/*/*.json "$1"/submissions/*/*
}}
ck_signs() {{
  printf '%s\000' "$1"/heartbeat.json "$1"/attempts/[0-9]/start.json "$1"/attempts/[0-9][0-9]/start.json \
    "$1"/attempts/[0-9][0-9][0-9]/start.json "$1"/attempts/[0-9][0-9][0-9][0-9]/start.json
}}
ck_show() {{
  [ "$ck_left" -gt 0 ] || return 0
  if [ ! -f "$1" ]; then
    [ ! -e "$1" ] || echo "{MARK} refused $1"
    return 0
  fi
  case $ck_large in
    *"$ck_nl$ck_dir$ck_nl"* | *"$ck_nl$ck_dir/$1$ck_nl"*) echo "{MARK} refused $1"; return 0 ;;
  esac
  echo "{MARK} file $1"
  while IFS= read -r ck_line || [ -n "$ck_line" ]; do
    ck_left=$((ck_left - ${{#ck_line}} - 1))
    [ "$ck_left" -gt 0 ] || {{ echo; echo "{MARK} refused $1"; return 0; }}
    case $ck_line in *"$ck_rs"*) ck_line= ;; esac
    printf '%s\n' "$ck_line"
  done <"$1"
}}
ck_folders() {{
  ck_files=$1
  shift
  [ $# -le {_FOLDERS} ] || {{ echo "{MARK} refused ${{1%%/*}}"; return 0; }}
  for ck_folder in "$@"; do
    ck_number=${{ck_folder#*/}}
    case ${{ck_number%/}} in *[!0-9]*) continue ;; esac
    for ck_name in $ck_files; do ck_show "$ck_folder$ck_name"; done
  done
}}
ck_run() {{
  ck_dir=$1 ck_left={_ALL_BYTES}
  printf '%s\n' "{MARK} run $ck_dir"
  cd "$ck_dir" 2>/dev/null || {{ echo "{MARK} missing"; return 0; }}
  ck_show heartbeat.json
  ck_show stopped.json
  ck_folders 'start.json exit.json cancel.json' attempts/*/
  ck_folders 'request.json asked status answer error' submissions/*/
}}
ck_runs_each() {{
  :
  @each@
}}
ck_large=$ck_nl$(ck_runs_each ck_paths |
  xargs -0 sh -c 'exec find -L "$@" -prune -size +{RECORD_BYTES // 512} -print' sh 2>/dev/null |
  awk '{{ run = $0; sub("/(attempts|submissions)/[^/]*/[^/]*$|/[^/]*$", "", run); if (++seen[run] <= 20) print
    else if (seen[run] == 21) print run }}' 2>/dev/null)$ck_nl
echo "{MARK} now $(date +%s)"
ck_runs_each ck_signs | xargs -0 sh -c \
  'stat -c "%Y %n" . >/dev/null 2>&1 && exec stat -c "%Y %n" "$@"; exec stat -f "%m %N" "$@"' sh 2>/dev/null
ck_runs_each ck_run
echo "{MARK} end"
"""

_SHAPES: Mapping[str, Shape] = {
    "heartbeat.json": {
        **dict.fromkeys(("time", "step", "total_steps", "steps_per_second", "success"), number),
        **dict.fromkeys(("phase", "checkpoint"), text),
        "gpu": table,
    },
    "stopped.json": {"time": number, "why": text},
    "start.json": {
        **dict.fromkeys(("job_id", "node", "checkpoint", "retry"), text),
        **dict.fromkeys(("started", "step"), number),
        "submission": whole,
    },
    "exit.json": {
        **dict.fromkeys(("signal", "why", "detail"), text),
        "code": whole,
        "ended": number,
        "told": flag,
    },
    "cancel.json": dict.fromkeys(("job_id", "detail"), text),
    "request.json": REQUEST,
}
"""The structure of a run's small files (docs/run-directory.md)."""


@dataclass(frozen=True)
class Attempt:
    """The records of one attempt; None for a file that is absent or not JSON."""

    number: int
    start: Mapping[str, Any] | None = None
    exit: Mapping[str, Any] | None = None
    cancel: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RunRecord:
    """The small files of one run directory (docs/run-directory.md)."""

    exists: bool = True
    """Whether the run directory exists."""
    attempts: tuple[Attempt, ...] = ()
    """Attempts in order of their numbers."""
    heartbeat: Mapping[str, Any] | None = None
    submissions: tuple[Submission, ...] = ()
    """Submissions in order of their numbers."""
    stopped: Mapping[str, Any] | None = None
    """Why the run does not continue past its time limit as requested."""
    unreadable: tuple[str, ...] = ()
    """Names of malformed files, which count as absent or partly absent."""
    now: float | None = None
    """Time of reading, Unix seconds of the cluster's clock; times in the files may be by a node's clock."""
    alive: float | None = None
    """Last sign of life of an unfinished attempt, Unix seconds of the file system's clock."""

    @property
    def started(self) -> Attempt | None:
        """The newest attempt that has started."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.start is not None), None)

    @property
    def alternatives(self) -> tuple[Submission, ...]:
        """Submissions of which the first to start takes the run; empty without such or after a later one."""
        several = self.submissions and self.submissions[-1].number < self.submissions[-1].alternatives
        return self.submissions if several else ()

    @property
    def submission(self) -> Submission | None:
        """The newest submission; of alternatives the one that started, or else the first."""
        return self._newest(self.submissions)

    @property
    def request(self) -> Submission:
        """The newest submission that was not refused, or the newest if all were."""
        taken = [each for each in self.submissions if each.refusal is None]
        return self._newest(taken or self.submissions) or Submission(0)

    def _newest(self, submissions: Sequence[Submission]) -> Submission | None:
        if not self.alternatives:
            return submissions[-1] if submissions else None
        begun = (self.started.start if self.started else None) or {}
        mine = (each for each in submissions if each.number == begun.get("submission"))
        return next(mine, submissions[0] if submissions else None)

    @property
    def cancelled(self) -> bool:
        """Whether a cancel was requested for the newest attempt or before the first.

        Not one of a job that has ended and was resumed since.
        """
        newest = self.started
        if newest is None or newest.start is None:
            return any(attempt.cancel is not None for attempt in self.attempts)
        job_id, last = newest.start.get("job_id"), self.submission
        resumed = (
            last is not None and last.kind == "resume" and last.number > (newest.start.get("submission") or 0)
        )
        for attempt in self.attempts:
            if attempt.cancel is None:
                continue
            of_newest = (attempt.cancel.get("job_id") or None) == job_id
            if of_newest and not resumed:
                return True
            if not of_newest and attempt.number >= newest.number:
                return True
        return False

    @property
    def packed(self) -> bool:
        """Whether the run shares its job with other runs."""
        return self.request.pack > 1

    @property
    def cancel_detail(self) -> str | None:
        """Why the run was cancelled, if not by a user."""
        details = (str((attempt.cancel or {}).get("detail") or "") for attempt in reversed(self.attempts))
        return next(filter(None, details), None)


def records(run_dirs: Sequence[str]) -> Probe[Records]:
    """Returns a probe that reads the small files of runs.

    Parsing its answer raises RunError if the answer is missing or truncated.
    """
    each = "\n".join(f'"$1" {shlex.quote(path)}' for path in run_dirs)
    return Probe("records", _COLLECT.replace("@each@", each), parse_records)


class Records(dict[str, RunRecord]):
    """Records by run directory."""

    def __missing__(self, run_dir: str) -> RunRecord:
        raise RunError(f"nothing was read of the run directory {run_dir}", hint="try again")


def parse_records(stdout: str) -> Records:
    """Parses the probe's output into records by run directory.

    Looking up a run directory that is not among them also raises RunError.

    Raises:
        RunError: the output is missing or truncated.
    """
    _, begun, rest = stdout.partition(f"{MARK} now ")
    clock, _, body = rest.partition("\n")
    body, ended, _ = body.rpartition(f"{MARK} end")
    if not begun or not ended:
        raise RunError(f"the run directories could not be read: {last_words(stdout)}", hint="try again")
    now = ordinal(clock)
    records = Records()
    times, *runs = body.split(f"{MARK} run ")
    written = _times(times)
    for said in runs:
        head, *chunks = said.split(f"{MARK} ")
        files = _Files(head.removesuffix("\n"), written)
        for chunk in chunks:
            files.add(chunk)
        records[head.removesuffix("\n")] = files.record(now)
    return records


def read_record(name: str, content: str | bytes) -> tuple[dict[str, Any] | None, str | None]:
    """Parses a small file of a run.

    Args:
        name: the file's name, without its folder.
        content: the file's content.

    Returns:
        The file's object, in which every known value has the right type, or None; and a description of what
        is wrong with the file, or None.
    """
    document = parse_object(content)
    if document is None:
        return None, name
    found, wrong = shaped(document, _SHAPES[name])
    return found, f"{name} ({', '.join(wrong)})" if wrong else None


@dataclass
class _Files:
    """Collects the files of one run as they are read."""

    run_dir: str
    written: Mapping[str, float]
    """Modification times of all runs' files, by path."""
    exists: bool = True
    unreadable: dict[str, None] = field(default_factory=dict)
    top: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    attempts: dict[int, dict[str, Mapping[str, Any] | None]] = field(default_factory=dict)
    submissions: dict[int, dict[str, str]] = field(default_factory=dict)
    requests: dict[int, Mapping[str, Any] | None] = field(default_factory=dict)

    def add(self, chunk: str) -> None:
        head, _, content = chunk.partition("\n")
        kind, _, name = head.partition(" ")
        if kind == "missing":
            self.exists = False
        elif kind == "refused":
            self.unreadable[name] = None
            content = ""
        if kind not in ("file", "refused"):
            return
        if name in ("heartbeat.json", "stopped.json"):
            self.top[name] = self._record(name, content)
        elif match := _SUBMISSION.fullmatch(name):
            self.submissions.setdefault(int(match[1]), {})[match[2]] = content
            if match[2] == "request.json":
                self.requests[int(match[1])] = self._record(name, content)
        elif match := _FILE.fullmatch(name):
            self.attempts.setdefault(int(match[1]), {})[match[2]] = self._record(name, content)

    def _record(self, path: str, content: str) -> Mapping[str, Any] | None:
        folder, slash, name = path.rpartition("/")
        found, wrong = read_record(name, content)
        if wrong is not None and path not in self.unreadable:
            self.unreadable[f"{folder}{slash}{wrong}"] = None
        return found

    def _damage(self, path: str) -> str:
        """Returns what of a file could not be read, in words; "" if all could."""
        return next((words for words in self.unreadable if words.startswith(path)), "")

    def _alive(self, attempts: Sequence[Attempt]) -> float | None:
        """Returns the last sign of life of the newest unfinished attempt; None without heartbeats."""
        beat = self.written.get(f"{self.run_dir}/heartbeat.json")
        going = [each.number for each in attempts if each.start is not None and each.exit is None]
        if beat is None or not going or "heartbeat.json" in self.unreadable:
            return None
        return max(beat, self.written.get(f"{self.run_dir}/attempts/{going[-1]}/start.json", beat))

    def record(self, now: float | None) -> RunRecord:
        attempts = tuple(Attempt(number, **files) for number, files in sorted(self.attempts.items()))
        submissions = tuple(
            Submission.recorded(
                number,
                self.requests.get(number),
                damage=self._damage(f"submissions/{number}/request.json"),
                asked=ordinal(files["asked"].strip()) or 0.0 if "asked" in files else None,
                status=ordinal(files.get("status", "").strip()),
                answer=files.get("answer", ""),
                error=files.get("error", ""),
            )
            for number, files in sorted(self.submissions.items())
        )
        return RunRecord(
            exists=self.exists,
            attempts=attempts,
            heartbeat=self.top.get("heartbeat.json"),
            submissions=submissions,
            stopped=self.top.get("stopped.json"),
            unreadable=tuple(self.unreadable),
            now=now,
            alive=self._alive(attempts),
        )


def _times(said: str) -> dict[str, float]:
    """Parses lines with a time and a path into Unix seconds by path."""
    parts = (line.partition(" ")[::2] for line in said.split("\n"))
    return {path: float(moment) for time, path in parts if (moment := ordinal(time)) is not None}
