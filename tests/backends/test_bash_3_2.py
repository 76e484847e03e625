"""The scripts keep to bash 3.2, the newest that macOS brings (bash's NEWS says what came later)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NEWER = re.compile(
    r"""
    \b(?:mapfile|readarray|coproc)\b                          # 4.0
    | \b(?:declare|local|typeset|readonly)\ +-\w*[AglnuU]  # 4.0 to 4.3
    | \$\{!?\w+(?:\[[^]]*\])?(?:\^|,|@[A-Za-z])               # 4.0, 4.4: changed case, and @Q
    | \$\{\w+:\ *\d[^}:]*:\ *-                                # 4.2: a negative length
    | \$\{\w+\[-                                              # 4.3: a negative index
    | \|&|&>>|;;?&                                            # 4.0
    | \bwait\ +-\w*[nfp]                                      # 4.3
    | \[\[\ +-v\b|\btest\ +-v\b                               # 4.2
    | \bread\ +(?:-\w+\ +)*-\w*(?:N|t\ *\d*\.)                # 4.0, 4.1
    | \bprintf\ [^\n]*%\(                                     # 4.2
    | \bexec\ +\{\w+\}|\{\w+\}[<>]                            # 4.1: a descriptor's name
    | \bBASHPID\b|\bBASH_XTRACEFD\b|\bEPOCH(?:SECONDS|REALTIME)\b|\bSRANDOM\b|\bBASH_ARGV0\b
    | \b(?:globstar|lastpipe|inherit_errexit|localvar_inherit)\b
    """,
    re.VERBOSE,
)
TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
SCRIPTS = sorted(path for path in TEMPLATES.rglob("*") if re.search(r"\.sh(\.j2)?$", path.name))


def code_of(path: Path) -> list[str]:
    """The lines of a script without comments."""
    return [re.sub(r"(^|\s)#.*", "", line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "line",
    [
        "mapfile -t names < list",
        "declare -A seen",
        "local -n result=$1",
        'say "${name^^}"',
        'say "${name,,}"',
        'say "${names[@]@Q}"',
        'say "${name:0:-1}"',
        'say "${names[-1]}"',
        "run |& tee log",
        "run &>> log",
        "wait -n",
        "if [[ -v name ]]; then",
        "read -r -t 0.5 line",
        "printf '%(%F)T' -1",
        "exec {lock}> file",
        "say $BASHPID",
    ],
)
def test_what_is_newer_is_seen(line: str) -> None:
    assert NEWER.search(line)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(TEMPLATES)))
def test_a_script_keeps_to_bash_3_2(script: Path) -> None:
    assert [line for line in code_of(script) if NEWER.search(line)] == []
