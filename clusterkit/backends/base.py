"""The protocol of a backend: everything clusterkit knows of one scheduler.

A backend is pure: it builds argv and shell fragments and parses what came back, and the layers above run them
over a transport. What differs between schedulers is behind it; code above asks for a capability, never for a
kind. `backend_of` in `clusterkit.backends` finds the one of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from clusterkit.backends.jobs import Found, QueryResult
from clusterkit.config.layers import nearest
from clusterkit.config.options import names_of, parse_options, refuse_secrets
from clusterkit.errors import ConfigError
from clusterkit.probes import Probe
from clusterkit.units import format_duration

if TYPE_CHECKING:
    from clusterkit.backends.checks import SchedulerChecks
    from clusterkit.backends.starts import Predictions
    from clusterkit.backends.story import JobStory, Subject
    from clusterkit.backends.survey import Surveyor
    from clusterkit.config.models import Cluster, GpuTable, Profile
    from clusterkit.hardware import Hardware


Way = Literal["requeue", "array", "chain"]
"""How a run goes on past its time limit (docs/until-done.md): the same job again, the next task of a job
array whose tasks run one after the other, or a job that each job submits as its successor."""

Kind = Literal["ok", "any", "corr"]


@dataclass(frozen=True)
class Parent:
    """A job that must end before another one starts."""

    job_id: str
    run_dir: str
    kind: Kind = "ok"
    """`ok`: it must have completed, else the other one never starts; `any`: however it ends; `corr`: of two
    job arrays, each task after the task of the same number has completed."""
    task: int | None = None
    """Of the jobs that wait, the only one that does; for backends without job arrays."""


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do; the layers above decide by these."""

    queue: bool
    """Jobs wait in a queue, whose scheduler refuses what no node can give; else a job starts at once."""
    arrays: bool
    """Runs that are submitted together are tasks of a job array; else each is a job of its own."""
    steps: bool
    """What is started inside a job is a step of it, and ends with the standard input of its starter."""


@dataclass(frozen=True)
class EarlySignal:
    """A signal that a job gets before its time limit."""

    name: str
    """Without SIG."""
    seconds: int
    """How long before the limit."""


@dataclass(frozen=True)
class Limits:
    """What a site allows; the defaults are those of a backend that has nothing to ask."""

    requeue: bool = True
    """Whether jobs are requeued by default."""
    array_size: int | None = None
    """How many tasks a job array may have; below 2 there are no arrays, None is no limit."""
    preempt_cancels: bool = False
    """Whether a preempted job is cancelled, not requeued."""
    max_time: int | None = None
    """Seconds a job of the partition may have at most; None without a limit."""
    partition: str | None = None
    """The partition asked about; the default one when the job names none."""


@dataclass(frozen=True)
class JobResources:
    """What the options of a job ask for; None where they do not say."""

    cpus: int | None = None
    memory: int | None = None
    """Bytes."""
    seconds: int | None = None
    """The time limit."""


@dataclass(frozen=True)
class Continuation:
    """How a run goes on past its time limit, and why that way."""

    way: Way
    why: str
    options: tuple[str, ...] = ()
    """Options of the job that the way needs."""


OF_ONE_SUBMISSION = ("--requeue", "--array", "--after", "--after-task")
"""Options of `Backend` that are chosen anew for each submission."""
OF_THE_TIME = ("--time-limit", "--notice")


