"""Lists the run directories of a work root and reads what a ledger records about them. Pure.

This restores lost ledgers and finds runs that another laptop submitted or resumed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterkit.probes import Probe
from clusterkit.probes.framing import MARK
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object

# Shell builtins only, like the fragment that reads the records.
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

# `sed` drops the diff of the working tree, which is on a line of its own and may be a megabyte. A run that
# has moved to another cluster has a moved.json and is skipped.
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
    """Absolute path of the folder of the run directories."""
    names: tuple[str, ...]
    """Names of all run directories."""
    again: tuple[str, ...]
    """Run directories of ended runs that were resubmitted."""


def roster(runs: str, ended: Iterable[tuple[str, int]]) -> Probe[Roster]:
    """Returns a probe that lists run directories without starting a process.

    Args:
        runs: the folder of the run directories, as one shell word.
        ended: the run directory and newest known submission number of each ended run.
    """
    checks = [f"ck_again {shlex.quote(path)} {number + 1}" for path, number in ended]
    return Probe("roster", "\n".join([f"ck_runs={runs}", _LIST, *checks]), parse_roster)


def parse_roster(stdout: str) -> Roster:
    """Parses the probe's output and ignores other text; truncated output yields fewer runs."""
    lines = [line for line in stdout.split("\n")[:-1] if line.startswith(MARK)]
    words = [line.removeprefix(f"{MARK} ").partition(" ") for line in lines]
    names = [name for kind, _, name in words if kind == "run"]
    again = [path for kind, _, path in words if kind == "again"]
    return Roster(next((path for kind, _, path in words if kind == "begin"), ""), tuple(names), tuple(again))


def details(run_dirs: Sequence[str]) -> Probe[dict[str, Mapping[str, Any]]]:
    """Returns a probe that reads the run.json of some runs, without the diff."""
    calls = [f"ck_detail {shlex.quote(path)}" for path in run_dirs]
    return Probe("details", "\n".join([_DETAIL, *calls]), parse_details)


def parse_details(stdout: str) -> dict[str, Mapping[str, Any]]:
    """Parses the probe's output into run.json by run directory, without unreadable ones."""
    details: dict[str, Mapping[str, Any]] = {}
    for chunk in stdout.split(f"{MARK} detail ")[1:]:
        path, _, rest = chunk.partition("\n")
        if (value := parse_object(rest.partition(MARK)[0])) is not None:
            details[path] = value
    return details
