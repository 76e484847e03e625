"""Builds the command that starts another program in a running program's place. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterkit import ownership
from clusterkit.runtimes import all_runtimes

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.interactive.inside import Inside

# $1 job.sh, $2 attempt. Sets $scratch and $enter, a file that job.sh writes before it starts the program.
_FIND = r"""
must_be_owned() {
  own_check "$1" && return
  echo "[clusterkit] $(own_say)" >&2
  exit UNSAFE
}
own_must=yes
must_be_owned "$1"
eval "$(grep -e '^run_id=' -e '^scratch_root=' "$1")"
scratch=$scratch_root/$run_id-$2
enter=$scratch/enter
if [ ! -r "$enter" ]; then
  echo "[clusterkit] there is no way in: the program has not been started yet, or has just ended" >&2
  exit 125
fi
must_be_owned "$enter"
"""

# $terminal is the value of TERM, and the arguments are the command. Runs on the node with its caller's
# environment; the file `enter` holds the program's environment and command line, and `become`. Without the id
# of the job, it is no part of a local job, which lives as long as any of its processes.
_ENTER = r"""
. "$enter"
for number in "${!environment[@]}"; do
  case ${environment[number]} in *CLUSTERKIT_JOB_ID=*) unset "environment[number]" ;; esac
done
environment+=("TERM=$terminal")
RUNTIMESbecome "${command[@]}" "$@"
"""

# $1 run id. Start-up files are skipped, as they would change the program's environment. Without them bash's
# default history size would truncate the user's history file. Apptainer sets PROMPT_COMMAND.
SHELL = r"""
unset PROMPT_COMMAND
export HISTFILE=
if command -v bash >/dev/null 2>&1; then
  export PS1="($1) \W\$ "
  exec bash --norc --noprofile -i
fi
export PS1="($1) \$ "
exec sh -i
"""
"""sh script of an interactive shell in the program's place; $1 is the run id."""


def find_script(cluster: Cluster) -> str:
    """Bash lines that find a job's scratch, unless another user could have changed its input files."""
    owned = ownership.fragment(cluster.trust, cluster.group)
    return owned + _FIND.replace("UNSAFE", str(ownership.EXIT_CODE))


def enter_script(cluster: Cluster, *, arguments: str = "terminal=$3; shift 3") -> str:
    """Bash script that enters a job's environment; as `find_script`.

    Args:
        cluster: where.
        arguments: lines that set $terminal and leave the program to start as the arguments.
    """
    prepare = "".join(dict.fromkeys(runtime.enter for runtime in all_runtimes()))
    return f"{find_script(cluster)}{arguments}\n{_ENTER.replace('RUNTIMES', prepare)}"


def enter_argv(place: Inside, program: Sequence[str], *, terminal: str | None = None) -> list[str]:
    """The argv, on the node, of a program in the running program's place.

    Args:
        place: the running run.
        program: argv; `python` is the program's interpreter.
        terminal: the value of TERM; None without a terminal.
    """
    script = enter_script(place.cluster)
    start = ["bash", "-c", script, "bash", f"{place.run.run_dir}/job.sh", str(place.attempt)]
    return [*start, terminal or "dumb", *program]
