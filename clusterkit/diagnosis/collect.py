"""The shell fragment that collects everything `why` needs to know about one run, in one round trip. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from clusterkit.backends import backend_of_kind
from clusterkit.probes import Probe
from clusterkit.probes.framing import SECONDS, TIME_UP
from clusterkit.runs.record import records

FIELD = "\x1f"
SQUEUE_FIELDS = ("%i", "%T", "%r", "%P", "%N", "%S", "%M", "%l")
"""Slurm 20.11 has them all."""
SACCT_FIELDS = ("JobID", "State", "ExitCode", "NodeList", "Elapsed", "Timelimit", "ReqMem", "MaxRSS")
SINFO_FIELDS = ("%N", "%T", "%u", "%E")

_LOG_LINES, _LOG_BYTES = 200, 40_000
_PART_BYTES = 8_000
_SCRIPT_BYTES = 1 << 20
_JOB_ID = re.compile(r"(?P<number>[0-9]+(?:_[0-9]+)?)(?:;(?P<cluster>[A-Za-z0-9_.-]+))?")


@dataclass(frozen=True)
class Subject:
    """The run in question, as the laptop knows it."""

    run_id: str
    job_id: str
    """Empty when the scheduler never gave one."""
    run_dir: str
    """Absolute path on the cluster."""
    scheduler: str = "slurm"
    """`slurm` or `local`."""
    shell: str = ""
    """What a person types before a command that must run on the cluster, e.g. `ssh login`; empty is here."""
    profile: str = ""
    cluster: str = ""
    """Its name in the settings."""


_BEGIN = rf"""
SLURM_TIME_FORMAT=standard SLURM_BITSTR_LEN=0; export SLURM_TIME_FORMAT SLURM_BITSTR_LEN
ck_fs='{FIELD}'
ck_bytes={_PART_BYTES}
ck_script() {{ [ ! -f job.sh ] || head -c {_SCRIPT_BYTES} job.sh; }}
ck_value() {{ ck_script | sed -n "s/^$1=//p" | head -n 1 | sed "s/'\"'\"'/$ck_fs/g; s/'//g; s/$ck_fs/'/g"; }}
ck_tail() {{
  [ -f "$1" ] || return 0
  ck_part "$1" sh -c 'tail -c "$2" "$1" | tail -n "$3"' sh "$1" "$ck_bytes" "$2"
}}
"""

# A program can write into its run directory: job.sh is read as text and never evaluated, and a log may be
# huge, have no line ends, or be no file.
_FILES = rf"""
cd "$ck_run" 2>/dev/null || cd /
ck_scratch=$(ck_value scratch_root) ck_image=$(ck_value image) ck_work=$(ck_value workdir)
ck_part about printf '%s\n' "user $(id -u) $(id -un)" "home $HOME" "host $(uname -n)" "now $(date +%s)" \
  "scratch ${{ck_scratch:-}}" "image ${{ck_image:-}}" "workdir ${{ck_work:-}}"
ck_part files ls -lAn . attempts
[ ! -f job.sh ] ||
  ck_part script sh -c 'head -c {_SCRIPT_BYTES} job.sh | grep -E "$1"' sh \
    '^#SBATCH |^  --bind |^verify|^(python|runtime|image)='
ck_tail slurm.log 60
ck_newest=$(ls attempts 2>/dev/null | grep -x '[0-9]*' | sort -n | tail -n 1)
if [ -n "$ck_newest" ]; then
  ck_bytes={_LOG_BYTES}
  for ck_file in "attempts/$ck_newest/log" "attempts/$ck_newest/stderr"; do
    ck_tail "$ck_file" {_LOG_LINES}
  done
  ck_bytes={_PART_BYTES}
