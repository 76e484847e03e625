"""The commands that the pages show, as a person would type them."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

from clusterkit.cli.app import app, load
from clusterkit.cli.catalogue import SHORT
from clusterkit.errors import ClusterkitError

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^```(?s:.*?)^```|(?:^ {4}.*\n?)+", re.MULTILINE)
_NOT_PROSE = re.compile(
    r"^```(?s:.*?)^```"
    r"|^<!-- Made by [^\n]*-->(?s:.*?)<!-- The end of what is made. -->"
    r"|^<!-- (paper-\w+) -->(?s:.*?)<!-- end of \1 -->",
    re.MULTILINE,
)
"""Code, and tables between the marks of the program that makes them."""


@dataclass(frozen=True)
class Shown:
    """A line of a code block that begins with a command of ours."""

    page: str
    line: str

    @property
    def synopsis(self) -> bool:
        """Whether it says what may be given rather than what to type."""
        return bool(re.search(r"[\[|]| \.\.\.$|<", re.sub(r"'[^']*'|\"[^\"]*\"", "", self.line)))

    @property
    def words(self) -> list[str]:
        """The command and its arguments."""
        return shlex.split(self.line)[1:]


@cache
def pages() -> list[Path]:
    """The README, then all pages in the order of the navigation, then those that are in none."""
    navigation = re.findall(r": ([a-z-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    named = [ROOT / "docs" / name for name in navigation]
    return [ROOT / "README.md", *named, *sorted(set((ROOT / "docs").glob("*.md")) - set(named))]


def words_of(page: Path) -> int:
    """The words of a page, as blanks separate them, without code and the tables that a program makes."""
    return len(_NOT_PROSE.sub("", page.read_text()).split())


def fences(page: str, language: str) -> list[str]:
    """The texts of a page's code blocks in a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


@cache
def shown(program: str = "clusterkit") -> list[Shown]:
    """Every line of a code block that calls a program, its comment cut off."""
    return [
        Shown(page.name, line)
        for page in pages()
        for block in _BLOCK.findall(page.read_text())
        for line in _commands(block, program)
    ]


def _commands(block: str, program: str) -> Iterator[str]:
    for line in block.splitlines():
        text = line.strip().removeprefix("$ ")
        if text.startswith(f"{program} "):
            yield re.split(r"\s+#|\s{2,}", text)[0]


@cache
def group() -> Any:
    """The command line as click knows it; Typer brings a click of its own, or uses the installed one."""
    return typer.main.get_command(app)


@cache
def commands() -> dict[str, Any]:
    """Every command by its whole name, also those in groups."""
    return {name: load(name) for name in SHORT}


def called(words: Sequence[str]) -> tuple[str, list[str]]:
    """The name of the command that a line calls, and the rest."""
    count = 2 if " ".join(words[:2]) in SHORT else 1
    return " ".join(words[:count]), words[count:]


def options(command: Any) -> set[str]:
    """The long names of a command's options, but for hidden ones."""
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    names = [name for one in shown for name in (*one.opts, *one.secondary_opts)]
    return {name for name in names if name.startswith("--")} | {"--help"}


def invoke(words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process: exit code, standard output, the error it ended with."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    code, error = 0, ""
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = app(words, standalone_mode=False) or 0
        except ClusterkitError as fault:
            code, error = fault.exit_code, fault.cause
        except SystemExit as end:
            code = int(end.code or 0)
    printed.seek(0)
    return code, printed.read(), error
