"""Builds the command that runs something inside a running job, sharing its resources. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.backends.slurm.parse import JOB_ID
from clusterkit.backends.slurm.shell import CLEAN_ENVIRONMENT
from clusterkit.errors import SchedulerError

# $1 job id, $2 cluster or nothing, then srun's options and the command. A task of an array has a job id of
# its own, the only one srun knows.
_STEP = r"""
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
_TERMINAL = r"""
exec srun $clusters --jobid="$id" "$@"
"""


def step_argv(job_id: str, argv: Sequence[str], *, terminal: bool = False) -> list[str]:
    """The argv for the login node: runs a command with srun, as one process on the job's first node.

    The step ends with its terminal or, without one, with the returned command's standard input.

    Args:
        job_id: as printed by sbatch, or an array task's.
        argv: the command.
        terminal: give it a terminal; otherwise it reads nothing.

    Raises:
        SchedulerError: the text is not a job id.
    """
    if not JOB_ID.fullmatch(job_id):
        raise SchedulerError(f"{job_id!r} is no Slurm job id")
    number, _, cluster = job_id.partition(";")
    run = CLEAN_ENVIRONMENT + _STEP + (_TERMINAL if terminal else _LEASH)
    # --overlap: without it the step would wait for the job's own program to end.
    options = ["--overlap", "--nodes=1", "--ntasks=1", "--relative=0", "--cpu-bind=none", "--quiet"]
    stream = "--pty" if terminal else "--input=none"
    return ["sh", "-c", run, "srun", number, cluster, *options, stream, *argv]
