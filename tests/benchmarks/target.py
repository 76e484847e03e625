"""What a make target costs in a fresh clone with empty caches, beside its limits.

    python -m tests.benchmarks.target test --limits 720 1080 --runs 3
    python -m tests.benchmarks.target test --limits 1500 --busy

`wall` and `processor` are seconds; processor time is that of all processes the target started, also of
daemons that outlived their parent (they come to this process: PR_SET_CHILD_SUBREAPER in prctl(2)). `load` is
the machine's load before a run, over a minute: figures count on a machine that does nothing else. `--busy`
has a loop run on every processor meanwhile.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36


def measure(target: str, log: Path) -> dict[str, object]:
    """One run of a target in a clone that has never run anything.

    Args:
        target: of the Makefile.
        log: where its output goes.
    """
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="clusterkit-target-") as top:
        clone, home = Path(top, "clone"), Path(top, "home")
        home.mkdir()
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        env = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
        before, start = _processor_seconds(), monotonic()
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["make", target], cwd=clone, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
            code = process.wait()
        wall = monotonic() - start
        _reap()
        processor = _processor_seconds() - before
        shutil.rmtree(clone, ignore_errors=True)
    found = re.findall(r"(\d+) (passed|failed|errors?|skipped)", log.read_text(errors="replace"))
    tests = {what: int(number) for number, what in found}
    return {"load": round(load, 1), "wall": round(wall), "processor": round(processor), "code": code, **tests}


def _reap() -> None:
    """Count what has ended since; a daemon that still runs is not counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def busy(processors: int) -> Iterator[None]:
    """A loop on each of so many processors."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processors)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()  # counted by nobody: before the next run begins


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.target",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", choices=["test", "check", "test-all"])
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="one after the other (1)")
    parser.add_argument("--busy", action="store_true", help="beside a loop on every processor")
    parser.add_argument("--limits", type=float, nargs="+", default=[], metavar="S", help="wall, processor")
    there = Path(tempfile.gettempdir(), "clusterkit-target.log")
    parser.add_argument("--log", type=Path, default=there, help=f"for the target's output ({there})")
    given = parser.parse_args()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
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
