"""The layers: what docs/architecture.md says is the import contract, and nothing imports in circles."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("clusterkit", "trainer")


def imports() -> dict[str, set[str]]:
    """By module, what it imports of ours anywhere in its text, also for types alone."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for name in (*PACKAGES, "clusterkit_rl")
        for path in (ROOT / name).rglob("*.py")
    }
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{each.name}" for each in node.names]
                names = [name if name in files else node.module for name in names]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            found[module] |= (files.keys() & names) - {module}
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other, in order; none where there are none."""
    done: set[str] = set()
    for start in graph:
        way, turns = [start], [iter(graph[start])]
        while way:
            following = next(turns[-1], None)
            if following is None:
                done.add(way.pop())
                turns.pop()
            elif following in way:
                return [*way[way.index(following) :], following]
            elif following not in done:
                way.append(following)
                turns.append(iter(graph.get(following, ())))
    return []


@pytest.mark.slow
def test_nothing_imports_in_circles() -> None:
    assert circle(imports()) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]


@pytest.mark.slow
def test_the_recipes_are_all_that_is_shared() -> None:
    across = {
        ".".join(name.split(".")[:2])
        for module, names in imports().items()
        for name in names
        if module.startswith("clusterkit") and name.startswith("trainer")
    }
    assert across == {"trainer.recipe"}


def drawn(package: str) -> list[list[str]]:
    """The layers of the picture, top to bottom."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(rf"^    {package}\n((?: {{8,}}.*\n)+)", text, re.MULTILINE)
    assert block is not None
    joined = re.sub(r"\|\n\s+", "| ", block[1])
    lines = [re.match(r"\s+(\w+(?: \| \w+)*)", line) for line in joined.splitlines()]
    return [sorted(line[1].split(" | ")) for line in lines if line]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_picture_is_the_contract(package: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == [package])
    assert drawn(package) == [sorted(layer.split(" | ")) for layer in layers]
