"""The documentation says what the commands take, and the README's commands exist."""

import re
from pathlib import Path
from typing import Any

import typer

from clusterkit.cli.app import app

ROOT = Path(__file__).resolve().parent.parent


def commands() -> dict[str, Any]:
    # Typer brings a click of its own, or uses the installed one: only the shape is the same.
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_every_option_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    missing = [
        f"{name} {option}"
        for name, command in commands().items()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and option not in text
    ]
    assert missing == []


def test_every_clusterkit_command_in_the_docs_exists() -> None:
    known = commands()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        code = "\n".join(
            re.findall(r"^```.*?^```|^    .*?$|`[^`]+`", page.read_text(), re.MULTILINE | re.DOTALL)
        )
        for name in re.findall(r"(?:^ *|`)clusterkit ([a-z][a-z-]+)", code, re.MULTILINE):
            assert name in known, f"{page.name}: clusterkit {name}"


def test_the_makefile_has_what_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md", "docs/index.md"):
        assert set(re.findall(r"^make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE)) <= targets
