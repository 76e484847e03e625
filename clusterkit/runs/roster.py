"""Lists the run directories of a work root, and what a ledger needs to know about them. Pure.

It serves lost ledgers, other laptops, and runs that another laptop resumed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterkit.probes import Probe
from clusterkit.probes.framing import MARK
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object

# Builtins only, like the fragment that reads the records.
_LIST = rf"""
ck_again() {{ [ ! -e "$1/submissions/$2" ] || printf '%s\n' "{MARK} again $1"; }}
printf '%s\n' "{MARK} begin $ck_runs"
for ck_dir in "$ck_runs"/*/; do
  ck_dir=${{ck_dir%/}}
  ck_dir=${{ck_dir##*/}}
  case $ck_dir in
    [!A-Za-z0-9]* | *[!A-Za-z0-9_.-]*) ;; # no run id
    *) printf '%s\n' "{MARK} run $ck_dir" ;;
  esac
done
"""

# The working tree's difference may be a megabyte, and stands on a line of its own. A run that has moved to
# another cluster has left a note here.
_DETAIL = rf"""
ck_detail() {{
  [ ! -e "$1/moved.json" ] || return 0
  [ -f "$1/run.json" ] || return 0
  printf '%s\n' "{MARK} detail $1"
  head -c {DOCUMENT_BYTES} "$1/run.json" 2>/dev/null | sed '/^    "diff": "/s/: ".*"/: null/'
}}
"""


@dataclass(frozen=True)
class Roster:
    """The contents of a work root."""

    runs: str
    """The folder of the run directories, absolute."""
    names: tuple[str, ...]
    """Names of all run directories."""
    again: tuple[str, ...]
    """Run directories of ended runs that were resubmitted."""


def roster(runs: str, ended: Iterable[tuple[str, int]]) -> Probe[Roster]:
    """A fragment that lists run directories without starting a process.

    Args:
        runs: the folder of the run directories, as one shell word.
        ended: run directory and newest known submission number of ended runs.
    """
    checks = [f"ck_again {shlex.quote(path)} {number + 1}" for path, number in ended]
    return Probe("roster", "\n".join([f"ck_runs={runs}", _LIST, *checks]), parse_roster)


def parse_roster(stdout: str) -> Roster:
    """Parses the fragment's output, ignoring other text; a truncated one lists fewer."""
    lines = [line for line in stdout.split("\n")[:-1] if line.startswith(MARK)]
    words = [line.removeprefix(f"{MARK} ").partition(" ") for line in lines]
    names = [name for kind, _, name in words if kind == "run"]
    again = [path for kind, _, path in words if kind == "again"]
    return Roster(next((path for kind, _, path in words if kind == "begin"), ""), tuple(names), tuple(again))


def details(run_dirs: Sequence[str]) -> Probe[dict[str, Mapping[str, Any]]]:
    """A fragment that reads the run.json of some runs, without large values."""
    calls = [f"ck_detail {shlex.quote(path)}" for path in run_dirs]
    return Probe("details", "\n".join([_DETAIL, *calls]), parse_details)


def parse_details(stdout: str) -> dict[str, Mapping[str, Any]]:
    """Contents of run.json by run directory; runs with an unreadable one are left out."""
    details: dict[str, Mapping[str, Any]] = {}
    for chunk in stdout.split(f"{MARK} detail ")[1:]:
        path, _, rest = chunk.partition("\n")
        if (value := parse_object(rest.partition(MARK)[0])) is not None:
            details[path] = value
    return details
