"""The backend of Slurm 20.11 and later: sbatch, scancel, squeue, sacct and scontrol. Pure.

Slurm is queried without --json, whose fields change between versions; parse.py reads the answers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from clusterkit.backends.base import Capabilities
from clusterkit.backends.jobs import Continuation, Found, Limits, Parent, Predictions, QueryResult, Way
from clusterkit.backends.slurm.options import SlurmOptions
from clusterkit.backends.slurm.parse import JOB_ID, parse_find, parse_query
from clusterkit.backends.slurm.request import read
from clusterkit.backends.slurm.rows import SACCT_FIELDS, SQUEUE_FIELDS
from clusterkit.backends.slurm.tables import CLEAN_ENVIRONMENT, ENVIRONMENT
from clusterkit.errors import ConfigError, SchedulerError
from clusterkit.probes import Probe
from clusterkit.units import format_duration

if TYPE_CHECKING:
    from clusterkit.backends.checks import SchedulerChecks
    from clusterkit.backends.story import JobStory, Subject
    from clusterkit.backends.survey import Surveyor
    from clusterkit.config.models import Cluster


# ck_others ID...: prints what squeue has said, ck_queue, and sets ck_ids to those that neither wait nor run.
_OTHERS = r"""
ck_others() {
  printf '%s\n' "$ck_queue"
  ck_ids=
  for ck_id; do
    ck_row="
$ck_id$ck_fs${ck_id%%_*}$ck_fs"
    case $ck_queue in
      *"${ck_row}RUNNING$ck_fs"* | *"${ck_row}PENDING$ck_fs"*) ;;
      *) ck_ids=${ck_ids:+$ck_ids,}$ck_id ;;
    esac
  done
}
"""

# $1 job id, $2 cluster or nothing, then srun's options and the command. A task of an array has a job id of
# its own, the only one srun knows. Where srun itself fails, and not the command, it ends with
# SLURM_EXIT_ERROR (else 1), or with the low byte of an error number: 1001 for a node that does not answer.
_STEP = r"""
SLURM_EXIT_ERROR=213; export SLURM_EXIT_ERROR
id=$1 clusters=${2:+-M $2}
shift 2
case $id in *_*)
  id=$(squeue $clusters -h -j "$id" -o %A </dev/null) || exit
  test -n "$id" || { echo "the job is not in the queue any more" >&2; exit 1; } ;;
