"""`clusterkit skill`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from clusterkit import __version__
from clusterkit.backends.job_script import templates
from clusterkit.cli.ui.console import note
from clusterkit.errors import ConfigError
from clusterkit.folders import replace_file
from clusterkit.resources import DOCS


def skill(
    out: Annotated[
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
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, text.encode(), mode=0o644)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}", hint="choose another file") from error
    note(f"{out} is written; run this again after an update of clusterkit")
