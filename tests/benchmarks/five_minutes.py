"""A newcomer's five minutes with a program of their own: the commands up to a report of three seeds, timed.

A wheel of this tree goes into a fresh virtual environment, without the trainer's packages. Its dependencies
come from the package index, or where that gives no answer from the packages that are here (the first line
says which). The folder holds the program that docs/index.md shows, and nothing else. Everything runs on this
machine: at most eight commands and 90 s on two quiet cores, including the build of the wheel. Thinking and
reading are not in the clock.

The peer is what can be typed without clusterkit: the three seeds in the shell, one after the other, as they
run here. States, curves and a report would need a program of one's own first, so they have no peer.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks._report import Row, arguments, report
from tests.benchmarks.newcomer import ROOT, Person, installs, wheel

MOST_COMMANDS = 8
MOST_SECONDS = 90.0
SEEDS = (1, 2, 3)
WAITS = "clusterkit sync-results --watch"
"""Returns when the runs have ended."""


def project(folder: Path) -> None:
    """Make the newcomer's folder: a program."""
    folder.mkdir()
    (program,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/index.md").read_text(), re.M | re.S)
    (folder / "train.py").write_text(program)


def with_clusterkit(folder: Path, built: Path) -> tuple[Person, str]:
    """Type everything; returns the person and where the dependencies came from."""
    project(folder)
    person = Person(folder, f"{folder}/.venv/bin:{os.environ['PATH']}")
    person.types(f"{sys.executable} -m venv .venv", shown="python -m venv .venv")
    person.types("sh -c '. .venv/bin/activate'", shown=". .venv/bin/activate")
    source = installs(person, folder, built)
    person.types("clusterkit init --local")
    person.types(f"clusterkit submit --seeds {SEEDS[0]}..{SEEDS[-1]}")
    person.types("clusterkit status")
    person.types(WAITS)
    said = person.types("clusterkit report last")
    if f"  {len(SEEDS)}  " not in said.stdout or not list(folder.glob("results/reports/*/report.html")):
        raise SystemExit(f"no report of {len(SEEDS)} seeds: {said.stdout}{said.stderr}")
    return person, source


def by_hand(folder: Path) -> float:
    """Run the seeds alone, one after the other; returns their seconds."""
    project(folder)
    person = Person(folder, os.environ["PATH"])
    for seed in SEEDS:
        person.types(f"{sys.executable} train.py --seed {seed}")
    return sum(seconds for _, seconds in person.steps)


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    with tempfile.TemporaryDirectory(prefix="ck-") as home:
        start = time.perf_counter()
        built = wheel(Path(home))
        making = time.perf_counter() - start
        person, source = with_clusterkit(Path(home) / "mine", built)
        hands = 0.0 if quick else by_hand(Path(home) / "hands")
    rows: list[Row] = [(f"dependencies: {source}", "build the wheel", making, "", 0.0, "s")]
    for number, (typed, seconds) in enumerate(person.steps, 1):
        peer = ("the three seeds", hands) if typed == WAITS and hands else ("", 0.0)
        rows.append((f"command {number}", typed, seconds, *peer, "s"))
    total = making + sum(seconds for _, seconds in person.steps)
    rows.append(("total", f"{len(person.steps)} commands", total, "", 0.0, "s"))
    seconds_of = dict(person.steps)
    found = {
        "commands": len(person.steps),
        "seconds": total,
        "seconds_pip": sum(seconds for typed, seconds in person.steps if typed.startswith("pip ")),
        "seconds_until_all_ended": seconds_of[WAITS],
    }
    report("five_minutes", rows, {**found, **({"seconds_by_hand": hands} if hands else {})})
    if len(person.steps) > MOST_COMMANDS or total > MOST_SECONDS:
        most = f"the most are {MOST_COMMANDS} in {MOST_SECONDS:.0f} s"
        raise SystemExit(f"{len(person.steps)} commands in {total:.0f} s; {most}")


if __name__ == "__main__":
    main()
