"""Which hosts a person's ssh configuration names: what one could type after `ssh`.

OpenSSH has no way to list them, so the files are read here; what a host means is still asked of `ssh -G`.
"""

from __future__ import annotations

import re
import shlex
from glob import glob
from pathlib import Path

from clusterkit.config.layers import home_folder

_LINE = re.compile(r"(?P<keyword>\w+)(?:\s*=\s*|\s+|(?=\"))(?P<rest>.*)")


def configured_hosts(config: Path | None = None) -> list[str]:
    """Names of `Host` lines without patterns, in the order of the files; empty where there is no file.

    Args:
        config: instead of ~/.ssh/config.
    """
    folder = (home_folder() or Path("/")) / ".ssh"
    return list(dict.fromkeys(_hosts(config or folder / "config", folder, set())))


def _hosts(file: Path, folder: Path, read: set[Path]) -> list[str]:
    """Of a file and those that it includes; one that was read already, or includes itself, tells no more."""
    hosts: list[str] = []
    if file in read:
        return hosts
    read.add(file)
    for words in _lines(file):
        keyword, names = words[0].lower(), words[1:]
        if keyword == "host":
            hosts += [name for name in names if not set(name) & set("*?!")]
        elif keyword == "include":
            for pattern in names:
                path = folder.parent / pattern[2:] if pattern.startswith("~/") else Path(pattern)
                root, rest = (folder, path) if not path.is_absolute() else (Path("/"), path.relative_to("/"))
                for included in sorted(glob(str(rest), root_dir=root)):  # noqa: PTH207 - takes what ssh takes
                    hosts += _hosts(root / included, folder, read)
    return hosts


def _lines(file: Path) -> list[list[str]]:
    """Keyword and arguments of each line; a file that cannot be read has none."""
    try:
        text = file.read_text("utf-8-sig", "replace")
    except OSError:
        return []
    lines = []
    for line in text.split("\n"):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            lines.append([match["keyword"], *shlex.split(match["rest"], comments=True)])
        except ValueError:  # an unbalanced quote: ssh itself will say so
            continue
    return lines
