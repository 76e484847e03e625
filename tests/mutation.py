"""Whether tests notice small faults in critical code: a mutation run, by hand, in a checkout of its own.

    git worktree add ../faults && cd ../faults && make .venv/.dev
    .venv/bin/python -m tests.mutation /tmp/before.jsonl                          # 300 faults
    .venv/bin/python -m tests.mutation /tmp/after.jsonl --before /tmp/before.jsonl    # the same ones later

Each fault is written into its file, so that commands and jobs have it; the tests of its part run up to the
first that fails, in a process forked from one that has imported PyTorch and the rest.
"""

from __future__ import annotations

import argparse
import ast
import copy
import ctypes
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

PARTS = {  # critical code, and the tests that are to notice its faults
    "clusterkit/backends/submission.py": "backends/test_submission.py probes/test_answers.py "
    "commands/test_refused.py",
    "clusterkit/runs/state.py": "runs/test_state.py runs/test_verdict.py runs/test_record.py",
    "clusterkit/results": "results/test_pull.py results/test_hostile.py commands/test_storage_clean.py",
    "clusterkit/backends/slurm": "backends/slurm/test_*.py backends/test_[acg]*.py backends/test_script.py "
    "runs/test_state.py probes/test_answers.py",
    "trainer/checkpoint": "trainer/test_checkpoint*.py trainer/test_model.py",
    "trainer/replay": "trainer/test_replay*.py trainer/test_transitions.py",
}
SIZE, SEED = 300, 15
FOLDER = Path("/tmp/mutation")  # short: sockets lie below it
PYTEST = ["-qx", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--basetemp={FOLDER}/t", "--timeout=90"]
PYTEST += ["-m", "not cluster and not exhaustive"]
SECONDS = 400  # for all tests of a fault
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl: what tests leave behind becomes a child of this process
_HALF = {ast.Eq: ast.NotEq, ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_HALF |= {ast.And: ast.Or, ast.Add: ast.Sub, ast.Mult: ast.FloorDiv}
SWAPS: dict[type, type] = {**_HALF, **{other: one for one, other in _HALF.items()}}

Mutant = dict[str, Any]  # where, `operator`, what is `old` and `new`, and the whole line's `text`


def mutants(part: str) -> Iterator[Mutant]:
    path = Path(part)
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        source = file.read_text()
        lines = source.splitlines(keepends=True)
        for node in _nodes(ast.parse(source)):
            for operator, place, new in _faults(node):
                text, old = lines[place.lineno - 1], ast.get_source_segment(source, place)
                column = len(text.encode()[: place.col_offset].decode())
                fault = {"operator": operator, "old": old, "new": new, "text": text.strip()}
                yield {"part": part, "file": str(file), "line": place.lineno, "column": column, **fault}


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Without annotations, decorators and docstrings, and without f-strings, which tell no columns."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not docstring and not isinstance(child, ast.JoinedStr):
                yield child
                yield from _nodes(child)


def _faults(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """What each fault of a node is called, what it replaces, and by what words."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            yield "compare", node, _changed(node, ops=[SWAPS[type(operator)]()])
        case ast.BoolOp() | ast.BinOp() if type(node.op) in SWAPS:
            yield "operator", node, _changed(node, op=SWAPS[type(node.op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield "no not", node, f"({ast.unparse(node.operand)})"
        case ast.Constant(value=int() as number):
            yield "number", node, str(not number if isinstance(number, bool) else number + 1)
        case ast.Constant(value=str() as word) if word and " " not in word:
            yield "word", node, repr(word + "!")
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            yield "returns None", node, "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield "left out", node, "pass"
    test = getattr(node, "test", None)
    if isinstance(test, ast.expr) and not isinstance(node, ast.Assert):
        yield "condition", test, f"(not ({ast.unparse(test)}))"


def _changed(node: ast.AST, **fields: object) -> str:
    other = copy.copy(node)
    vars(other).update(fields)
    return f"({ast.unparse(other)})"


def found_again(mutant: Mutant) -> Mutant | None:
    """The same fault of a line with the same text, best at the same place."""
    words = ("operator", "old", "new", "text")
    same = [m for m in mutants(mutant["part"]) if all(m[word] == mutant[word] for word in words)]
    where = ("file", "line", "column")
    return min(same, key=lambda m: [m[word] != mutant[word] for word in where], default=None)


def tested(mutant: Mutant) -> dict[str, str]:
    """The status of a mutant, and the first test that failed."""
    path = Path(mutant["file"])
    source = path.read_text()
    begin = sum(map(len, source.splitlines(keepends=True)[: mutant["line"] - 1])) + mutant["column"]
    try:
        path.write_text(source[:begin] + mutant["new"] + source[begin + len(mutant["old"]) :])
        _forget(path)
        patterns = PARTS[mutant["part"]].split()
        return _in_a_child(
            [str(file) for pattern in patterns for file in sorted(Path("tests").glob(pattern))]
        )
    finally:
        subprocess.run(["git", "checkout", "-q", "--", str(path)], check=True)
        _forget(path)


def _forget(path: Path) -> None:
    """Bytecode of a file of the same second and size would be taken for it."""
    for file in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        file.unlink()


class _First:
    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed = self.failed or (report.nodeid if report.failed else "")

    pytest_collectreport = pytest_runtest_logreport


def _in_a_child(tests: list[str]) -> dict[str, str]:
    answer = FOLDER / "answer"
    answer.write_text(json.dumps({"status": "timed out"}))
    process = os.fork()
    if process == 0:
        os.setsid()
        with (FOLDER / "log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        pytest, first = importlib.import_module("pytest"), _First()
        code = int(pytest.main([*PYTEST, *tests], plugins=[first]))
        status = "survived" if code == 0 else "killed"
        answer.write_text(json.dumps({"status": status, "by": first.failed or f"pytest's code {code}"}))
        os._exit(0)
    end = time.monotonic() + SECONDS
    while os.waitpid(process, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.02)
    while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with suppress(OSError):
            os.kill(int(children[0]), signal.SIGKILL)
            os.waitpid(int(children[0]), 0)
    shutil.rmtree(FOLDER / "t", ignore_errors=True)
    return dict(json.loads(answer.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--before", type=Path, help="results to compare with, of the same faults")
    words = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's & has ignored
    for name in ("pytest", "hypothesis", "clusterkit.cli.app", "trainer.train"):
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("clusterkit", "trainer")]:
        del sys.modules[name]  # what they have imported stays
    dice = random.Random(SEED)
    chosen = [m for part in PARTS for m in dice.sample(list(mutants(part)), SIZE // len(PARTS))]
    if words.before:
        chosen = [json.loads(line) for line in words.before.read_text().splitlines()]
    count: Counter[tuple[str, str]] = Counter()
    for mutant in chosen:
        here = found_again(mutant)
        found = tested(here) if here else {"status": "not there any more"}
        with words.results.open("a") as file:
            file.write(json.dumps({**mutant, **found}) + "\n")
        count[mutant["part"], found["status"]] += 1
        if found["status"] != "killed":
            print(found["status"], *(mutant.get(word, "") for word in ("file", "line", "old", "new", "by")))
    for (part, status), number in sorted(count.items()):
        print(f"{part}: {number} {status}")


if __name__ == "__main__":
    main()
