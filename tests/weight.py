"""How much code there is, what it knows of a seam, and how far a submission walks through it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SLURM = re.compile(
    r"\b(?:slurm|sbatch|squeue|sacct|scontrol|sacctmgr|sinfo|srun|scancel|gres)\b|(?:slurm|sbatch)_|_(?:slurm|sbatch)",
    re.IGNORECASE,
)

RUNTIMES = re.compile(r"\b(?:apptainer|singularity|pyxis|enroot)\b|--nv\b", re.IGNORECASE)
WALK = """
import atexit, json, sys

root, entered, pairs = sys.argv.pop(1), set(), set()

def watch(frame, event, argument):
    here = frame.f_code.co_filename
    is_function = frame.f_code.co_flags & 1 and not frame.f_code.co_name.startswith("<")
    if event != "call" or not is_function or not here.startswith(root):
        return
    entered.add(here)
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(root):
        caller = caller.f_back
    if caller is not None and caller.f_code.co_filename != here:
        pairs.add((caller.f_code.co_filename, here))

def report():
    sys.setprofile(None)
    modules = sum(name.partition(".")[0] == "clusterkit" for name in sys.modules)
    print(json.dumps([len(entered), len(pairs), modules]))

from clusterkit.cli.app import main
atexit.register(report)
sys.setprofile(watch)
main()
"""


class Weight(NamedTuple):
    """Of a package."""

    files: int
    code: int
    """Lines that are not blank, comment or docstring."""
    imports: float
    """Their share that imports."""


class Walk(NamedTuple):
    """Of a command."""

    files: int
    """Files of clusterkit whose functions it calls."""
    pairs: int
    """Pairs of files of which one calls into the other."""
    modules: int
    """Modules of clusterkit that it has imported at its end."""


def weight(package: str, *, without: Iterable[Path] = ()) -> Weight:
    """Weighs the Python files of a package.

    Args:
        package: a folder of the project.
        without: folders and files that are left out.
    """
    files = code = imports = 0
    for path in _files(package, without):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        files += 1
        code += len(_code_lines(text, tree))
        imports += sum(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
        )
    return Weight(files, code, imports / code)


def files_with(words: re.Pattern[str], *, outside: str) -> list[str]:
    """Returns the files of clusterkit outside a folder whose code has certain words."""
    files = []
    for path in _files("clusterkit", [ROOT / outside]):
        text = path.read_text(encoding="utf-8")
        if words.search(text) and any(words.search(line) for line in _code_lines(text, ast.parse(text))):
            files.append(path.relative_to(ROOT).as_posix())
    return files


def walk_of_submit(folder: Path) -> Walk:
    """Submits a program of its own to the local cluster.

    Args:
        folder: empty, for the project.
    """
    (folder / "train.py").write_text("print('done')\n")
    (folder / "clusterkit.toml").write_text('[project]\nprogram = ["python", "train.py"]\n')
    command = (
        "submit",
        "--cluster",
        "local",
        "--profile",
        "local-demo",
        "--seed",
        "3",
        "--",
        "--seed={seed}",
    )
    run = subprocess.run(
        [sys.executable, "-c", WALK, f"{ROOT / 'clusterkit'}/", *command],
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return Walk(*json.loads(run.stdout.splitlines()[-1]))


def _files(package: str, without: Iterable[Path]) -> Iterator[Path]:
    for path in sorted((ROOT / package).rglob("*.py")):
        if not any(path.is_relative_to(other) for other in without):
            yield path


def _code_lines(text: str, tree: ast.AST) -> list[str]:
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                docstrings.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return [
        line.partition("  #")[0]
        for number, line in enumerate(text.splitlines(), 1)
        if number not in docstrings and line.strip() and not line.lstrip().startswith("#")
    ]
