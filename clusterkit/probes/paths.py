"""Paths as settings hold them, for a shell on the cluster. Pure."""

from __future__ import annotations

import re
import shlex

_VARIABLE = re.compile(r"\$(?:USER|HOME)\b|\$\{(?:USER|HOME)\}")


def shell_path(path: str) -> str:
    r"""A path from the configuration as one shell word: `~/`, $USER and $HOME are left to the shell.

    >>> shell_path("/share/$USER/my runs")
    '/share/"$USER"\'/my runs\''
    """
    words = []
    if path == "~" or path.startswith("~/"):
        words.append('"$HOME"')
        path = path[1:]
    position = 0
    for match in _VARIABLE.finditer(path):
        if match.start() > position:
            words.append(shlex.quote(path[position : match.start()]))
        words.append(f'"{match.group()}"')
        position = match.end()
    if position < len(path):
        rest = path[position:]
        words.append(shlex.quote(rest))
    return "".join(words)
