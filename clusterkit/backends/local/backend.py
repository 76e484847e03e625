"""The backend of this machine: a job is a detached process, its id `<pid>-<start time>`. Pure.

Its options are those of `clusterkit.backends.local.start`, with `=`.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from clusterkit.backends.base import (
    Capabilities,
    Continuation,
    EarlySignal,
    Found,
    Job,
    JobResources,
    JobState,
    Limits,
    Parent,
    QueryResult,
    Way,
    gpu_of,
    within_max_time,
)
from clusterkit.backends.local.processes import JOB_ID
from clusterkit.backends.starts import Predictions
from clusterkit.config.options import names_of, parse_options, refuse_secrets
from clusterkit.errors import SchedulerError, last_words
from clusterkit.probes import Probe
from clusterkit.probes.framing import Section, sections

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
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


_OF_ONE_SUBMISSION = ("--requeue", "--array", "--after", "--after-task")
_OF_THE_TIME = ("--time-limit", "--notice")


class LocalBackend:
    """See `clusterkit.backends.base.Backend`. Jobs start at once, unless they are to wait for others."""

    title = "this machine"
    tool = "options"
    can = Capabilities(queue=False, arrays=False, steps=False)
    allocated = ("", "")
    variables = ()

    def options(
        self, cluster: Cluster, profile: Profile, *, signal: EarlySignal | None, extra: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """The time limit, the signal before it, and what the command line says.

        The settings' options for a scheduler mean nothing here. Those of the command line do not either, and
        are kept with the run. A cluster without a table of GPUs takes any type: what is there counts.
        """
        within_max_time(cluster, profile)
        if cluster.gpus:
            gpu_of(cluster, profile)
        own = [f"--time-limit={profile.time}"]
        own += [f"--notice={signal.name}@{signal.seconds}"] if signal else []
        given = {name: "" if value is True else f"={value}" for name, value in parse_options(extra).items()}
        refuse_secrets(extra)
        own = [option for option in own if option[2:].partition("=")[0] not in given]
        return (*own, *(f"--{name}{value}" for name, value in given.items()))

    def names(self, options: Sequence[str]) -> frozenset[str]:
        """Long names: the command line's options are the same everywhere."""
        return names_of(options)

    def carried_over(self, options: Sequence[str], *, time: bool, packed: bool) -> list[str]:
        """All but what is chosen anew for each submission."""
        del packed
        left = (*_OF_ONE_SUBMISSION, *(() if time else _OF_THE_TIME))
        return [option for option in options if option.partition("=")[0] not in left]

    def brief(self, options: Sequence[str], seconds: int) -> tuple[str, ...]:
        """The time limit."""
        del options
        return (f"--time-limit={seconds}",)

    def packed(self, options: Sequence[str], runs: int, given: Sequence[str]) -> tuple[str, ...]:
        """The same: runs share no job here."""
        del runs, given
        return tuple(options)

    def array(self, first: int, last: int, at_once: int | None) -> str:
        """A job for each line of the group's `members`, so many of them at a time."""
        return f"--array={first}-{last}{f'%{at_once}' if at_once is not None else ''}"

    def asked(self, options: Sequence[str]) -> JobResources:
        """The time limit."""
        limits = [option.partition("=")[2] for option in options if option.startswith("--time-limit=")]
        return JobResources(seconds=int(limits[-1]) if limits and limits[-1].isdecimal() else None)

    def directives(self, options: Sequence[str], *, job_name: str, folder: str, log: str) -> list[str]:
        """None: the options are arguments of the submit command."""
        del options, job_name, folder, log
        return []

    def held_back(self, options: Sequence[str]) -> EarlySignal | None:
        """None: signals come when they are due."""
        del options
        return None

    def limits(self, options: Sequence[str]) -> Probe[Limits]:
        """There are none, and nothing is asked."""
        del options
        return Probe("limits", "", lambda _: Limits())

    def check_limits(self, cluster: Cluster, limits: Limits, options: Sequence[str]) -> None:
        """There is none."""
        del cluster, limits, options

    def continuation(
        self, limits: Limits | None, wanted: Literal["auto"] | Way, options: Sequence[str]
    ) -> Continuation:
        """A new start by the job's supervisor."""
        del limits, wanted, options
        return Continuation("requeue", "this machine starts it again", ("--requeue",))

    def starts(self, requests: Mapping[str, Sequence[str]]) -> Probe[Predictions]:
        """Jobs start at once, and nothing is asked."""
        del requests
        return Probe("starts", "", lambda _: Predictions())

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Argv that starts the job, or each task of an array as a job."""
        del job_name
        own = [each for each in options if each.partition("=")[0] in (*_OF_ONE_SUBMISSION, *_OF_THE_TIME)]
        return [sys.executable, "-P", "-m", "clusterkit.backends.local.start", *own, script, run_dir]

    def accepted(self, answer: str, task: int | None = None) -> str | None:
        """The id on the last line that is one; of a task, that behind its number: `4 4711-138212`."""
        if task is not None:
            begun = re.search(rf"^{task} ({JOB_ID.pattern})$", answer, re.MULTILINE)
            return begun[1] if begun else None
        ids = [line.strip() for line in answer.split("\n") if JOB_ID.fullmatch(line.strip())]
        return ids[-1] if ids else None

    def task_id(self, job_id: str, task: int) -> str:
        """The same."""
        del task
        return job_id

    def array_id(self, job_id: str) -> str:
        """The same."""
        return job_id

    def refusal_hint(self, words: str) -> str | None:
        """None: the words say what is wrong."""
        del words
        return None

    def find(self, job_name: str, script: str, since: str) -> Probe[Found]:
        """Looks among the living; a job that has ended has made its attempt folder."""
        del since
        argv = [sys.executable, "-P", "-m", "clusterkit.backends.local.find", script]
        return Probe(f"find {job_name}", f"ck_own found {shlex.join(argv)}", _parse_find)

    def inside_argv(self, job_id: str, argv: Sequence[str], *, terminal: bool = False) -> list[str]:
        """The command itself."""
        del job_id, terminal
        return list(argv)

    def process_group(self, job_id: str) -> int | None:
        """That of the job's supervisor."""
        match = JOB_ID.fullmatch(job_id)
        return int(match["pid"]) if match else None

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Argv that ends jobs with all their processes and returns when they are gone."""
        return [sys.executable, "-P", "-m", "clusterkit.backends.local.stop", *job_ids]

    def query(self, job_ids: Sequence[str]) -> Probe[QueryResult]:
        """Tells which jobs live; no process per job on Linux."""
        known = [match for match in map(JOB_ID.fullmatch, job_ids) if match]
        checks = [f"ck_job {match['pid']} {match['token']}" for match in known]
        return Probe("query", "\n".join([_QUERY, "ck_begin jobs", *checks, "ck_end 0"]), _parse_query)

    def machine(self, scratch: str) -> Probe[Hardware]:
        """Processors, memory, GPUs, disk."""
        from clusterkit.backends.local import machine  # `status` needs none of it

        return machine.probe(scratch)

    def dependency(self, parents: Sequence[Parent]) -> tuple[str, ...]:
        """Options that only this scheduler knows."""
        return tuple(
            (f"--after={one.kind}" if one.task is None else f"--after-task={one.task}:{one.kind}")
            + f":{one.job_id}:{one.run_dir}"
            for one in parents
        )


def _parse_find(stdout: str) -> Found:
    """Ids of the living jobs of a script, and whether `ps` could tell."""
    found = next((section for section in sections(stdout) if section.name == "found"), Section())
    ids = dict.fromkeys(word for word in found.text.split() if JOB_ID.fullmatch(word))
    return Found(tuple(ids), found.status == 0)


def _parse_query(stdout: str) -> QueryResult:
    """The living jobs, RUNNING or waiting for others; for the others the exit record decides."""
    told = next((section for section in sections(stdout) if section.name == "jobs"), None)
    if told is None:
        raise SchedulerError(f"this machine gave no list of its jobs: {last_words(stdout)}")
    return QueryResult({words[0]: _job(*words[:2]) for words in map(str.split, told.lines)})


def _job(identifier: str, reason: str | None = None) -> Job:
    state = JobState.PENDING if reason else JobState.RUNNING
    return Job(identifier, state, state.value, reason=reason)


BACKEND = LocalBackend()
