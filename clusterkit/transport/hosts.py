"""Which hosts a person's ssh configuration names: what one could type after `ssh`.

OpenSSH has no way to list them, so the files are read here; what a host means is still asked of `ssh -G`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from clusterkit.config.sources import home_folder

_DEEPEST = 16
"""Files that include files; OpenSSH's own limit (readconf.c, READCONF_MAX_DEPTH)."""


def configured_hosts(config: Path | None = None) -> list[str]:
    """Names of `Host` lines without patterns, in the order of the files; empty where there is no file.

    Args:
        config: instead of ~/.ssh/config.
    """
    folder = (home_folder() or Path("/")) / ".ssh"
    return list(dict.fromkeys(_hosts(config or folder / "config", folder, 0)))


def _hosts(file: Path, folder: Path, depth: int) -> list[str]:
    found: list[str] = []
    for words in _lines(file):
        keyword, names = words[0].lower(), words[1:]
        if keyword == "host":
            found += [name for name in names if not set(name) & set("*?!")]
        elif keyword == "include" and depth < _DEEPEST:
            for pattern in names:
                path = folder.parent / pattern[2:] if pattern.startswith("~/") else Path(pattern)
                root, rest = (folder, path) if not path.is_absolute() else (Path("/"), path.relative_to("/"))
                for included in sorted(root.glob(str(rest))):
                    found += _hosts(included, folder, depth + 1)
    return found


def _lines(file: Path) -> list[list[str]]:
    """Keyword and arguments of each line; a file that cannot be read has none."""
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if not keyword or keyword.startswith("#"):
            continue
        try:
            found.append([keyword, *shlex.split(rest, comments=True)])
        except ValueError:  # an unbalanced quote: ssh itself will say so
            continue
    return found
