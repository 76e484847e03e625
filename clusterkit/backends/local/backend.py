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
from clusterkit.probes import Probe, Section, sections

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
    *clusterkit.backends.local.wait*--slot*)
      ck_limit=${ck_args##*--slot}
      ck_task=${ck_limit#*:}
      ck_limit=${ck_limit%%:*}
      ck_limit=${ck_limit# }
      if [ "${ck_task%%:*}" -lt "$ck_limit" ]; then echo "$1-$2"; else  # nothing is before the first ones
        echo "$1-$2 JobArrayTaskLimit $ck_limit"
      fi
      ;;
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


_UNLIMITED = 1 << 60
"""Bytes; a cgroup without a limit reports more."""

# $scratch is a folder that may not exist yet. A container's own limit of memory counts where it is lower.
# GPUs of other makers than NVIDIA, and those under WSL, leave the count open.
_MACHINE = r"""
unset OMP_NUM_THREADS OMP_THREAD_LIMIT  # nproc would tell these
echo "cpus $(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null)"
sed -n 's/^MemTotal: *\([0-9]*\) kB$/memory \1/p' /proc/meminfo 2>/dev/null
[ -e /proc/meminfo ] || echo "memory $(($(sysctl -n hw.memsize 2>/dev/null || echo 0) / 1024))"
for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  [ ! -r "$limit" ] || echo "limit $(cat "$limit")"
done
near=$scratch
while [ ! -e "$near" ] && [ -n "$near" ]; do near=${near%/*}; done
df -Pk "${near:-/}" 2>/dev/null | awk 'NR == 2 { print "disk", $2, $4 }'
limited=
command -v timeout >/dev/null 2>&1 && limited='timeout 20'
if $limited nvidia-smi --query-gpu=memory.total,name --format=csv,noheader,nounits >/dev/null 2>&1; then
  $limited nvidia-smi --query-gpu=memory.total,name --format=csv,noheader,nounits | sed 's/^/gpu /'
else
  for device in /dev/nvidia[0-9]* /dev/kfd /dev/dxg; do [ ! -e "$device" ] || echo "device $device"; done
fi
"""

_REASONS = {
    "Dependency": "it waits for the job it depends on",
    "JobArrayTaskLimit": "waits for an earlier run ({} at a time)",
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
        """Returns a probe for processors, memory, GPUs and disk; it changes nothing.

        Args:
            scratch: the scratch root as one shell word.
        """
        return Probe("machine", f"scratch={scratch}\nck_begin machine\n{_MACHINE}ck_end 0", parse_machine)


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
    return QueryResult({words[0]: _job(*words[:3]) for words in map(str.split, jobs.lines)})


def _job(identifier: str, reason: str | None = None, limit: str = "") -> Job:
    state = JobState.PENDING if reason and reason != UNSUPERVISED else JobState.RUNNING
    return Job(
        identifier,
        state,
        state.value,
        reason=reason,
        explained=_REASONS.get(reason or "", "").format(limit) or None,
        depends=reason == "Dependency",
    )


def parse_machine(stdout: str) -> Hardware:
    """Returns the machine's hardware; missing or empty lines leave values unknown."""
    from clusterkit.hardware import Hardware  # `status` needs none of it

    section = next((part for part in sections(stdout) if part.name == "machine"), None)
    body = section.text if section else ""
    lines = [line.split(None, 1) for line in body.splitlines()]
    values: dict[str, list[str]] = {}
    for words in lines:
        if len(words) == 2:
            values.setdefault(words[0], []).append(words[1])
    memory = [size << 10 for size in _numbers(values.get("memory", [])) if size]
    memory += [size for size in _numbers(values.get("limit", [])) if 0 < size < _UNLIMITED]
    total, free = next((_disk(text) for text in values.get("disk", [])), (None, None))
    gpus = [_gpu(text) for text in values.get("gpu", [])]
    return Hardware(
        cpus=next((count for count in _numbers(values.get("cpus", [])) if count), None),
        memory=min(memory, default=None),
        gpus=None if section is None or "device" in values else tuple(size for size, _ in gpus),
        gpu_name=gpus[0][1] if gpus else "",
        disk=total,
        disk_free=free,
    )


def _numbers(texts: list[str]) -> list[int]:
    return [int(text) for text in texts if re.fullmatch(r"\d{1,19}", text)]


def _disk(text: str) -> tuple[int | None, int | None]:
    numbers = _numbers(text.split())
    return (numbers[0] << 10, numbers[1] << 10) if len(numbers) == 2 else (None, None)


def _gpu(text: str) -> tuple[int | None, str]:
    size, _, name = text.partition(",")
    return (int(size) << 20 if re.fullmatch(r"\d{1,9}", size.strip()) else None), name.strip()


BACKEND = LocalBackend()
