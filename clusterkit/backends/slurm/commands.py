"""Builds the commands that ask Slurm: sbatch, scancel, squeue and sacct. Pure; parse.py reads the answers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clusterkit.backends.base import Job, Parent
from clusterkit.backends.slurm.parse import JOB_ID, MARK, parse_find, parse_query, parse_submit, parse_trouble
from clusterkit.backends.slurm.rows import FIELD_SEPARATOR, SACCT_FIELDS, SQUEUE_FIELDS
from clusterkit.errors import SchedulerError

if TYPE_CHECKING:
    from clusterkit.hardware import Hardware

QUERY_SECONDS = 20
"""How long squeue and sacct may each take; squeue itself tries for 29 s when the controller is away."""

# Slurm reads options from the environment too, and SBATCH_* beats the #SBATCH lines (man sbatch, INPUT
# ENVIRONMENT VARIABLES): a forgotten export in a login profile would change the request unnoticed. What
# remains of an enclosing job (SLURM_*) goes as well; what names the cluster and the credentials stays.
CLEAN_ENVIRONMENT = r"""
for name in $(env | sed -n -e 's/^\(SBATCH_[A-Za-z0-9_]*\)=.*/\1/p' \
  -e 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p'); do
  case $name in
    SLURM_CONF | SLURM_CONF_SERVER | SLURM_CLUSTERS | SLURM_JWT) ;;
    *) unset "$name" ;;
  esac
done
"""

# ck_run NAME COMMAND...: the command's output between marks, then its exit status and its standard error.
# Slurm prints times in the zone of the process, so each site's would differ: UTC.
RUN = rf"""
ck_mark='{MARK}'
ck_fs='{FIELD_SEPARATOR}'
ck_limit=
command -v timeout >/dev/null 2>&1 && ck_limit='timeout {QUERY_SECONDS}'
ck_run() {{
  ck_name=$1
  shift
  echo "$ck_mark begin $ck_name"
  {{ ck_error=$(TZ=UTC0 SLURM_TIME_FORMAT=standard SLURM_BITSTR_LEN=0 LC_ALL=C \
    $ck_limit "$@" 2>&1 1>&3 3>&- </dev/null); ck_status=$?; }} 3>&1
  printf '\n%s\n%s\n' "$ck_mark status $ck_status" "$ck_error"
}}
"""

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


class SlurmScheduler:
    """Slurm 20.11 and later, asked without --json, whose fields move from version to version."""

    name = "slurm"

    def submit_argv(self, script: str, *, run_dir: str, job_name: str, options: Sequence[str]) -> list[str]:
        """Argv of sbatch, in an environment without SBATCH_* and SLURM_*."""
        del run_dir  # the script's #SBATCH lines name its log
        submit = f'{CLEAN_ENVIRONMENT}exec sbatch "$@"'
        given = {option.partition("=")[0] for option in options}
        name = [] if "--job-name" in given else [f"--job-name={job_name}"]
        return ["sh", "-c", submit, "sbatch", "--parsable", *name, *options, script]

    def parse_submit(self, stdout: str) -> str:
        """`123`, or `123;cluster` where sbatch names one. Raises SchedulerError when there is no id."""
        return parse_submit(stdout)

    def find_script(self, job_name: str, script: str, since: str) -> str:
        """Asks squeue, then sacct, which also knows those that ended long ago."""
        del script
        name = shlex.quote(job_name)
        return "\n".join(
            [
                RUN,
                f'ck_run "queued "{name} squeue -h -r -t all -u "$(id -un)" -n {name} -o "%i"',
                f'ck_run "booked "{name} sacct -n -P -X --name={name} -S {shlex.quote(since)} -o JobID',
                "",
            ]
        )

    def parse_find(self, stdout: str, job_name: str) -> tuple[tuple[str, ...], bool]:
        """Ids of the jobs of that name; see `clusterkit.backends.slurm.parse.parse_find`."""
        return parse_find(stdout, job_name)

    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Argv of scancel; unknown and finished ids are no error for it.

        Raises:
            SchedulerError: a text is no job id.
        """
        calls = [
            f"scancel -Q {_clusters(cluster)}{' '.join(ids)} || status=$?"
            for cluster, ids in _grouped(job_ids)
        ]
        return ["sh", "-c", "\n".join(["status=0", *calls, "exit $status"])]

    def dependency(self, parents: Sequence[Parent]) -> tuple[str, ...]:
        """`--dependency`; a job for which it cannot be satisfied any more is cancelled, not left waiting."""
        kinds: dict[str, list[str]] = {}
        for parent in parents:
            kinds.setdefault(parent.kind, []).append(parent.job_id.partition(";")[0])
        texts = [f"after{kind}:{':'.join(dict.fromkeys(ids))}" for kind, ids in kinds.items()]
        return (f"--dependency={','.join(texts)}", "--kill-on-invalid-dep=yes") if texts else ()

    def query_script(self, job_ids: Sequence[str]) -> str:
        """A POSIX sh fragment that asks squeue and sacct about jobs; it fails and hangs on nothing.

        The accounting database is not troubled about jobs that squeue knows to wait or to run.

        Raises:
            SchedulerError: a text is no job id.
        """
        squeue = '"' + "${ck_fs}".join(SQUEUE_FIELDS) + '"'
        lines = [RUN, _OTHERS, f'echo "$ck_mark ids {" ".join(job_ids)}"']
        for cluster, ids in _grouped(job_ids):
            at, tag = _clusters(cluster), f" {cluster}" if cluster else ""
            # By user, not by id: one purged id makes `squeue -j` fail for all of them.
            lines += [
                f'ck_queue=$(ck_run "squeue{tag}" squeue {at}-h -r -t all -u "$(id -un)" -o {squeue})',
                f"ck_others {' '.join(ids)}",
                f'[ -z "$ck_ids" ] || ck_run "sacct{tag}" sacct {at}-n -P --delimiter="$ck_fs" '
                f'-j "$ck_ids" -o {",".join(SACCT_FIELDS)}',
            ]
        return "\n".join([*lines, 'echo "$ck_mark end"', ""])

    def parse_query(self, stdout: str) -> Mapping[str, Job]:
        """Jobs by id; see `clusterkit.backends.slurm.parse.parse_query`."""
        return parse_query(stdout)

    def machine_script(self, scratch: str) -> str:
        """None: Slurm has a queue, and refuses by itself what no node can give."""
        del scratch
        return ""

    def parse_machine(self, stdout: str) -> Hardware:
        """Nothing is known."""
        from clusterkit.hardware import Hardware

        del stdout
        return Hardware()

    def parse_trouble(self, stdout: str) -> str | None:
        """Why squeue gave no answer; None when it did."""
        return parse_trouble(stdout)


def _grouped(job_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Ids by the cluster sbatch named, "" for the default one."""
    groups: dict[str, list[str]] = {}
    for identifier in job_ids:
        if not JOB_ID.fullmatch(identifier):
            raise SchedulerError(f"{identifier!r} is no Slurm job id")
        number, _, cluster = identifier.partition(";")
        groups.setdefault(cluster, []).append(number)
    return sorted(groups.items())


def _clusters(cluster: str) -> str:
    return f"-M {cluster} " if cluster else ""
