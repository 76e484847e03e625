"""The site's own shell lines, `prelude` of a cluster, for scripts that run on its nodes. Pure.

`templates/prelude.sh` holds the one way to run them, and what it gives back.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from clusterkit.resources import resource


def fragment(lines: Sequence[str]) -> str:
    """Returns the shell functions and the lines, for a script that `bash -p` starts."""
    functions = resource("templates", "prelude.sh").read_text(encoding="utf-8")
    # Indented, as others look for lines of job.sh that begin with a name. One setting may hold several lines.
    parts = "".join(f"  {shlex.quote(part)}\n" for line in lines for part in line.split("\n"))
    return f"{functions}\nprelude_lines=(\n{parts})\n"