esac
"""

# srun outlives a connection that dies, and its step with it. So the end of our own standard input, which the
# one who started us holds open, ends it.
_LEASH = r"""
exec 3<&0
srun $clusters --jobid="$id" "$@" </dev/null 3<&- & step=$!
{ cat <&3; kill -TERM "$step"; sleep 3; kill -KILL "$step"; } >/dev/null 2>&1 & leash=$!
exec 3<&-
wait "$step"
status=$?
kill "$leash" 2>/dev/null
exit "$status"
"""
_DIRECT = r"""
exec srun $clusters --jobid="$id" "$@"
"""


class SlurmBackend(SlurmOptions):
    """sbatch, scancel, squeue, sacct and scontrol."""

    title = "Slurm"
    tool = "sbatch"
    can = Capabilities(queue=True, arrays=True, steps=True, retries=True, mails=True)
    allocated = ("SLURM_JOB_CPUS_PER_NODE", "SLURM_MEM_PER_NODE")
    variables = (
        "SLURM_ARRAY_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_CLUSTER_NAME",
        "SLURM_CPUS_ON_NODE",
        "SLURM_CPUS_PER_TASK",
        "SLURM_GPUS",
        "SLURM_GPUS_ON_NODE",
        "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_JOB_END_TIME",
        "SLURM_JOB_GPUS",
        "SLURM_JOB_ID",
        "SLURM_JOB_NAME",
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_PARTITION",
        "SLURM_MEM_PER_CPU",
        "SLURM_MEM_PER_NODE",
        "SLURM_RESTART_COUNT",
        "SLURMD_NODENAME",
    )

    def limits(self, options: Sequence[str]) -> Probe[Limits]:
        """Asks for JobRequeue, MaxArraySize, PreemptMode and the partition's MaxTime."""
        from clusterkit.backends.slurm import limits

        return limits.probe(read(options))

    def usual_limits(self) -> Limits:
        """Returns Slurm's defaults."""
        from clusterkit.backends.slurm import limits

        return limits.USUAL

    def check_limits(self, cluster: Cluster, limits: Limits, options: Sequence[str]) -> None:
        """Compares `--time` with the partition's MaxTime."""
        wanted = read(options).seconds
        if limits.max_time is not None and wanted is not None and wanted > limits.max_time:
            longest = format_duration(limits.max_time)
            raise ConfigError(
                f"the run requests {format_duration(wanted)}, and {cluster.name}'s partition "
                f"{limits.partition} gives {longest} at most",
                hint=f"use `--time {longest}`; with --until-done the run continues beyond it",
            )

    def continuation(
        self, limits: Limits | None, wanted: Literal["auto"] | Way, options: Sequence[str]
    ) -> Continuation:
        """Chooses requeueing if the site allows it, else a job array, else a chain."""
        from clusterkit.backends.slurm.limits import choose

        return choose(limits, wanted, options)

    def starts(self, requests: Mapping[str, Sequence[str]]) -> Probe[Predictions]:
        """Asks `sbatch --test-only` for each, and for the data needed to interpret the answers."""
        from clusterkit.backends.slurm import starts

        return starts.probe(requests)

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Returns argv of sbatch, in an environment without SBATCH_* and SLURM_*."""
        del run_dir  # the script's #SBATCH lines name its log
        submit = f'{CLEAN_ENVIRONMENT}exec sbatch "$@"'
        given = {option.partition("=")[0] for option in options}
        name = [] if "--job-name" in given else [f"--job-name={job_name}"]
        return ["sh", "-c", submit, "sbatch", "--parsable", *name, *options, script]

    def accepted(self, answer: str, task: int | None = None) -> str | None:
        """Returns the id that `sbatch --parsable` prints: `123`, or `123;cluster` if it names a cluster."""
        lines = [line.strip() for line in answer.split("\n")]
        number = next((line for line in reversed(lines) if JOB_ID.fullmatch(line)), None)
        return number if number is None or task is None else self.task_id(number, task)

    def task_id(self, job_id: str, task: int) -> str:
        """Returns `123_4;cluster` of `123;cluster`."""
        number, semicolon, cluster = job_id.partition(";")
        return f"{number}_{task}{semicolon}{cluster}"

    def array_id(self, job_id: str) -> str:
        """Returns `123;cluster` of `123_4;cluster`."""
        return re.sub(r"^(\d+)_\d+", r"\1", job_id)

    def without_node(self, node: str) -> str:
        """Returns an sbatch option."""
        return f"sbatch = {{ exclude = {node} }}"

    def refusal_hint(self, words: str) -> str | None:
        """Returns the hint for an error of sbatch."""
        from clusterkit.backends.slurm.explain import sbatch_error

        return sbatch_error(words)

    def find(self, job_name: str, script: str, since: str) -> Probe[Found]:
        """Asks squeue, then sacct, which also knows jobs that ended long ago."""
        del script
        name = shlex.quote(job_name)
        lines = [
            ENVIRONMENT,
            f'ck_run queued squeue -h -r -t all -u "$(id -un)" -n {name} -o "%i"',
            f"ck_run booked sacct -n -P -X --name={name} -S {shlex.quote(since)} -o JobID",
        ]
        return Probe(f"find {job_name}", "\n".join(lines), parse_find)

    def inside_argv(
        self, job_id: str, argv: Sequence[str], *, terminal: bool = False, reads: bool = False
    ) -> list[str]:
        """Returns the argv for the login node: a job step with srun, as one process on the job's first node.

        The step ends with its terminal or, without one, with the returned command's standard input.
        """
        ((cluster, (number,)),) = _grouped([job_id])
        run = CLEAN_ENVIRONMENT + _STEP + (_DIRECT if terminal or reads else _LEASH)
        # --overlap: without it the step would wait for the job's own program to end.
        options = ["--overlap", "--nodes=1", "--ntasks=1", "--relative=0", "--cpu-bind=none", "--quiet"]
        stream = "--pty" if terminal else "--input=all" if reads else "--input=none"
        return ["sh", "-c", run, "srun", number, cluster, *options, stream, *argv]

    def checks(self) -> SchedulerChecks:
        """Checks of Slurm's tools and of each profile's request."""
        from clusterkit.backends.slurm.checks import SlurmChecks

        return SlurmChecks()

    def surveyor(self) -> Surveyor:
        """Returns the surveyor, based on sinfo, scontrol and sacctmgr."""
        from clusterkit.backends.slurm.survey import SlurmSurveyor

        return SlurmSurveyor()

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Returns the argv of scancel, which ignores unknown and finished ids.

        Raises:
            SchedulerError: a text is not a job id.
        """
        calls = [
            f"scancel -Q {_clusters(cluster)}{' '.join(ids)} || status=$?"
            for cluster, ids in _grouped(job_ids)
        ]
        return ["sh", "-c", "\n".join(["status=0", *calls, "exit $status"])]

    def dependency(self, parents: Sequence[Parent]) -> tuple[str, ...]:
        """Returns `--dependency`; a job whose dependency can no longer be satisfied is cancelled."""
        kinds: dict[str, list[str]] = {}
        for parent in parents:
            kinds.setdefault(parent.kind, []).append(parent.job_id.partition(";")[0])
        texts = [f"after{kind}:{':'.join(dict.fromkeys(ids))}" for kind, ids in kinds.items()]
        return (f"--dependency={','.join(texts)}", "--kill-on-invalid-dep=yes") if texts else ()

    def query(self, job_ids: Sequence[str]) -> Probe[QueryResult]:
        """Asks squeue and sacct.

        The accounting database is not asked about jobs that squeue shows as pending or running.

        Raises:
            SchedulerError: a text is not a job id.
        """
        squeue = '"' + "${ck_fs}".join(SQUEUE_FIELDS) + '"'
        lines = [ENVIRONMENT, _OTHERS, f'echo "$ck_mark ids {" ".join(job_ids)}"']
        for cluster, ids in _grouped(job_ids):
            at, tag = _clusters(cluster), f" {cluster}" if cluster else ""
            # By user, not by id: one purged id makes `squeue -j` fail for all of them.
            lines += [
                f'ck_queue=$(ck_run "squeue{tag}" squeue {at}-h -r -t all -u "$(id -un)" -o {squeue})',
                f"ck_others {' '.join(ids)}",
                f'[ -z "$ck_ids" ] || ck_run "sacct{tag}" sacct {at}-n -P --delimiter="$ck_fs" '
                f'-j "$ck_ids" -o {",".join(SACCT_FIELDS)}',
            ]
        return Probe("query", "\n".join([*lines, 'echo "$ck_mark end"']), parse_query)

    def story(self, subject: Subject) -> Probe[JobStory]:
        """Asks squeue, sacct, scontrol, sinfo and, where a limit is the reason, sacctmgr."""
        from clusterkit.backends.slurm import why

        return why.probe(subject)


def _grouped(job_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Returns ids by the cluster sbatch named, "" for the default one."""
    groups: dict[str, list[str]] = {}
    for identifier in job_ids:
        if not JOB_ID.fullmatch(identifier):
            raise SchedulerError(f"{identifier!r} is not a Slurm job id")
        number, _, cluster = identifier.partition(";")
        groups.setdefault(cluster, []).append(number)
    return sorted(groups.items())


def _clusters(cluster: str) -> str:
    return f"-M {cluster} " if cluster else ""


BACKEND = SlurmBackend()
