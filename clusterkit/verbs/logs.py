"""logs: a run's own log, followed while it grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from clusterkit.errors import RunError
from clusterkit.ledger import LedgerRun
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

# $1 run directory, $2 lines, $3 attempt or empty, $4 non-empty to follow.
# Prints the log of the attempt, or of the scheduler as long as there is no attempt. While following, it
# ends when the attempt has its exit record, or when nobody reads any more (the probe of standard output).
_SCRIPT = """
cd "$1" 2>/dev/null || { echo "the run directory $1 is gone" >&2; exit 3; }
attempt=$3
newest() {
  ls attempts 2>/dev/null | sort -n |
    while read -r n; do test -f "attempts/$n/log" && echo "$n"; done | tail -n 1
}
test -n "$attempt" || attempt=$(newest)
while test -z "$attempt" && test -n "$4"; do sleep 1; attempt=$(newest); done
if test -z "$attempt"; then
  test -s slurm.log || { echo "the run has not started yet" >&2; exit 4; }
  tail -n "$2" slurm.log; exit 0
fi
log=attempts/$attempt/log
test -f "$log" || { echo "there is no attempt $attempt" >&2; exit 3; }
if test -z "$4"; then tail -n "$2" "$log"; exit 0; fi
tail -n "$2" -f "$log" & tail=$!
trap 'kill $tail 2>/dev/null' EXIT
trap 'exit 0' HUP INT TERM PIPE
while test ! -e "attempts/$attempt/exit.json" && kill -0 $tail 2>/dev/null; do sleep 1; done
sleep 1
"""


def logs(
    settings: Settings, run: LedgerRun, *, lines: int, attempt: int | None, follow: bool
) -> Iterator[bytes]:
    """The last lines of a run's log, then what is added until the attempt ends.

    Args:
        settings: of the project.
        run: which.
        lines: how many of the last lines.
        attempt: which start of the run; None is the newest.
        follow: wait for more until the attempt has ended.

    Raises:
        RunError: there is no log yet, or the run directory is gone.
        TransportError: the connection failed.
    """
    arguments = [run.run_dir, str(lines), "" if attempt is None else str(attempt), "follow" if follow else ""]
    with connected(settings.cluster(run.cluster)) as transport:
        argv = ["sh", "-c", _SCRIPT, "sh", *arguments]
        if follow:
            yield from transport.stream(argv)
            return
        result = transport.run(argv, check=False)
        if result.returncode != 0:
            reason = (result.error_text.strip().splitlines() or ["its log cannot be read"])[-1]
            hint = "`clusterkit status` says why it waits" if result.returncode == 4 else None
            raise RunError(f"{run.run_id}: {reason}", hint=hint)
        yield result.stdout