class Backend:
    """Builders and parsers for one scheduler. They do no I/O.

    Options are the scheduler's own, as `--name=value` or `--flag` texts: the layers above keep them, show
    them and hand them back, and never read them.

    What a backend must say raises NotImplementedError here. The rest is what a scheduler says that takes a
    time limit and nothing else, allows everything, and foretells nothing; its options are `--time-limit`,
    `--notice`, `--requeue`, `--array`, `--after` and `--after-task`.
    """

    title: str
    """The scheduler's name for people."""
    tool = "options"
    """Whose options a job has, for people: the name of the submit command."""
    can: Capabilities
    allocated: tuple[str, str] = ("", "")
    """Environment variables of its jobs that tell the processors, and the memory in MiB; "" for none."""
    variables: tuple[str, ...] = ()
    """Environment variables of its jobs that a program in a container may need."""

    def options(
        self, cluster: Cluster, profile: Profile, *, signal: EarlySignal | None, extra: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """The options of one run's job, in a stable order.

        Those of the command line that mean nothing to the scheduler are kept with the run. A cluster without
        a table of GPUs takes any type.

        Args:
            cluster: with what the site needs said, such as a partition.
            profile: the resources.
            signal: sent before the time limit, unless the settings say otherwise.
            extra: options of the command line, which win over all others.

        Raises:
            ConfigError: the cluster cannot give that, or an option is not one that may be set.
        """
        within_max_time(cluster, profile)
        if cluster.gpus:
            gpu_of(cluster, profile)
        refuse_secrets(extra)
        given = {name: "" if value is True else f"={value}" for name, value in parse_options(extra).items()}
        own = [f"--time-limit={profile.time}"]
        own += [f"--notice={signal.name}@{signal.seconds}"] if signal else []
        own = [option for option in own if option[2:].partition("=")[0] not in given]
        return (*own, *(f"--{name}{value}" for name, value in given.items()))

    def names(self, options: Sequence[str]) -> frozenset[str]:
        """The full names, without dashes, of the options in texts that a person typed."""
        return names_of(options)

    def carried_over(self, options: Sequence[str], *, time: bool, packed: bool) -> list[str]:
        """Those options of a submission that its run's next submission keeps.

        Args:
            options: of the submission before.
            time: the time limit stays what it was.
            packed: the job was shared with other runs.
        """
        del packed
        left = (*OF_ONE_SUBMISSION, *(() if time else OF_THE_TIME))
        return [option for option in options if option.partition("=")[0] not in left]

    def brief(self, options: Sequence[str], seconds: int) -> tuple[str, ...]:
        """The options of a short job that asks for what a run does and leaves nothing behind.

        Args:
            options: of the run.
            seconds: its time limit.
        """
        del options
        return (f"--time-limit={seconds}",)

    def packed(self, options: Sequence[str], runs: int, given: Sequence[str]) -> tuple[str, ...]:
        """The options of a job that several runs share: one GPU, processors and memory for each.

        Args:
            options: of one run.
            runs: how many share the job.
            given: options of the command line, which are meant for the whole job.
        """
        del runs, given
        return tuple(options)

    def array(self, first: int, last: int, at_once: int | None) -> str:
        """The option that makes a job array of tasks, or, without arrays, a job for each of so many runs.

        Without arrays the jobs are those of the lines of the group's file `members`.
        """
        return f"--array={first}-{last}{f'%{at_once}' if at_once is not None else ''}"

    def asked(self, options: Sequence[str]) -> JobResources:
        """What options ask for, read back from them."""
        limits = [option.partition("=")[2] for option in options if option.startswith("--time-limit=")]
        return JobResources(seconds=int(limits[-1]) if limits and limits[-1].isdecimal() else None)

    def dependency(self, parents: Sequence[Parent]) -> tuple[str, ...]:
        """Options that let a job start only after others. A job that never can is cancelled."""
        return tuple(
            (f"--after={one.kind}" if one.task is None else f"--after-task={one.task}:{one.kind}")
            + f":{one.job_id}:{one.run_dir}"
            for one in parents
        )

    def directives(self, options: Sequence[str], *, job_name: str, folder: str, log: str) -> list[str]:
        """Lines at the head of a job script that ask the scheduler for the options; none where it reads none.

        Raises:
            ConfigError: an option cannot be written so.
        """
        del options, job_name, folder, log
        return []

    def held_back(self, options: Sequence[str]) -> EarlySignal | None:
        """The signal before the time limit, where it may come early and the job script is to hold it back."""
        del options
        return None

    def limits(self, options: Sequence[str]) -> Probe[Limits]:
        """Asks what the site allows such a job. Its reader raises SchedulerError where nobody says."""
        del options
        return Probe("limits", "", lambda _: Limits())

    def check_limits(self, cluster: Cluster, limits: Limits, options: Sequence[str]) -> None:
        """Raises ConfigError where a job that goes on past its limit asks for more time than there is."""
        del cluster, limits, options

    def continuation(
        self, limits: Limits | None, wanted: Literal["auto"] | Way, options: Sequence[str]
    ) -> Continuation:
        """How a run goes on past its time limit.

        Args:
            limits: what the site allows; None when it was not asked, and then `wanted` is a way.
            wanted: the cluster's `continue_by`.
            options: of the job.

        Raises:
            ConfigError: the wanted way is not to be had.
        """
        del limits, wanted, options
        return Continuation("requeue", f"{self.title} starts it again", ("--requeue",))

    def starts(self, requests: Mapping[str, Sequence[str]]) -> Probe[Predictions]:
        """Asks when jobs with such options would start; each has a word to know the answer by."""
        from clusterkit.backends.starts import Predictions

        del requests
        return Probe("starts", "", lambda _: Predictions())

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Argv that submits the job script and prints the job's id.

        Args:
            script: absolute path of job.sh.
            run_dir: absolute path of the folder it belongs to.
            job_name: name the scheduler shows.
            options: of the job; those in the script may be repeated.
        """
        raise NotImplementedError

    def accepted(self, answer: str, task: int | None = None) -> str | None:
        """The job id in the output of the submit command, whatever stands around it; None without one.

        Args:
            answer: standard output.
            task: the number of a run among those that were submitted together.
        """
        raise NotImplementedError

    def task_id(self, job_id: str, task: int) -> str:
        """The id of one task of a job array; without arrays a job is a task of its own."""
        del task
        return job_id

    def array_id(self, job_id: str) -> str:
        """The id of the job array that a task belongs to; that of any other job as it is."""
        return job_id

    def without_node(self, node: str) -> str:
        """The setting of a profile that leaves a node out; empty where jobs are on one machine."""
        del node
        return ""

    def refusal_hint(self, words: str) -> str | None:
        """The next step after a refused submission; None when the words are not among the usual ones."""
        del words
        return None

    def find(self, job_name: str, script: str, since: str) -> Probe[Found]:
        """Looks for jobs by their name.

        Args:
            job_name: as it was submitted.
            script: absolute path of job.sh, for backends whose jobs have no name.
            since: UTC day, `YYYY-MM-DD`; no such job is older.
        """
        raise NotImplementedError

    def inside_argv(self, job_id: str, argv: Sequence[str], *, terminal: bool = False) -> list[str]:
        """Argv that starts something inside a running job, beside its program.

        Args:
            job_id: of the job.
            argv: the command.
            terminal: give it the terminal; else it reads nothing.

        Raises:
            SchedulerError: the text is no job id.
        """
        del job_id, terminal
        return list(argv)

    def process_group(self, job_id: str) -> int | None:
        """The process group of a job on this machine; None for a job elsewhere."""
        del job_id
        return None

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Argv that cancels jobs; unknown or finished ids are not an error."""
        raise NotImplementedError

    def query(self, job_ids: Sequence[str]) -> Probe[QueryResult]:
        """Asks about jobs, and about other ones of the user that wait or run.

        Its reader raises SchedulerError where the answer is not there, or was cut short.
        """
        raise NotImplementedError

    def checks(self) -> SchedulerChecks | None:
        """What `doctor` checks of the scheduler itself; None where there is nothing to look at."""
        return None

    def surveyor(self) -> Surveyor | None:
        """How `init` describes its sites; None where that is left to the person."""
        return None

    def story(self, subject: Subject) -> Probe[JobStory]:
        """Asks all that the scheduler can tell of one job, for `clusterkit why`; here how it is, and no more.

        It is asked among other things: the reader finds its sections by their names, and raises nothing. What
        the subject says of the run's files is not known yet when the fragment is made.
        """
        from clusterkit.backends.story import plain_story  # which knows this module

        return plain_story(self.query([subject.job_id]), subject.job_id)

    def machine(self, scratch: str) -> Probe[Hardware] | None:
        """Asks the machine on which jobs start at once what it has; None where there is a queue.

        Args:
            scratch: the scratch root as one shell word.
        """
        del scratch
        return None


def within_max_time(cluster: Cluster, profile: Profile) -> None:
    """Raises ConfigError where a profile asks for more time than the cluster's settings allow."""
    if cluster.max_time is not None and profile.time > cluster.max_time:
        raise ConfigError(
            f"profile {profile.name} asks for {format_duration(profile.time)} and cluster {cluster.name} "
            f"allows {format_duration(cluster.max_time)} (clusters.{cluster.name}.max_time)",
            hint="give the run less time, or choose another cluster",
        )


def gpu_of(cluster: Cluster, profile: Profile) -> GpuTable | None:
    """The cluster's table of the GPU that a profile names; None where it names none.

    Raises:
        ConfigError: the cluster has no such GPU; the hint lists those it has.
    """
    if profile.gpu is None:
        return None
    if profile.gpu not in cluster.gpus:
        raise ConfigError(
            f"profile {profile.name} needs GPU {profile.gpu!r}, which cluster {cluster.name} lacks",
            hint=f"{nearest(profile.gpu, cluster.gpus)}; "
            f"or add [clusters.{cluster.name}.gpus.{profile.gpu}] if it is there",
        )
    return cluster.gpus[profile.gpu]
