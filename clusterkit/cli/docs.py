"""`clusterkit docs`."""

from __future__ import annotations

import difflib
import sys
from typing import Annotated

import typer

from clusterkit.cli.ui.console import out, say
from clusterkit.errors import ConfigError
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
        close = difflib.get_close_matches(name, pages, n=1)
        hint = f"did you mean {close[0]}?" if close else "`clusterkit docs` lists the pages"
        raise ConfigError(f"there is no page {name!r}", hint=hint)
    text = pages[name].read_text(encoding="utf-8")
    if not out.is_terminal:
        sys.stdout.write(text)
        return
    from rich.markdown import Markdown

    out.print(Markdown(text, hyperlinks=False))
