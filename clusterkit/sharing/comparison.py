"""Compares the descriptions and the code of two runs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from clusterkit.sharing.description import Description


@dataclass(frozen=True)
class Difference:
    """A value that differs; None for a run that lacks it."""

    section: str
    name: str
    a: Any
    b: Any


class Changed(NamedTuple):
    """Changed lines of one file in a diff; None for a binary file."""

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True)
class ComparedCode:
    """How the code of two runs differs, according to git."""

    between: tuple[Changed, ...] | None = ()
    """From A's commit to B's; None when the local repository lacks one of them."""
    a: tuple[Changed, ...] = ()
    """Uncommitted changes when A was submitted."""
    b: tuple[Changed, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The comparison of two runs, A and B."""

    a: Description
    b: Description
    differences: tuple[Difference, ...]
    code: ComparedCode
    same: int
    """Number of equal values."""


def compare(a: Description, b: Description, code: ComparedCode) -> Comparison:
    """Returns all differing values, section by section; `results` only if both runs have some."""
    names = dict.fromkeys([*a.values, *b.values])
    if not (a.has_results and b.has_results):
        names = {name: None for name in names if name[0] != "results"}
    differences = [
        Difference(section, name, a.values.get((section, name)), b.values.get((section, name)))
        for section, name in names
        if a.values.get((section, name)) != b.values.get((section, name))
    ]
    same = len(names) - len(differences)
    words = list(_words(a.words, b.words))
    order = list(dict.fromkeys(section for section, _ in names))
    if words and "arguments" not in order:
        order.insert(order.index("profile") + 1 if "profile" in order else len(order), "arguments")
    ordered = sorted([*differences, *words], key=lambda difference: order.index(difference.section))
    return Comparison(a, b, tuple(ordered), code, same)


def _words(a: Sequence[str], b: Sequence[str]) -> Iterator[Difference]:
    """Yields the differing ranges of two argument lists."""
    for kind, a_from, a_to, b_from, b_to in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal":
            name = f"argv[{a_from}]" if a_to - a_from <= 1 else f"argv[{a_from}:{a_to}]"
            yield Difference("arguments", name, _joined(a[a_from:a_to]), _joined(b[b_from:b_to]))


def _joined(words: Sequence[str]) -> str | None:
    return shlex.join(words) if words else None


def changed_in(diff: str) -> tuple[Changed, ...]:
    r"""Returns the files in the output of `git diff`, with their added and removed lines.

    >>> changed_in("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-old\n+new\n+more\n")
    (Changed(path='x', added=2, removed=1),)
    """
    changes: list[Changed] = []
    for chunk in f"\n{diff}".split("\ndiff --git ")[1:]:
        head, *hunks = chunk.split("\n@@ ")
        first = head.partition("\n")[0]
        path = first[len(first) // 2 + 1 :].removeprefix("b/")  # without renames both halves name one file
        lines = [line for hunk in hunks for line in hunk.split("\n")[1:]]
        text = bool(hunks) or "\nBinary files " not in head
        if "\ndeleted file mode " in head and text and not hunks:  # the diff omits its text
            changes.append(Changed(path, 0, None))
            continue
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") for line in lines)
        changes.append(Changed(path, added if text else None, removed if text else None))
    return tuple(changes)


def as_json(comparison: Comparison) -> Mapping[str, Any]:
    """Returns the comparison as plain values; see docs/json.md."""
    code = comparison.code
    return {
        "schema": 1,
        "a": {"run_id": comparison.a.run_id, "where": comparison.a.where},
        "b": {"run_id": comparison.b.run_id, "where": comparison.b.where},
        "same": comparison.same,
        "differences": [
            {"section": each.section, "name": each.name, "a": _plain(each.a), "b": _plain(each.b)}
            for each in comparison.differences
        ],
        "code": {
            name: None if files is None else [each._asdict() for each in files]
            for name, files in (("between", code.between), ("a", code.a), ("b", code.b))
        },
    }


def _plain(value: Any) -> Any:
    return vars(value) if hasattr(value, "__dataclass_fields__") else value
