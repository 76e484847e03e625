"""What a make target costs in a fresh clone with empty caches, beside its limits.

    python -m tests.benchmarks.target test --limits 240 --runs 3
    python -m tests.benchmarks.target demo --limits 180
    python -m tests.benchmarks.target test --limits 600 --busy

`wall` and `processor` are seconds; processor time is that of all processes the target started. As root that
includes daemons that outlived their parent, by a control group of their own (cgroups(7), either version);
elsewhere it says `"daemons": false`. `load` is the machine's load before a run, over a minute: figures count
on a machine that does nothing else. `--busy` has a loop run on every processor meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[2]
GROUPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))
"""Where processor time is counted by group: with version 1 of control groups, and with version 2."""


def measure(target: str, log: Path) -> dict[str, object]:
    """One run of a target in a clone that has never run anything.

    Args:
        target: of the Makefile.
        log: where its output goes.
    """
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="clusterkit-", ignore_cleanup_errors=True) as top, group() as own:
        Path(top).chmod(0o755)  # as a folder of one's own is: tests read it as other users
        clone, home = Path(top, "clone"), Path(top, "home")
        home.mkdir()
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        env = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
        join = f"echo $$ >{own}/cgroup.procs; " if own else ""
        argv = ["sh", "-c", f'{join}exec make "$1"', "sh", target]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), monotonic()
        with log.open("wb") as file:
            code = subprocess.run(
                argv, cwd=clone, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            ).returncode
        wall, after = monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = used(own) if own else after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = re.findall(r"(\d+) (passed|failed|errors?|skipped)", log.read_text(errors="replace"))
    figures = {"load": round(load, 1), "wall": round(wall), "processor": round(processor)}
    return {**figures, "daemons": own is not None, "code": code, **{what: int(n) for n, what in found}}


@contextmanager
def group() -> Iterator[Path | None]:
    """A control group of one's own; None where that may not be."""
    for parent in GROUPS:
        own = parent / f"clusterkit-{os.getpid()}"
        if (parent / "cgroup.procs").exists():
            with suppress(OSError):
                own.mkdir()
                break
    else:
        yield None
        return
    try:
        yield own
    finally:
        with suppress(OSError):  # a daemon is left in it
            own.rmdir()


def used(own: Path) -> float:
    """Seconds of processor time of a group."""
    with suppress(OSError):
        return int((own / "cpuacct.usage").read_text()) / 1e9
    stat = dict(line.split() for line in (own / "cpu.stat").read_text().splitlines())
    return int(stat["usage_usec"]) / 1e6


@contextmanager
def busy(processors: int) -> Iterator[None]:
    """A loop on each of so many processors."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processors)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.target",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", choices=["test", "demo", "fresh", "test-cluster", "test-all"])
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="one after the other (1)")
    parser.add_argument("--busy", action="store_true", help="beside a loop on every processor")
    parser.add_argument("--limits", type=float, nargs="+", default=[], metavar="S", help="wall, processor")
    there = Path(tempfile.gettempdir(), "clusterkit-target.log")
    parser.add_argument("--log", type=Path, default=there, help=f"for the target's output ({there})")
    given = parser.parse_args()
    good = True
    for _ in range(given.runs):
        with busy(len(os.sched_getaffinity(0)) if given.busy else 0):
            found = measure(given.target, given.log)
        ratios = {
            f"of_{name}_limit": round(float(str(found[name])) / limit, 2)
            for name, limit in zip(("wall", "processor"), given.limits, strict=False)
        }
        good = good and not found["code"] and all(ratio <= 1 for ratio in ratios.values())
        print(json.dumps({"target": given.target, "busy": given.busy, **found, **ratios}), flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
