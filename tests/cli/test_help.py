"""The help: every command has its place, and examples that work as they stand."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from clusterkit.cli.app import app
from clusterkit.cli.catalogue import PANELS, SHORT
from clusterkit.cli.guide import GROUPS, long_name
from clusterkit.resources import page
from tests.documented import commands

GROUP: Any = typer.main.get_command(app)
COMMANDS = commands()
SINGLE = [name for name in SHORT if not hasattr(COMMANDS[name], "commands")]
MANY = 10
"""With more options than this, the help lists them in groups."""
NAV = (Path(__file__).resolve().parents[2] / "mkdocs.yml").read_text()


@pytest.mark.parametrize("name", SINGLE)
def test_the_examples_of_a_command(name: str) -> None:
    examples, see = end_of_help(name)
    assert 2 <= len(examples) <= 4 or name == "export"
    for line in examples:
        arguments = line.removeprefix(f"clusterkit {name}")
        COMMANDS[name].make_context(name, shlex.split(arguments, comments=True))
    named = {other.removeprefix("clusterkit ") for other in see}
    assert named <= {*COMMANDS, *re.findall(r": ([a-z-]+\.md)\n", NAV)}, "neither a command nor a page"
    assert name not in named


@pytest.mark.parametrize("name", SHORT)
def test_the_help_of_a_command(name: str) -> None:
    command = COMMANDS[name]
    text = command.get_help(command.make_context(name, [], resilient_parsing=True))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not re.search(r"<\w+(\[\w+\])?>", text), "a Python type"
    if name in SINGLE:
        examples, see = end_of_help(name)
        assert all(f"    {line}\n" in text for line in examples)  # neither wrapped nor joined to others
        assert all(page(other) in " ".join(text.split()) for other in see if other.endswith(".md"))


def end_of_help(name: str) -> tuple[list[str], list[str]]:
    """The lines of a command's examples, and what its docstring refers to."""
    docstring = inspect.getdoc(COMMANDS[name].callback) or ""
    examples, _, see = docstring.partition("\n\nExamples:\n")[2].partition("\n\nSee also: ")
    lines = [line.strip() for line in examples.splitlines()]
    return [line for line in lines if not line.startswith("#")], see.split(", ")


@pytest.mark.parametrize("name", SHORT)
def test_a_command_begins_its_help_with_what_the_list_of_commands_says(name: str) -> None:
    assert " ".join(COMMANDS[name].help.split("\n\n")[0].split()) == SHORT[name]


@pytest.mark.parametrize("name", SHORT)
def test_many_options_stand_in_groups_and_each_in_one(name: str) -> None:
    long = [
        long_name(one)
        for one in COMMANDS[name].params
        if one.param_type_name == "option" and long_name(one) != "--config"
    ]
    grouped = [option for options in GROUPS.get(name, {}).values() for option in options.split()]
    assert sorted(grouped) == (sorted(long) if len(long) + 1 > MANY else [])


def test_the_commands_stand_in_groups() -> None:
    text = GROUP.get_help(GROUP.make_context("clusterkit", [], resilient_parsing=True))
    found = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert found == ["Options", *PANELS]
    cut = re.findall(r"^  [a-z-]+  .*\.\.\.$", text, re.MULTILINE)
    assert not cut, "a command's first sentence is longer than 80 columns hold"
    rows = [line for line in text.splitlines() if re.match(r"  [a-z][a-z-]+  ", line)]
    assert len({line.index(line[16:].strip()) for line in rows}) == 1
