"""The shell fragment that collects `why`'s evidence about one run in one round trip. Pure."""

from __future__ import annotations

import shlex

from clusterkit.backends import backend_of_kind
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.backends.story import Subject
from clusterkit.probes import Probe
from clusterkit.runs.record import records

_LOG_LINES, _LOG_BYTES = 200, 40_000
_PART_BYTES = 8_000
_SCRIPT_BYTES = 1 << 20
_QUOTE = "\x1f"
"""Replaces an inner quote while others are removed."""

# A program can write into its run directory: job.sh is read as text and never evaluated, and a log may be
# huge, have no line ends, or be no file. Of job.sh the options for the scheduler, the binds and the values
# are told.
_FILES = rf"""
ck_quote='{_QUOTE}'
ck_bytes={_PART_BYTES}
ck_script() {{ [ ! -f job.sh ] || head -c {_SCRIPT_BYTES} job.sh; }}
ck_value() {{
  ck_script | sed -n "s/^$1=//p" | head -n 1 |
    sed "s/'\"'\"'/$ck_quote/g; s/'//g; s/$ck_quote/'/g"
}}
ck_tail() {{
  [ -f "$1" ] || return 0
  ck_part "$1" sh -c 'tail -c "$2" "$1" | tail -n "$3"' sh "$1" "$ck_bytes" "$2"
}}
cd "$ck_run" 2>/dev/null || cd /
ck_scratch=$(ck_value scratch_root) ck_image=$(ck_value image) ck_work=$(ck_value workdir)
ck_part about printf '%s\n' "user $(id -u) $(id -un)" "home $HOME" "host $(uname -n)" "now $(date +%s)" \
  "scratch ${{ck_scratch:-}}" "image ${{ck_image:-}}" "workdir ${{ck_work:-}}"
ck_part files ls -lAn . attempts
[ ! -f job.sh ] ||
  ck_part script sh -c 'head -c {_SCRIPT_BYTES} job.sh | grep -E "$1"' sh \
    '^#[A-Z]+ |^  --bind |^verify|^(python|runtime|image)='
ck_tail {SCHEDULER_LOG} 60
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


def question(subject: Subject) -> Probe[str]:
    """The probe for `parse_evidence`: a few hundred kilobytes at most. It changes nothing."""
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
        f"ck_run={shlex.quote(subject.run_dir)}",
        f"ck_part subject printf '%s\\n' {shlex.quote(head)}",
        f"(\n{_FILES}\n)",
        f"(\n{backend_of_kind(subject.scheduler).story(subject).script}\n:\n)",
        records([subject.run_dir]).script,
    ]
    return Probe("why", "\n".join(lines), str)
