"""The documentation says what the commands take, and the README's commands exist."""

import re
from pathlib import Path

import click
import typer

from clusterkit.cli.app import app

ROOT = Path(__file__).resolve().parent.parent


def commands() -> dict[str, click.Command]:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    return dict(group.commands)


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
        for name in re.findall(r"clusterkit ([a-z][a-z-]+)", page.read_text()):
            if name in _WORDS:
                continue
            assert name in known, f"{page.name}: clusterkit {name}"


# What stands behind "clusterkit" in a sentence.
_WORDS = {
    "and", "asks", "does", "imports", "is", "itself", "keeps", "knows", "names", "never", "on", "reads", "replaces",
    "runs", "ships", "takes", "was", "writes", "needs", "finds", "sets", "has", "will", "alone", "can", "checks",
}  # fmt: skip


def test_the_makefile_has_what_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md", "docs/index.md"):
        assert set(re.findall(r"^make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE)) <= targets
