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


def imports(package: str) -> dict[str, set[str]]:
    """By module, what it imports of ours anywhere in its text, also for types alone."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for name in PACKAGES
        for path in (ROOT / name).rglob("*.py")
    }
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in files.items():
        if module.partition(".")[0] != package:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{each.name}" for each in node.names]
                names = [name if name in files else node.module for name in names]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            found[module] |= {name for name in names if name.partition(".")[0] in PACKAGES} - {module}
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
@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_imports_in_circles(package: str) -> None:
    assert circle(imports(package)) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]


@pytest.mark.slow
def test_the_recipes_are_all_that_is_shared() -> None:
    across = {
        name for names in imports("clusterkit").values() for name in names if name.startswith("trainer")
    }
    assert {".".join(name.split(".")[:2]) for name in across} == {"trainer.recipe"}
    assert not [name for names in imports("trainer").values() for name in names if "clusterkit" in name]


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
