"""What runs on a node starts with any Python from 3.8 and nothing but its standard library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from clusterkit import node

PROGRAMS = sorted(Path(node.__file__).parent.glob("[!_]*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_starts_with_nothing_but_an_old_python(program: Path) -> None:
    tree = ast.parse(program.read_text(), feature_version=(3, 8))
    imported = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
