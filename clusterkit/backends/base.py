"""The protocol of a backend: everything clusterkit knows about one scheduler.

A backend is pure: it builds argv and shell fragments and parses their output; the layers above run them over
a transport. All differences between schedulers are behind it: code above asks for a capability, never for a
kind.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from clusterkit.backends.jobs import (
    Continuation,
    EarlySignal,
    Found,
    JobResources,
    Limits,
    Parent,
    Predictions,
    QueryResult,
    Way,
)
from clusterkit.config.kinds import find_kind
from clusterkit.config.layers import nearest
from clusterkit.config.options import names_of, parse_options, refuse_secrets
from clusterkit.errors import ConfigError
from clusterkit.hardware import VENDORS, machine_name, vendor_of
from clusterkit.probes import Probe
from clusterkit.runtimes import DEFAULT as DEFAULT_RUNTIME
from clusterkit.units import format_duration

if TYPE_CHECKING:
    from clusterkit.backends.checks import SchedulerChecks
    from clusterkit.backends.story import JobStory, Subject
    from clusterkit.backends.survey import Surveyor
    from clusterkit.config.models import Cluster, GpuTable, Profile
    from clusterkit.hardware import Hardware


@dataclass(frozen=True)
class Capabilities:
    """A backend's capabilities, by which the layers above decide."""

    queue: bool
    """Whether jobs wait in a queue that refuses impossible requests; otherwise jobs start at once."""
    arrays: bool
    """Whether runs submitted together become tasks of a job array; otherwise each is a separate job."""
    steps: bool
    """Whether commands inside a job are steps, which end with their starter's standard input."""
    retries: bool = False
    """Whether a job that ran out of memory, or lost its node, can be tried again without the laptop."""
    mails: bool = False
    """Whether the scheduler mails at the end of a job."""


OF_ONE_SUBMISSION = ("--requeue", "--array", "--after", "--after-task")
"""Options that are chosen anew for each submission."""
OF_THE_TIME = ("--time-limit", "--notice")