fi
[ -z "${{ck_image:-}}" ] || ck_part image ls -lLn "$ck_image"
[ -z "${{ck_work:-}}" ] || ck_part workdir ls -ldLn "$ck_work"
for ck_root in run:"$ck_run" scratch:"${{ck_scratch:-}}" home:"$HOME"; do
  ck_place=${{ck_root#*:}}
  case $ck_place in /*) ;; *) continue ;; esac
  while [ -n "$ck_place" ] && [ ! -e "$ck_place" ]; do ck_place=${{ck_place%/*}}; done
  [ -z "$ck_place" ] || ck_part "df ${{ck_root%%:*}} $ck_place" df -Pk "$ck_place"
done
command -v quota >/dev/null 2>&1 && ck_part quota quota -w
command -v lfs >/dev/null 2>&1 && ck_part lfs lfs quota -q -u "$(id -un)" "$ck_run"
"""

# $ck_job is the job's number, $ck_at chooses its cluster. Without accounting `sacct` and `sacctmgr` fail,
# which is an answer too. A controller that does not answer is asked once. The partition and the dependencies
# are read from what it says of the job.
_SLURM = rf"""
ck_said=$($ck_limit squeue $ck_at -h -t all -j "$ck_job" -o "$ck_queue" 2>&1 </dev/null)
[ $? -ne {TIME_UP} ] || ck_said='no answer within {SECONDS} s'
ck_part squeue printf '%s\n' "$ck_said"
ck_booked_text=$($ck_limit sacct $ck_at -n -P -D --delimiter="$ck_fs" -j "$ck_job" -o "$ck_booked" 2>&1 \
  </dev/null)
ck_part sacct printf '%s\n' "$ck_booked_text"
for ck_uid in $(printf '%s\n' "$ck_booked_text" | sed -n 's/.*CANCELLED by \([0-9]*\).*/\1/p' | sort -u); do
  ck_part "person $ck_uid" id -un "$ck_uid"
done
ck_word() {{ printf '%s\n' "$ck_said" | sed -n "s/.*[[:space:]]$1=\([^[:space:]]*\).*/\1/p" | head -n 1; }}
ck_ask_controller() {{
  ck_said=$($ck_limit scontrol $ck_at show job "$ck_job" 2>&1 </dev/null)
  ck_part job printf '%s\n' "$ck_said"
  ck_partition=$(ck_word Partition)
  [ -n "$ck_partition" ] || ck_partition=$(ck_script | sed -n 's/^#SBATCH --partition=//p' | head -n 1)
  if [ -n "$ck_partition" ]; then
    ck_part partition scontrol $ck_at show partition "${{ck_partition%%,*}}"
    ck_part nodes sinfo $ck_at -h -N -p "$ck_partition" -o "$ck_nodes"
  fi
  ck_before=$(ck_word Dependency | grep -o '[0-9][0-9_]*' | sort -u | head -n 8 | tr '\n' ',')
  [ -z "$ck_before" ] ||
    ck_part dependencies sacct $ck_at -n -P -X -j "${{ck_before%,}}" -o JobID,State,JobName
  case $(ck_word Reason) in
    QOS* | Assoc* | Max* | AccountingPolicy* | Invalid*)
      ck_part qos sacctmgr -nP show qos where name="$(ck_word QOS)" \
        format=Name,MaxWall,MaxTRES,MaxTRESPU,GrpTRES,MaxJobsPU,MaxSubmitPU
      ck_part association sacctmgr -nP show assoc where user="$(id -un)" account="$(ck_word Account)" \
        format=Account,MaxWall,MaxTRES,GrpTRES,MaxJobs,MaxSubmit
      ;;
  esac
}}
case $ck_said in
  *'Unable to contact'* | *'no answer within'* | *'not found'* | *'No such file'*) ;;
  *) ck_ask_controller ;;
esac
"""


def question(subject: Subject) -> Probe[str]:
    """Collects what `parse_evidence` reads: a few hundred kilobytes at most. It changes nothing."""
    facts = {
        "run": subject.run_id,
        "job": subject.job_id,
        "dir": subject.run_dir,
        "scheduler": subject.scheduler,
        "shell": subject.shell,
        "profile": subject.profile,
        "cluster": subject.cluster,
    }
    head = "\n".join(f"{key} {value}" for key, value in facts.items())
    lines = [
        _BEGIN,
        f"ck_run={shlex.quote(subject.run_dir)}",
        f"ck_part subject printf '%s\\n' {shlex.quote(head)}",
        _FILES,
    ]
    if subject.scheduler == "local":
        lines.append(_alive(subject.job_id))
    elif match := _JOB_ID.fullmatch(subject.job_id):
        booked = ",".join(SACCT_FIELDS)
        lines += [
            f"ck_job={match['number']} ck_at={'-M ' + match['cluster'] if match['cluster'] else ''!r}",
            f"ck_booked={booked}",
            *(
                f'{name}="' + "${ck_fs}".join(fields) + '"'
                for name, fields in (("ck_queue", SQUEUE_FIELDS), ("ck_nodes", SINFO_FIELDS))
            ),
            _SLURM,
        ]
    lines += ["cd /", records([subject.run_dir]).script]
    return Probe("why", "\n".join(lines), str)


def _alive(job_id: str) -> str:
    """Prints the local job's id when it lives."""
    return backend_of_kind("local").query([job_id]).script
