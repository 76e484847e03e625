"""Trains every side on every case in turn, one process after the other, and writes the page.

What is found is kept as it is found: stopped at any time, the same command goes on where it was. Nothing
else should run on the machine meanwhile. `--quick` takes fewer and shorter cases, one seed, some five minutes
on two processors, and writes its page below build/; without it the page is docs/comparison.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.peers import page, results
from tests.benchmarks.peers.cases import CASES, PACKAGES, TITLES, cells
from tests.benchmarks.peers.install import ROOT, install, interpreter

LONGEST_SECONDS = 1200.0
OVERTIME_SECONDS = 60.0
"""That a cell may take beyond the budget before it is given up."""


def run_cell(
    python: Path, case: str, side: str, seed: int, steps: int, limit: float
) -> results.Finding | None:
    """Runs a cell in a process of its own; returns its finding, or the error, or None without the time."""
    argv = [str(python), "-m", "tests.benchmarks.peers.start", "--side", side, "--case", case]
    argv += ["--seed", str(seed), "--steps", str(steps)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    # files and no pipes: what a peer leaves running would keep a pipe open
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=environ,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=said,
        )
        try:
            process.wait(timeout=min(limit, LONGEST_SECONDS))
        except subprocess.TimeoutExpired:
            return {"error": f"ran past {LONGEST_SECONDS:.0f} s"} if limit >= LONGEST_SECONDS else None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        said.seek(0)
        lines, words = output.read().splitlines(), said.read().splitlines()
    try:
        found: results.Finding = json.loads(lines[-1])
    except (IndexError, ValueError):
        last = next((line.strip() for line in reversed(words) if line.strip()), "no word")
        return {"error": f"exit code {process.returncode}: {last[:300]}"}
    return found


def main(argv: list[str] | None = None) -> int:
    """Runs what is left and time allows; returns 1 if a cell of ours failed, 0 if only others did."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer, shorter cases and one seed")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="stop then; the same command goes on")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="a side and case (5, HalfCheetah 10; with --quick 1)"
    )
    parser.add_argument("--only", metavar="A,B", help="these cases or sides")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "peers", help=argparse.SUPPRESS)
    parser.add_argument("--docs", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    begun = time.monotonic()
    mode = "quick" if asked.quick else "full"
    store = asked.folder / f"{mode}.jsonl"
    docs = asked.docs or (asked.folder if asked.quick else ROOT / "docs")
    only = set(asked.only.split(",")) if asked.only else None
    if only and not only <= CASES.keys() | TITLES.keys():
        wrong = ", ".join(sorted(only - CASES.keys() - TITLES.keys()))
        parser.error(f"--only {wrong}: choose among {', '.join([*CASES, *TITLES])}")
    here, failed = results.machine(), {}
    if asked.fresh:
        store.unlink(missing_ok=True)
    if not asked.page:
        todo = cells(asked.quick, asked.seeds or (1 if asked.quick else None))
        todo = [cell for cell in todo if not only or wanted(cell, only)]
        if any(side in PACKAGES for _, side, _ in todo):
            failed = install(asked.folder)
        ends = begun + 60 * asked.budget if asked.budget else float("inf")
        go(todo, asked.folder, store, mode, here, failed, ends)
    known = [line for line in results.read(store) if line["machine"] == here]
    cells_known = results.newest(line for line in known if line["steps"] == length(line["case"], mode))
    if not cells_known:
        print("nothing has been found yet, so there is no page to write")
        return 1
    written = page.write(list(cells_known.values()), docs)
    print(f"written: {written} and {written.with_suffix('.jsonl')}")
    broken = [finding for finding in cells_known.values() if "error" in finding]
    for finding in broken:
        print(f"failed: {finding['case']}, {finding['side']}, seed {finding['seed']}: {finding['error']}")
    return 1 if any(finding["side"] == "ours" for finding in broken) else 0


def length(case: str, mode: str) -> int:
    """Returns the steps of a case; what was found with others is no longer asked for."""
    if case not in CASES:
        return 0
    return CASES[case].quick if mode == "quick" else CASES[case].steps


def commit() -> str | None:
    """Returns the commit that is measured, with a + where it was changed; None outside a checkout."""

    def git(*words: str) -> str:
        argv = ["git", "-C", str(ROOT), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "trainer", "tests/benchmarks/peers")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def wanted(cell: tuple[str, str, int], only: set[str]) -> bool:
    """Tells whether a cell is of the cases and the sides that were named."""
    case, side, _ = cell
    return (not only & CASES.keys() or case in only) and (not only & TITLES.keys() or side in only)


def go(
    todo: list[tuple[str, str, int]],
    folder: Path,
    store: Path,
    mode: str,
    here: str,
    failed: dict[str, str],
    ends: float,
) -> None:
    """Runs the cells that are not yet known, in order, as long as there is time."""
    for number, (case, side, seed) in enumerate(todo, 1):
        steps = length(case, mode)
        known = [line for line in results.read(store) if (line["machine"], line["steps"]) == (here, steps)]
        same = [line for line in known if (line["case"], line["side"]) == (case, side)]
        if any(line["seed"] == seed and "error" not in line for line in same):
            continue
        left = ends - time.monotonic()
        if left < 1.1 * max((line["seconds"] for line in same if "error" not in line), default=5.0):
            ahead = len(todo) - number + 1
            print(f"time is up: {ahead} of {len(todo)} cells are left; the same command goes on")
            return
        begun = time.monotonic()
        missing = failed.get(side) or (failed.get("metaworld") if CASES[case].environment == "MT10" else None)
        if missing and side in PACKAGES:
            found: results.Finding | None = {"error": f"not installed: {missing}"}
        else:
            python = interpreter(folder) if side in PACKAGES else Path(sys.executable)
            found = run_cell(python, case, side, seed, steps, left + OVERTIME_SECONDS)
        seconds = time.monotonic() - begun
        label = f"{number}/{len(todo)}  {case}, {side}, seed {seed}"
        if found is None:
            print(f"{label}: given up, time is up; the same command goes on", flush=True)
            return
        about = {"case": case, "side": side, "seed": seed, "steps": steps, "mode": mode, "machine": here}
        about |= {
            "commit": commit(),
            "time": time.strftime("%FT%TZ", time.gmtime()),
            "seconds": round(seconds, 1),
        }
        results.append(store, about | found)
        told = found.get("error") or f"{found['steps_per_second']:,.0f} steps/s"
        print(f"{label}: {told} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the cell is ended too
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; the same command goes on")
        sys.exit(130)
