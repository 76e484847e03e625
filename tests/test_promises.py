"""Each promise of docs/promises.md has tests that are there, run by the command that the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.promises import Promise, promises

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = "tests/cluster/"


def fault(test: str) -> str:
    """What is wrong with a test that is named `tests/file.py::function`, or nothing."""
    file, _, name = test.partition("[")[0].partition("::")
    if not (ROOT / file).is_file():
        return f"{file} is gone"
    if not name:
        return ""
    body = ast.parse((ROOT / file).read_bytes()).body
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        return f"{test} is gone"
    marks = [ast.unparse(mark) for mark in found[-1].decorator_list]
    marks += [
        ast.unparse(node)
        for node in body
        if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    ]
    left_out = [
        mark for mark in marks if re.search(r"mark\.(exhaustive|skip\b|xfail)", mark) and "param(" not in mark
    ]
    return f"{test} is not run: {left_out}" if left_out else ""


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.words)
def test_a_promise_has_tests_that_are_run(promise: Promise) -> None:
    """One of them by `make test`, unless it takes a cluster."""
    _, here, there = promise
    assert [words for test in (*here, *there) if (words := fault(test))] == []
    assert not [test for test in here if test.startswith(CLUSTER)]
    assert here or all(test.startswith(CLUSTER) for test in there)


def test_a_test_that_is_gone_or_left_out_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(
        "@pytest.mark.exhaustive\ndef test_left_out(): ...\n@pytest.mark.slow\ndef test_run(): ...\n"
    )
    assert fault(f"{file}::test_run") == ""
    assert "is not run" in fault(f"{file}::test_left_out")
    assert "is gone" in fault(f"{file}::test_renamed")
    file.write_text("pytestmark = [pytest.mark.exhaustive]\ndef test_run(): ...\n")
    assert "is not run" in fault(f"{file}::test_run")
    file.unlink()
    assert "is gone" in fault(f"{file}::test_run")
