"""The survey script, which asks a login node everything at once, changes nothing and cannot hang.

It is POSIX sh, its answer is made of marked parts, and every part that could hang has a time limit. Where
only a login shell has Slurm on PATH, the script starts itself again inside one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from clusterkit import ownership
from clusterkit.backends.slurm import tables
from clusterkit.probes import FUNCTIONS, shell_path
from clusterkit.runtimes import all_runtimes

SECONDS = 240.0
"""Time limit of the whole; usually it takes a second."""


def argv(root: str | None = None, *, trust: Iterable[str] = (), group: str | None = None) -> list[str]:
    """Returns the survey's command; `clusterkit.backends.slurm.survey.parse` reads its output.

    Args:
        root: a work root chosen already, as in settings.
        trust: users who may own, and groups that may write to, the folders.
        group: one more trusted group.
    """
    survey = FUNCTIONS + _SURVEY
    runtimes = [runtime for runtime in all_runtimes() if runtime.survey]
    values = {
        "OWN": shlex.quote(ownership.fragment(trust, group)),
        "ROOT": shell_path(root) if root else "",
        "CONFIG": tables.CONFIG,
        "PARTITIONS": tables.partitions(),
        "NODES": tables.nodes("-h -e", tables.NODES_BY_KIND),
        "ARCHITECTURES": tables.NODE_ARCHITECTURES,
        "ASSOCIATIONS": tables.ASSOCIATIONS,
        "QOS": tables.QOS,
        "RUNTIMES": "".join(dict.fromkeys(runtime.survey for runtime in runtimes)),
        "NAMES": " ".join(runtime.name for runtime in runtimes),
    }
    for name, value in values.items():
        survey = survey.replace(f"@{name}@", value)
    return ["sh", "-c", _START, "sh", survey]


# $1 is the survey. Slurm's commands: on PATH, on a login shell's PATH, or where sites usually put them.
_START = r"""
limit=; ! command -v timeout >/dev/null 2>&1 || limit='timeout 30'
if command -v sbatch >/dev/null 2>&1; then
    exec sh -c "$1" sh plain
elif $limit bash -lc 'command -v sbatch' </dev/null >/dev/null 2>&1; then
    exec bash -lc 'exec sh -c "$0" sh login' "$1"
fi
for bin in /opt/slurm/bin /opt/slurm/current/bin /usr/local/slurm/bin /usr/local/bin /usr/slurm/bin \
    /cm/shared/apps/slurm/current/bin /opt/software/slurm/bin; do
    if [ -x "$bin/sbatch" ]; then
        PATH=$PATH:$bin exec sh -c "$1" sh "$bin"
    fi
done
exec sh -c "$1" sh none
"""

# $1 says how Slurm's commands were found: plain, login, none, or the folder they lie in.
_SURVEY = r"""
has() { command -v "$1" >/dev/null 2>&1; }
# Of Slurm's tools, the next is not asked when one has hung: they all wait for the same daemon.
slurm_part() { [ "$ck_status" = 124 ] || { has "$2" && ck_run "$@"; }; }
ck_status=0
me=$(id -un)

ck_begin me
printf '%s\n%s\n%s\n' "$(hostname 2>/dev/null || uname -n)" "$me" "$1"
id -Gn
ck_end $?

if [ "$1" != none ]; then
    slurm_part version sbatch --version
    slurm_part config @CONFIG@
    slurm_part partitions @PARTITIONS@
    slurm_part nodes @NODES@
    slurm_part architectures @ARCHITECTURES@
    ck_status=0
    slurm_part user sacctmgr -n -P show user "$me" format=User,DefaultAccount
    slurm_part associations @ASSOCIATIONS@
    slurm_part qos @QOS@
    slurm_part shares sshare -n -P -U -o Account,User
fi

@RUNTIMES@
if has bash; then
    # A module command is a function of the login shell, and prints to either stream.
    ck_begin modules
    $ck_limit bash -lc 'command -v module >/dev/null && { module -t avail
        for name in @NAMES@; do module -t spider $name; done; } 2>&1' </dev/null 2>/dev/null |
        tr -d '\r' | grep -iE "^[^ :]*(slurm$(printf '|%s' @NAMES@))[^ :]*\$" | sort -u | head -n 60
    ck_end 0
fi

# Folders with room. Variables that name one are often set in login shells only.
ask='for name in WORK WORKDIR PROJECT DATA STORE SCRATCH PSCRATCH SCRATCHDIR SCRATCH_DIR; do
    eval "value=\${$name-}"; case $value in /*) printf "\n%s=%s\n" $name "$value" ;; esac
done'
own=@OWN@
room='near=$2
while [ ! -e "$near" ] && [ -n "$near" ]; do near=${near%/*}; done
near=${near:-/} exists=no writable=no
[ ! -d "$2" ] || exists=yes
[ ! -w "$near" ] || writable=yes
printf "root %s %s %s %s\n" "$1" $exists $writable "$2"
printf "type %s\n" "$(stat -f -c %T "$near" 2>/dev/null)"
printf "df %s\n" "$(df -Pk "$near" 2>/dev/null | tail -n 1)"
! command -v lfs >/dev/null ||
    printf "lfs %s\n" "$(lfs quota -q -u "$3" "$near" 2>/dev/null | tr "\n" " ")"
own_check "$2/clusterkit" "$2/$3/clusterkit" || printf %s "$own_faults" | sed "s/^/own /"'
ck_begin roots
{
    printf 'HOME=%s\n' "$HOME"
    sh -c "$ask"
    ! has bash || $ck_limit bash -lc "$ask" </dev/null 2>/dev/null
} | grep -E '^[A-Z_]+=/' | sort -u | while IFS='=' read -r name path; do
    $ck_limit sh -c "$own$room" sh "\$$name" "$path" "$me" </dev/null 2>/dev/null
done
for top in /share /work /project /projects /data /scratch /lustre /gpfs /beegfs /mnt/scratch; do
    for path in "$top/$me" "$top/users/$me"; do
        $ck_limit sh -c '[ -d "$1/" ] || { [ "$1" = "$2" ] && [ -w "${1%/*}" ]; }' sh "$path" "$top/$me" &&
            $ck_limit sh -c "$own$room" sh usual "$path" "$me" </dev/null 2>/dev/null
    done
done
ck_end 0
chosen=@ROOT@
if [ -n "$chosen" ]; then
    ck_run chosen sh -c "$own"'own_check "$1" || printf %s "$own_faults"' sh "${chosen%/}"
fi
if has quota; then ck_run quota quota -w; fi

ck_run rsync rsync --version
if has ws_allocate; then ck_run workspaces true; fi
if has curl; then
    ck_run internet curl -sS -I -m 8 -o /dev/null https://api.wandb.ai
elif has bash; then
    ck_run internet bash -c ': </dev/tcp/api.wandb.ai/443'
fi
ck_begin done
ck_end 0
"""
