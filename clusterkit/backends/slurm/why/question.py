"""The shell fragment that asks Slurm about one job. Pure."""

from __future__ import annotations

import re
import shlex

from clusterkit.backends.slurm import tables
from clusterkit.backends.slurm.rows import FIELD_SEPARATOR
from clusterkit.backends.story import SECONDS, Subject
from clusterkit.probes.framing import TIME_UP

SQUEUE_FIELDS = ("%i", "%T", "%r", "%P", "%N", "%S", "%M", "%l")
"""All exist in Slurm 20.11."""
SACCT_FIELDS = ("JobID", "State", "ExitCode", "NodeList", "Elapsed", "Timelimit", "ReqMem", "MaxRSS")
NODE_FIELDS = "NTuE"

_QUEUE = "${ck_fs}".join(SQUEUE_FIELDS)
_BOOKS = ",".join(SACCT_FIELDS)
_PART_BYTES = 8_000
_SCRIPT_BYTES = 1 << 20
_JOB_ID = re.compile(r"(?P<number>[0-9]+(?:_[0-9]+)?)(?:;(?P<cluster>[A-Za-z0-9_.-]+))?")

# $ck_job is the job's number, $ck_at chooses its cluster, $ck_script is its job.sh. Without accounting
# `sacct` and `sacctmgr` fail, which is an answer too. A controller that does not answer is asked once. The
# partition and the dependencies are read from what it says of the job.
_ASK = rf"""
SLURM_TIME_FORMAT=standard SLURM_BITSTR_LEN=0; export SLURM_TIME_FORMAT SLURM_BITSTR_LEN
ck_fs='{FIELD_SEPARATOR}' ck_bytes={_PART_BYTES}
ck_queue=$($ck_limit squeue $ck_at -h -t all -j "$ck_job" -o "{_QUEUE}" 2>&1 </dev/null)
[ $? -ne {TIME_UP} ] || ck_queue='no answer within {SECONDS} s'
ck_part squeue printf '%s\n' "$ck_queue"
ck_booked=$($ck_limit sacct $ck_at -n -P -D --delimiter="$ck_fs" -j "$ck_job" -o {_BOOKS} \
  2>&1 </dev/null)
ck_part sacct printf '%s\n' "$ck_booked"
for ck_uid in $(printf '%s\n' "$ck_booked" | sed -n 's/.*CANCELLED by \([0-9]*\).*/\1/p' | sort -u); do
  ck_part "person $ck_uid" id -un "$ck_uid"
done
ck_word() {{ printf '%s\n' "$ck_told" | sed -n "s/.*[[:space:]]$1=\([^[:space:]]*\).*/\1/p" | head -n 1; }}
ck_wanted() {{
  [ ! -f "$ck_script" ] ||
    head -c {_SCRIPT_BYTES} "$ck_script" | sed -n 's/^#SBATCH --partition=//p' | head -n 1
}}
ck_ask_controller() {{
  ck_told=$($ck_limit scontrol $ck_at show job "$ck_job" 2>&1 </dev/null)
  ck_part job printf '%s\n' "$ck_told"
  ck_partition=$(ck_word Partition)
  [ -n "$ck_partition" ] || ck_partition=$(ck_wanted)
  if [ -n "$ck_partition" ]; then
    ck_part partition {tables.partitions("$ck_at")} "${{ck_partition%%,*}}"
    ck_part nodes {tables.nodes('$ck_at -h -N -p "$ck_partition"', NODE_FIELDS, "${ck_fs}")}
  fi
  ck_before=$(ck_word Dependency | grep -o '[0-9][0-9_]*' | sort -u | head -n 8 | tr '\n' ',')
  [ -z "$ck_before" ] ||
    ck_part dependencies sacct $ck_at -n -P -X -j "${{ck_before%,}}" -o JobID,State,JobName
  case $(ck_word Reason) in
    QOS* | Assoc* | Max* | AccountingPolicy* | Invalid*)
      ck_part qos {tables.QOS} where name="$(ck_word QOS)"
      ck_part association {tables.ASSOCIATIONS} account="$(ck_word Account)"
      ;;
  esac
}}
case $ck_queue in
  *'Unable to contact'* | *'no answer within'* | *'not found'* | *'No such file'*) ;;
  *) ck_ask_controller ;;
esac
"""


def script(subject: Subject) -> str:
    """The fragment for everything that `told.read` parses; empty for a run without a job."""
    match = _JOB_ID.fullmatch(subject.job_id)
    if match is None:
        return ""
    at = f"-M {match['cluster']}" if match["cluster"] else ""
    job = shlex.quote(f"{subject.run_dir}/job.sh")
    return f"ck_job={match['number']} ck_at={at!r} ck_script={job}\n{_ASK}"
