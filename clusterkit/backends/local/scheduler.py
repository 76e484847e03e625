"""The scheduler interface on this machine: a job is a detached process, its id `<pid>-<start time>`. Pure."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clusterkit.backends.base import Job, JobState, Parent, parse_time
from clusterkit.backends.local.processes import JOB_ID
from clusterkit.errors import SchedulerError, last_words

if TYPE_CHECKING:
    from clusterkit.hardware import Hardware

_FIND, _FOUND = "\x1eclusterkit-local find ", "\x1eclusterkit-local found"
_BEGIN, _END = "\x1eclusterkit-local begin", "\x1eclusterkit-local end"

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
  ck_alive "$1" "$2" || return 0
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
"""


class LocalScheduler:
    """Runs jobs on this machine, at once; there is no queue but the one within a group."""

    name = "local"

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Argv that starts the job, or each task of an array as a job.

        Of the options only `--time`, `--signal`, `--requeue` and `--array` mean something here, and `--after`
        and `--after-task`, which are this scheduler's own (`dependency`).
        """
        del job_name
        argv = [sys.executable, "-P", "-m", "clusterkit.backends.local.start"]
        given = dict(option.partition("=")[::2] for option in options)
        if (limit := parse_time(given.get("--time", ""))) is not None:
            argv += ["--time-limit", str(limit)]
            if notice := _notice(given.get("--signal", "")):
                argv += ["--notice", notice]
        if "--requeue" in options:
            argv.append("--requeue")
        argv += [option for option in options if option.startswith(("--array=", "--after=", "--after-task="))]
        return [*argv, script, run_dir]

    def parse_submit(self, stdout: str) -> str:
        """The job id, the last word of the output. Raises SchedulerError when there is none."""
        lines = stdout.split()
        if not lines or not JOB_ID.fullmatch(lines[-1]):
            raise SchedulerError(f"this machine started no job: {last_words(stdout)}")
        return lines[-1]

    def find_script(self, job_name: str, script: str, since: str) -> str:
        """Looks among the living; a job that has ended has made its attempt folder."""
        del since
        argv = shlex.join([sys.executable, "-P", "-m", "clusterkit.backends.local.find", script])
        return f"echo {shlex.quote(_FIND + job_name)}\n{argv}\necho {shlex.quote(_FOUND)} $?\n"

    def parse_find(self, stdout: str, job_name: str) -> tuple[tuple[str, ...], bool]:
        """Ids of the living jobs of that script, and whether `ps` could tell."""
        searches = re.findall(f"{_FIND}{re.escape(job_name)}\n([^\x1e]*){_FOUND} (\\d+)\n", stdout)
        ids = dict.fromkeys(word for body, _ in searches for word in body.split() if JOB_ID.fullmatch(word))
        return tuple(ids), bool(searches) and all(status == "0" for _, status in searches)

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Argv that ends jobs with all their processes and returns when they are gone."""
        return [sys.executable, "-P", "-m", "clusterkit.backends.local.stop", *job_ids]

    def query_script(self, job_ids: Sequence[str]) -> str:
        """A POSIX sh fragment that prints the ids of the jobs that live; no process per job on Linux."""
        known = [match for match in map(JOB_ID.fullmatch, job_ids) if match]
        checks = [f"ck_job {match['pid']} {match['token']}" for match in known]
        return "\n".join([f"echo '{_BEGIN}'", _QUERY, *checks, f"echo '{_END}'", ""])

    def parse_query(self, stdout: str) -> Mapping[str, Job]:
        """The living jobs, RUNNING or waiting for others; for the others the exit record decides."""
        _, begun, rest = stdout.partition(_BEGIN + "\n")
        body, ended, _ = rest.partition(_END + "\n")
        if not begun or not ended:
            raise SchedulerError(f"this machine gave no list of its jobs: {last_words(stdout)}")
        jobs = (line.split() for line in body.splitlines() if line.strip())
        return {words[0]: _job(*words[:2]) for words in jobs}

    def machine_script(self, scratch: str) -> str:
        """Processors, memory, GPUs, disk."""
        from clusterkit.backends.local import machine  # `status` needs none of it

        return machine.script(scratch)

    def parse_machine(self, stdout: str) -> Hardware:
        """What this machine has."""
        from clusterkit.backends.local import machine

        return machine.parse(stdout)

    def parse_trouble(self, stdout: str) -> str | None:
        """Never any: the answer comes from the kernel."""
        del stdout
        return None

    def dependency(self, parents: Sequence[Parent]) -> tuple[str, ...]:
        """Options that only this scheduler knows."""
        return tuple(
            (f"--after={one.kind}" if one.task is None else f"--after-task={one.task}:{one.kind}")
            + f":{one.job_id}:{one.run_dir}"
            for one in parents
        )


def _job(identifier: str, reason: str | None = None) -> Job:
    state = JobState.PENDING if reason else JobState.RUNNING
    return Job(identifier, state, state.value, reason=reason)


def _notice(text: str) -> str | None:
    """`NAME@SECONDS` of an sbatch --signal value `[R][B:]NAME[@SECONDS]`, 60 s by default."""
    match = re.fullmatch(r"(?:R?B?:)?(?:SIG)?([A-Z][A-Z0-9]*)(?:@(\d+))?", text)
    return f"{match[1]}@{match[2] or 60}" if match else None
