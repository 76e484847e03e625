"""`clusterkit docs` and `clusterkit skill`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from clusterkit import __version__
from clusterkit.backends.job_script import templates
from clusterkit.cli.ui.console import note, out, say
from clusterkit.config.layers import nearest
from clusterkit.errors import ConfigError
from clusterkit.folders import replace_file
from clusterkit.resources import DOCS


def docs(
    name: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="Name of the page; all names if left out.")
    ] = None,
) -> None:
    """Show a page of the documentation.

    Markdown, which is laid out on a terminal.

    Examples:
      clusterkit docs              # the names of the pages
      clusterkit docs own-project

    See also: clusterkit skill
    """
    pages = {file.stem: file for file in sorted(DOCS.glob("*.md"))}
    if name is None:
        for each, file in pages.items():
            say(f"{each:<16} {file.read_text(encoding='utf-8').partition(chr(10))[0].removeprefix('# ')}")
        return
    name = name.removesuffix(".md")
    if name not in pages:
        raise ConfigError(f"there is no page {name!r}", hint=nearest(name, pages))
    text = pages[name].read_text(encoding="utf-8")
    if not out.is_terminal:
        sys.stdout.write(text)
        return
    from rich.markdown import Markdown

    out.print(Markdown(text, hyperlinks=False))


def skill(
    to: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it there, where your agent reads skills."),
    ] = None,
) -> None:
    """Print a one-page guide to this version for coding agents.

    Markdown that says which commands to use, what they print and what needs your consent.

    Examples:
      clusterkit skill                              # print it
      clusterkit skill --out agents/clusterkit.txt  # where an agent reads it

    See also: json.md
    """
    text = templates().get_template("skill.txt.j2").render(version=__version__, docs=DOCS)
    if to is None:
        sys.stdout.write(text)
        return
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        replace_file(to, text.encode(), mode=0o644)
    except OSError as error:
        raise ConfigError(f"{to} cannot be written: {error.strerror}", hint="choose another file") from error
    note(f"{to} is written; run this again after an update of clusterkit")
