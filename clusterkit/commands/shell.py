"""shell: run a shell or another command in the environment of a running run's program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from clusterkit import ownership
from clusterkit.runs.inside import Inside, inside
from clusterkit.runs.ledger import LedgerRun

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

# $1 job.sh, $2 attempt, $3 TERM, then the command. Runs on the node with its caller's environment; the file
# `enter`, written by job.sh, sets the program's environment and its command line as an array.
_ENTER = r"""
must_be_owned() {
  own_check "$1" && return
  echo "[clusterkit] $(own_say)" >&2
  exit UNSAFE
}
own_must=yes
must_be_owned "$1"
eval "$(grep -e '^run_id=' -e '^scratch_root=' "$1")"
enter=$scratch_root/$run_id-$2/enter terminal=$3
shift 3
if [ ! -r "$enter" ]; then
  echo "[clusterkit] there is no way in: the program has not been started yet, or has just ended" >&2
  exit 125
fi
must_be_owned "$enter"
for name in $(compgen -e); do unset "$name" 2>/dev/null; done
. "$enter"
export TERM="$terminal" APPTAINERENV_TERM="$terminal" SINGULARITYENV_TERM="$terminal"
[ "${command[1]}" != exec ] || command=("${command[0]}" --quiet "${command[@]:1}") # a container runtime
[ "${command[0]}" != srun ] || [ ! -t 0 ] || command=(srun --pty "${command[@]:1}") # Pyxis
exec "${command[@]}" "$@"
"""

# $1 run id. Start-up files are skipped, as they would change the program's environment. Without them bash's
# default history size would truncate the user's history file. Apptainer sets PROMPT_COMMAND.
_SHELL = r"""
unset PROMPT_COMMAND
export HISTFILE=
if command -v bash >/dev/null 2>&1; then
  export PS1="($1) \W\$ "
  exec bash --norc --noprofile -i
fi
export PS1="($1) \$ "
exec sh -i
"""


def enter_script(cluster: Cluster) -> str:
    """Bash script that enters a job's environment, unless another user could have changed its input files."""
    owned = ownership.fragment(cluster.trust, cluster.group)
    return owned + _ENTER.replace("UNSAFE", str(ownership.EXIT_CODE))


def shell(
    settings: Settings,
    run: LedgerRun,
    command: Sequence[str],
    *,
    terminal: str | None,
    on_entry: Callable[[Inside], None],
) -> int:
    """Run a command beside the program: same node, container, environment, working directory.

    Args:
        settings: of the project.
        run: the running run.
        command: its argv; empty for a shell.
        terminal: the value of TERM if the command gets this process's terminal; None without a terminal.
        on_entry: called once the run is known to be running.

    Returns:
        The command's exit status; minus the signal number for a signal.

    Raises:
        RunError: the run is not running.
        TransportError: the cluster cannot be reached, or the connection was lost.
    """
    with inside(settings, run) as place:
        on_entry(place)
        program = list(command) or ["sh", "-c", _SHELL, "sh", run.run_id]
        script = f"{run.run_dir}/job.sh"
        enter = [
            "bash",
            "-c",
            enter_script(place.cluster),
            "bash",
            script,
            str(place.attempt),
            terminal or "dumb",
            *program,
        ]
        argv = place.argv(enter, terminal=terminal is not None)
        return place.transport.attach(argv, terminal=terminal is not None, leash=place.leash)