class Backend:
    """Builders and parsers for one scheduler. They do no I/O.

    Options are the scheduler's own, as `--name=value` or `--flag` texts: the layers above store, show and
    return them, and never interpret them.

    Methods that every backend must define raise NotImplementedError. The others have defaults for a scheduler
    that takes only a time limit, allows everything and predicts nothing; its options are `--time-limit`,
    `--notice`, `--requeue`, `--array`, `--after` and `--after-task`.
    """

    title: str
    """The scheduler's name for people."""
    tool = "options"
    """The name, for people, of the command whose options a job has."""
    can: Capabilities
    allocated: tuple[str, str] = ("", "")
    """Environment variables of a job with its processors, and its memory in MiB; "" for none."""
    variables: tuple[str, ...] = ()
    """Environment variables of a job that a program in a container may need."""

    def options(
        self, cluster: Cluster, profile: Profile, *, signal: EarlySignal | None, extra: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Returns the options of one run's job, in a stable order.

        Options of the command line that the scheduler ignores are kept with the run. A cluster without a
        table of GPUs takes any type.

        Args:
            cluster: with the site's settings, such as a partition.
            profile: the resources.
            signal: sent before the time limit, unless the settings say otherwise.
            extra: options of the command line, which override all others.

        Raises:
            ConfigError: the cluster cannot provide the resources, or an option may not be set.
        """
        within_max_time(cluster, profile)
        if profile.nodes > 1:
            raise ConfigError(
                f"profile {profile.name} asks for {profile.nodes} nodes, and {cluster.name} is one machine",
                hint="use --nodes 1, or choose a cluster with --cluster",
            )
        if cluster.gpus:
            gpu_of(cluster, profile)
        refuse_secrets(extra)
        given = {name: "" if value is True else f"={value}" for name, value in parse_options(extra).items()}
        own = [f"--time-limit={profile.time}"]
        own += [f"--notice={signal.name}@{signal.seconds}"] if signal else []
        own = [option for option in own if option[2:].partition("=")[0] not in given]
        return (*own, *(f"--{name}{value}" for name, value in given.items()))

    def names(self, options: Sequence[str]) -> frozenset[str]:
        """Returns the full names, without dashes, of options as typed."""
        return names_of(options)

    def carried_over(self, options: Sequence[str], *, time: bool, packed: bool) -> list[str]:
        """Returns the options of a submission that the run's next one keeps.

        Args:
            options: the previous submission's.
            time: whether the time limit stays.
            packed: whether the job was shared with other runs.
        """
        del packed
        left = (*OF_ONE_SUBMISSION, *(() if time else OF_THE_TIME))
        return [option for option in options if option.partition("=")[0] not in left]

    def brief(self, options: Sequence[str], seconds: int) -> tuple[str, ...]:
        """Returns the options of a short job with a run's request that leaves nothing behind.

        Args:
            options: the run's.
            seconds: the time limit.
        """
        del options
        return (f"--time-limit={seconds}",)

    def packed(self, options: Sequence[str], runs: int, given: Sequence[str]) -> tuple[str, ...]:
        """Returns the options of a job that several runs share: one GPU, processors and memory for each.

        Args:
            options: one run's.
            runs: number of runs that share the job.
            given: options of the command line, which apply to the whole job.
        """
        del runs, given
        return tuple(options)

    def array(self, first: int, last: int, at_once: int | None) -> str:
        """Returns the option for a job array or, without arrays, for one job per run.

        Without arrays there is one job for each line of the group's file `members`.
        """
        return f"--array={first}-{last}{f'%{at_once}' if at_once is not None else ''}"

    def asked(self, options: Sequence[str]) -> JobResources:
        """Returns the resources in options."""
        limits = [option.partition("=")[2] for option in options if option.startswith("--time-limit=")]
        return JobResources(seconds=int(limits[-1]) if limits and limits[-1].isdecimal() else None)

    def dependency(self, parents: Sequence[Parent]) -> tuple[str, ...]:
        """Returns options that start a job only after others. A job that can never start is cancelled."""
        return tuple(
            (f"--after={parent.kind}" if parent.task is None else f"--after-task={parent.task}:{parent.kind}")
            + f":{parent.job_id}:{parent.run_dir}"
            for parent in parents
        )

    def directives(self, options: Sequence[str], *, job_name: str, folder: str, log: str) -> list[str]:
        """Returns lines at the top of a job script with the options; empty if the scheduler reads none.

        Raises:
            ConfigError: an option cannot be written as a directive.
        """
        del options, job_name, folder, log
        return []

    def signalled(self, options: Sequence[str]) -> bool:
        """Returns whether options send the job a signal before its time limit."""
        return any(option.startswith("--notice=") for option in options)

    def held_back(self, options: Sequence[str]) -> EarlySignal | None:
        """Returns the early signal, if it may come too early and the job script must delay it."""
        del options
        return None

    def limits(self, options: Sequence[str]) -> Probe[Limits]:
        """Returns a probe for the site's limits; its reader raises SchedulerError without an answer."""
        del options
        return Probe("limits", "", lambda _: Limits())

    def usual_limits(self) -> Limits:
        """Returns the limits to assume where the site does not report them."""
        return Limits()

    def check_limits(self, cluster: Cluster, limits: Limits, options: Sequence[str]) -> None:
        """Raises ConfigError if a job that continues past its limit requests more time than allowed."""
        del cluster, limits, options

    def continuation(
        self, limits: Limits | None, wanted: Literal["auto"] | Way, options: Sequence[str]
    ) -> Continuation:
        """Chooses how a run continues past its time limit.

        Args:
            limits: the site's limits; None if unknown, and then `wanted` names a way.
            wanted: the cluster's `continue_by`.
            options: the job's.

        Raises:
            ConfigError: the wanted way is not available.
            SchedulerError: the limits do not say which ways are.
        """
        del limits, wanted, options
        return Continuation("requeue", f"{self.title} starts it again", ("--requeue",))

    def requeued(self, options: Sequence[str]) -> tuple[str, ...]:
        """Returns the options of a job that the scheduler starts again after a node failure.

        Raises:
            ConfigError: the options forbid it.
        """
        return tuple(options)

    def mailed(self, options: Sequence[str], address: str, *, only_failures: bool) -> tuple[str, ...]:
        """Returns the options of a job at whose end the scheduler mails, as far as it can; own ones stay."""
        del address, only_failures
        return tuple(options)

    def mails(self, options: Sequence[str]) -> bool:
        """Returns whether options ask for mail, which the job script stops where another job goes on."""
        del options
        return False

    def starts(self, requests: Mapping[str, Sequence[str]]) -> Probe[Predictions]:
        """Returns a probe for the predicted starts of jobs with such options, keyed by a label."""
        del requests
        return Probe("starts", "", lambda _: Predictions())

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Returns the argv that submits a job script and prints the job id.

        Args:
            script: absolute path of job.sh.
            run_dir: absolute path of its folder.
            job_name: the job's name.
            options: the job's; may repeat those in the script.
        """
        raise NotImplementedError

    def accepted(self, answer: str, task: int | None = None) -> str | None:
        """Returns the job id in the submit command's output, ignoring other text; None without one.

        Args:
            answer: standard output.
            task: the number of a run among those submitted together.
        """
        raise NotImplementedError

    def task_id(self, job_id: str, task: int) -> str:
        """Returns the id of one task of a job array; without arrays the job's own id."""
        del task
        return job_id

    def array_id(self, job_id: str) -> str:
        """Returns the id of a task's job array; the id of any other job unchanged."""
        return job_id

    def without_node(self, node: str) -> str:
        """Returns the profile setting that excludes a node; empty for a single machine."""
        del node
        return ""

    def refusal_hint(self, words: str) -> str | None:
        """Returns the next step after a refused submission; None for an unknown message."""
        del words
        return None

    def find(self, job_name: str, script: str, since: str) -> Probe[Found]:
        """Returns a probe that finds jobs by name.

        Args:
            job_name: as submitted.
            script: absolute path of job.sh, for backends whose jobs have no names.
            since: UTC day, `YYYY-MM-DD`; no such job is older.
        """
        raise NotImplementedError

    def inside_argv(
        self, job_id: str, argv: Sequence[str], *, terminal: bool = False, reads: bool = False
    ) -> list[str]:
        """Returns the argv that runs a command inside a running job, beside its program.

        Its exit status is that of the command, or more than 192 if the scheduler could not start it.

        Args:
            job_id: the job's id.
            argv: the command.
            terminal: attach the terminal.
            reads: without a terminal, the command gets the returned command's standard input, and must end
                with it; otherwise it reads nothing.

        Raises:
            SchedulerError: the text is not a job id.
        """
        del job_id, terminal, reads
        return list(argv)

    def process_group(self, job_id: str) -> int | None:
        """Returns the process group of a job on this machine; None for a job elsewhere."""
        del job_id
        return None

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Returns the argv that cancels jobs; unknown or finished ids are not errors."""
        raise NotImplementedError

    def query(self, job_ids: Sequence[str]) -> Probe[QueryResult]:
        """Returns a probe for these jobs and the user's other pending or running jobs.

        Its reader raises SchedulerError when the answer is missing or was cut short.
        """
        raise NotImplementedError

    def checks(self) -> SchedulerChecks | None:
        """Returns the scheduler's own checks for `doctor`; None if there are none."""
        return None

    def surveyor(self) -> Surveyor | None:
        """Returns the surveyor that `init` uses; None if users write the settings themselves."""
        return None

    def story(self, subject: Subject) -> Probe[JobStory]:
        """Returns a probe for everything about one job, for `clusterkit why`; by default only its state.

        It is combined with other probes: its reader finds its sections by name and raises nothing. The
        subject's facts from the run's files are not known yet when the fragment is built.
        """
        from clusterkit.backends.story import plain_story  # which knows this module

        return plain_story(self.query([subject.job_id]), subject.job_id)

    def machine(self, scratch: str) -> Probe[Hardware] | None:
        """Returns a probe for the hardware of a machine that starts jobs at once; None with a queue.

        Args:
            scratch: the scratch root as one shell word.
        """
        del scratch
        return None


def within_max_time(cluster: Cluster, profile: Profile) -> None:
    """Raises ConfigError if a profile requests more time than the cluster's settings allow."""
    if cluster.max_time is not None and profile.time > cluster.max_time:
        raise ConfigError(
            f"profile {profile.name} requests {format_duration(profile.time)} and cluster {cluster.name} "
            f"allows {format_duration(cluster.max_time)} (clusters.{cluster.name}.max_time)",
            hint="set a shorter time limit, or choose another cluster",
        )


def within_runtime(cluster: Cluster, profile: Profile) -> None:
    """Raises ConfigError if a profile asks for several nodes of a cluster whose runtime works on one."""
    if cluster.runtime.in_step and profile.nodes > 1:
        raise ConfigError(
            f"profile {profile.name} asks for {profile.nodes} nodes, and cluster {cluster.name} starts "
            f"containers with {cluster.runtime.title}, which works on one node only",
            hint=f'use --nodes 1, or container = "{DEFAULT_RUNTIME}" if the cluster has it',
        )


def architectures(cluster: Cluster, options: Sequence[str]) -> frozenset[str]:
    """Returns the architectures of the nodes that a job with these options may get; empty if unknown."""
    if cluster.here:
        return frozenset({machine_name(platform.machine())})
    queues = backend_of(cluster).asked(options).queues or ("*",)
    found = {cluster.arch.get(queue, cluster.arch.get("*", "any")) for queue in queues}
    return frozenset() if "any" in found else frozenset(found)


def gpu_of(cluster: Cluster, profile: Profile) -> GpuTable | None:
    """Returns the cluster's table for a profile's GPU; None if the profile names none.

    Raises:
        ConfigError: the cluster has no such GPU; the hint lists those it has.
    """
    if profile.gpu is None:
        return None
    if profile.gpu not in cluster.gpus:
        raise ConfigError(
            f"profile {profile.name} needs GPU {profile.gpu!r}, which cluster {cluster.name} lacks",
            hint=f"{nearest(profile.gpu, cluster.gpus)}; "
            f"or add [clusters.{cluster.name}.gpus.{profile.gpu}] if the cluster has it",
        )
    return cluster.gpus[profile.gpu]


def vendor(cluster: Cluster, profile: Profile) -> str:
    """Returns who made a profile's GPUs; a cluster without a table for them leaves it to their name."""
    if profile.gpu is None:
        return VENDORS[0]
    table = cluster.gpus.get(profile.gpu)
    return table.vendor if table else vendor_of(profile.gpu)


def backend_of(cluster: Cluster) -> Backend:
    """Returns the backend of a cluster."""
    return backend_of_kind(cluster.kind)


@cache
def backend_of_kind(kind: str) -> Backend:
    """Returns the backend of a kind of cluster.

    Raises:
        ValueError: there is no such kind.
    """
    backend: Backend = import_module(find_kind(kind).module).BACKEND
    return backend
