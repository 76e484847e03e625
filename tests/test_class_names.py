"""One public class name, one class, in the whole tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def classes() -> dict[str, list[str]]:
    """Returns where each public class is defined, by name."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in ("clusterkit", "trainer"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


@pytest.mark.slow
def test_no_class_name_is_given_twice() -> None:
    assert {name: places for name, places in classes().items() if len(places) > 1} == {}
