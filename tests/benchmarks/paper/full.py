"""Runs of docs/paper.md at full length, in pieces that a limit or a signal ends and any machine goes on with.

    python -m tests.benchmarks.paper.full list
    python -m tests.benchmarks.paper.full run ROW --work FOLDER [--seed S] [--minutes M] [--pieces N]
    python -m tests.benchmarks.paper.full collect FOLDER_OR_JSON...
    python -m tests.benchmarks.paper.full page
    python -m tests.benchmarks.paper.full pack RUN_DIR FILE [--after FILE]
    python -m tests.benchmarks.paper.full unpack FILE RUN_DIR

`run` is the one command that repeats a row. It may be stopped and started again at any time: SIGTERM,
Ctrl-C and the end of a piece write a checkpoint, and a killed run goes on from its last one. `collect` keeps
what runs have told so far in docs/paper-full.json, and `page` makes tables and pictures of docs/paper.md of
that. `pack` and `unpack` take a run to another machine, to the bit.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.paper.full_page import page
from tests.benchmarks.paper.pieces import ROOT, run_piece
from tests.benchmarks.paper.record import RESULTS, collect, runs
from tests.benchmarks.paper.rows import ROWS, Row
from tests.benchmarks.paper.travel import pack, unpack
from trainer import arguments
from trainer.preemption import EXIT_REQUEUE


def commit() -> str:
    """The commit of the code here, with a mark if files differ from it.

    Raises:
        SystemExit: there is no repository to ask.
    """
    git = ["git", "-C", str(ROOT)]
    asked = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if asked.returncode:
        raise SystemExit("this is no git repository; say with --commit which code it is")
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode
    return asked.stdout.strip() + ("-changed" if changed else "")


def run(given: argparse.Namespace) -> int:
    """Runs the seeds of a row one after the other, in pieces; returns the exit code of the last piece."""
    row: Row = ROWS[given.row]
    code, left = 0, given.pieces
    for seed in given.seed or row.seeds:
        run_dir = given.work.resolve() / f"{row.name}-{seed}"
        argv = row.command(seed, run_dir)
        if given.dry_run:
            print(shlex.join(argv))
            continue
        code = EXIT_REQUEUE
        while code in (EXIT_REQUEUE, -signal.SIGKILL) and left != 0:
            code = run_piece(argv, run_dir, 60 * given.minutes, given.commit or commit(), row.kill_at)
            left -= 1
        if code:
            break
    return code


def show() -> None:
    """Prints each row with its command, and how far its runs have come."""
    held = {(one["row"], one["seed"]): one for one in runs()}
    for row in ROWS.values():
        print(f"{row.name}: {row.recipe}, {row.steps:,} steps, {row.num_envs} environments, {row.device}")
        print(f"  python -m tests.benchmarks.paper.full run {row.name} --work FOLDER")
        for seed in row.seeds:
            one = held.get((row.name, seed))
            last = one["pieces"][-1]["end"] if one else "not run"
            print(f"  seed {seed}: {last}" + (f", {one['training']['step'][-1]:,} steps" if one else ""))


def main() -> None:
    """Do what the words say."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.paper.full",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    running = commands.add_parser("run")
    running.add_argument("row", choices=ROWS)
    running.add_argument("--work", type=Path, required=True, metavar="FOLDER", help="for the folders of runs")
    running.add_argument("--seed", type=arguments.seeds, default=(), metavar="S", help="those of the row")
    running.add_argument("--minutes", type=float, default=20, metavar="M", help="of a piece at most (20)")
    running.add_argument("--pieces", type=int, default=-1, metavar="N", help="how many now (to the end)")
    running.add_argument("--commit", help="of the code, where there is no repository to ask")
    running.add_argument("--dry-run", action="store_true", help="print the commands of the trainer")
    collecting = commands.add_parser("collect")
    collecting.add_argument("source", type=Path, nargs="+", help="folders of runs, or results of elsewhere")
    collecting.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where they go")
    commands.add_parser("page")
    packing = commands.add_parser("pack")
    packing.add_argument("run_dir", type=Path)
    packing.add_argument("file", type=Path)
    packing.add_argument("--after", type=Path, metavar="FILE", help="an earlier one that is there already")
    unpacking = commands.add_parser("unpack")
    unpacking.add_argument("file", type=Path)
    unpacking.add_argument("run_dir", type=Path)
    given = parser.parse_args()
    match given.command:
        case "list":
            show()
        case "run":
            sys.exit(run(given))
        case "collect":
            collect(given.source, given.results)
        case "page":
            page(runs())
        case "pack":
            pack(given.run_dir, given.file, given.after)
        case "unpack":
            print(unpack(given.file, given.run_dir))


if __name__ == "__main__":
    main()
