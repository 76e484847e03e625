"""The help: every command has its place, and examples that work as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from clusterkit.cli.app import app
from clusterkit.cli.examples import GUIDES, PANELS
from clusterkit.cli.guide import GROUPS, epilog, long_name
from clusterkit.resources import page
from tests.documented import commands

GROUP: Any = typer.main.get_command(app)
COMMANDS = commands()
MANY = 10
"""With more options than this, the help lists them in groups."""
NAV = (Path(__file__).resolve().parents[2] / "mkdocs.yml").read_text()


def test_every_command_has_a_guide() -> None:
    assert set(GUIDES) == set(COMMANDS), "add it to clusterkit/cli/examples.py"
    assert {guide.panel for guide in GUIDES.values()} == set(PANELS)


@pytest.mark.parametrize("name", GUIDES)
def test_the_examples_of_a_command(name: str) -> None:
    guide, command = GUIDES[name], COMMANDS[name]
    assert 2 <= len(guide.examples) <= 4 or name == "export"
    for arguments, _ in guide.examples:
        command.make_context(name, shlex.split(arguments))
        if hasattr(command, "commands"):
            word, *rest = shlex.split(arguments)
            command.commands[word].make_context(word, rest)
    assert guide.see
    for other in guide.see:
        assert other in COMMANDS or f": {other}\n" in NAV, f"{other} is neither a command nor a page"
        assert other in COMMANDS or f"  {page(other)}" in epilog(name).splitlines()
    assert name not in guide.see


@pytest.mark.parametrize("name", GUIDES)
def test_the_help_of_a_command(name: str) -> None:
    command = COMMANDS[name]
    text = command.get_help(command.make_context(name, [], resilient_parsing=True))
    assert all(
        len(line) <= 80 for line in text.splitlines() if not line.lstrip().startswith("/")
    )  # a page's path
    for line in epilog(name).splitlines()[1:]:
        if line.startswith("  clusterkit"):
            assert f"  {line}\n" in f"{text}\n"  # neither wrapped nor joined to others
    assert all(f"    {page(one)}\n" in f"{text}\n" for one in GUIDES[name].see if one not in GUIDES)
    assert not re.search(r"<\w+(\[\w+\])?>", text), "a Python type"


@pytest.mark.parametrize("name", GUIDES)
def test_a_command_begins_its_help_with_what_the_list_of_commands_says(name: str) -> None:
    assert " ".join(COMMANDS[name].help.split("\n\n")[0].split()) == GUIDES[name].short


@pytest.mark.parametrize("name", GUIDES)
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
    assert (
        len({line.index(line[16:].strip()) for line in text.splitlines() if re.match(r"  [a-z-]+  ", line)})
        == 1
    )
