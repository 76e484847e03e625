"""The backend of this machine: a job is a detached process, its id `<pid>-<start time>`. Pure.

Its options are those of `clusterkit.backends.local.start`, with `=`.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterkit.backends.base import OF_ONE_SUBMISSION, OF_THE_TIME, Backend, Capabilities
from clusterkit.backends.jobs import UNSUPERVISED, Found, Job, JobState, QueryResult
from clusterkit.backends.local.processes import JOB_ID
from clusterkit.errors import SchedulerError, last_words
from clusterkit.probes import Probe
from clusterkit.probes.framing import Section, sections

if TYPE_CHECKING:
    from clusterkit.hardware import Hardware

# $1 is the pid and $2 the token, so after `set` each $N is field N of /proc/<pid>/stat (man 5 proc).
_QUERY = r"""
ck_alive() {
  if [ -e /proc/self/stat ]; then
    { read -r ck_stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    set -f
    set -- "$1" "$2" ${ck_stat##*) }
    set +f
    [ "$3" != Z ] && [ "$3" != X ] && [ "${22}" = "$2" ]
  else
    [ "$(LC_ALL=C ps -o lstart= -p "$1" 2>/dev/null | tr -d ' :\n')" = "$2" ]
  fi
}
ck_job() {
  ck_alive "$1" "$2" || { ck_gone="$ck_gone$1-$2
"; return 0; }
  ck_args=
  if [ -e /proc/self/stat ]; then
    { read -r ck_args <"/proc/$1/cmdline"; } 2>/dev/null
  else
    ck_args=$(ps -ww -o args= -p "$1" 2>/dev/null)
  fi
  case $ck_args in
    *clusterkit.backends.local.wait*--after=*) echo "$1-$2 Dependency" ;;
    *clusterkit.backends.local.wait*) echo "$1-$2 JobArrayTaskLimit" ;;
    *) echo "$1-$2" ;;
  esac
}
# Of jobs without their leader, those of which anything lives, by the rule of processes.py.
ck_gone=
ck_rest() {
  [ -n "$ck_gone" ] || return 0
  if [ -e /proc/self/stat ]; then
    printf %s "$ck_gone" | sed 's/^/CLUSTERKIT_JOB_ID=/' | grep -hosxzFf - /proc/[0-9]*/environ |
      tr '\0' '\n' | sort -u | sed 's/^[^=]*=//; s/$/ Unsupervised/'
    return
  fi
  ck_groups=" $(ps -A -o pgid= | tr -s '\n' ' ') "
  printf %s "$ck_gone" | while read -r ck_id; do
    case $ck_groups in
      *" ${ck_id%-*} "*) kill -0 "${ck_id%-*}" 2>/dev/null || echo "$ck_id Unsupervised" ;;
    esac
  done
}
"""


_REASONS = {
    "Dependency": "it waits for the job it depends on",
    "JobArrayTaskLimit": "the array's own limit of tasks at a time is reached",
    UNSUPERVISED: "its supervisor was killed: it ends in seconds, or with `clusterkit cancel`",
}


class LocalBackend(Backend):
    """Jobs start at once unless they depend on others. The options are those of the base class."""

    title = "this machine"
    can = Capabilities(queue=False, arrays=False, steps=False)

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Returns the argv that starts the job, or each task of an array as a job."""
        del job_name
        own = [option for option in options if option.partition("=")[0] in (*OF_ONE_SUBMISSION, *OF_THE_TIME)]
        return [sys.executable, "-P", "-m", "clusterkit.backends.local.start", *own, script, run_dir]

    def accepted(self, answer: str, task: int | None = None) -> str | None:
        """Returns the id on the last line with one; for a task the id after its number: `4 4711-138212`."""
        if task is not None:
            begun = re.search(rf"^{task} ({JOB_ID.pattern})$", answer, re.MULTILINE)
            return begun[1] if begun else None
        ids = [line.strip() for line in answer.split("\n") if JOB_ID.fullmatch(line.strip())]
        return ids[-1] if ids else None

    def find(self, job_name: str, script: str, since: str) -> Probe[Found]:
        """Searches living jobs; an ended job has made its attempt folder."""
        del since
        argv = [sys.executable, "-P", "-m", "clusterkit.backends.local.find", script]
        return Probe(f"find {job_name}", f"ck_own found {shlex.join(argv)}", _parse_find)

    def process_group(self, job_id: str) -> int | None:
        """Returns the process group of the job's supervisor."""
        match = JOB_ID.fullmatch(job_id)
        return int(match["pid"]) if match else None

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Returns the argv that ends jobs with all their processes and returns when they are gone."""
        return [sys.executable, "-P", "-m", "clusterkit.backends.local.stop", *job_ids]

    def query(self, job_ids: Sequence[str]) -> Probe[QueryResult]:
        """Returns a probe for living jobs; on Linux it starts no process per job."""
        matches = [match for match in map(JOB_ID.fullmatch, job_ids) if match]
        checks = [f"ck_job {match['pid']} {match['token']}" for match in matches]
        lines = [_QUERY, "ck_begin jobs", *checks, "ck_rest", "ck_end 0"]
        return Probe("query", "\n".join(lines), _parse_query)

    def machine(self, scratch: str) -> Probe[Hardware]:
        """Returns a probe for processors, memory, GPUs and disk."""
        from clusterkit.backends.local import machine  # `status` needs none of it

        return machine.probe(scratch)


def _parse_find(stdout: str) -> Found:
    """Returns ids of a script's living jobs, and whether `ps` worked."""
    section = next((part for part in sections(stdout) if part.name == "found"), Section())
    ids = dict.fromkeys(word for word in section.text.split() if JOB_ID.fullmatch(word))
    return Found(tuple(ids), section.status == 0)


def _parse_query(stdout: str) -> QueryResult:
    """Returns the living jobs, RUNNING or waiting; exit records decide about all others."""
    jobs = next((section for section in sections(stdout) if section.name == "jobs"), None)
    if jobs is None:
        raise SchedulerError(f"cannot list the jobs on this machine: {last_words(stdout)}")
    return QueryResult({words[0]: _job(*words[:2]) for words in map(str.split, jobs.lines)})


def _job(identifier: str, reason: str | None = None) -> Job:
    state = JobState.PENDING if reason and reason != UNSUPERVISED else JobState.RUNNING
    return Job(
        identifier,
        state,
        state.value,
        reason=reason,
        explained=_REASONS.get(reason or ""),
        depends=reason == "Dependency",
    )


BACKEND = LocalBackend()
