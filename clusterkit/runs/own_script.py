"""Is the script that a program of the user's own names among the files that travel?"""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Sequence

from clusterkit.errors import ConfigError
from clusterkit.snapshots import Tree

_INTERPRETER = re.compile(r"(.*/)?(python[0-9.]*|(ba|z|da)?sh)")


def check_script(tree: Tree, argv: Sequence[str]) -> None:
    """Find out here what would else be found out when a job has waited for its turn.

    Args:
        tree: the project's files that travel; an empty one says nothing.
        argv: the program, which starts in the project folder.

    Raises:
        ConfigError: it names a script of the project that does not travel.
    """
    script = _script(argv)
    if not tree.files or script is None:
        return
    name = posixpath.normpath(script)
    parts = name.split("/")
    folders = {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    if folders.intersection(tree.files) or any(file.startswith(f"{name}/") for file in tree.files):
        return
    if (tree.root / name).exists():
        raise ConfigError(
            f"the program {script} stays here: git ignores it, `exclude` names it, or it looks like a secret",
            hint=f'include = ["/{name}"] in [project] lets it travel, unless `exclude` names it',
        )
    close = difflib.get_close_matches(name, tree.files, n=1)
    raise ConfigError(
        f"the program {script} is not in {tree.root}" + (f"; did you mean {close[0]}?" if close else ""),
        hint="programs start in the folder of clusterkit.toml: name the script from there",
    )


def _script(argv: Sequence[str]) -> str | None:
    """The relative path that will be opened; None where it is looked up elsewhere."""
    first, *rest = argv
    if _INTERPRETER.fullmatch(first):
        script = rest[0] if rest else "-"
        return None if script.startswith(("-", "/", "..")) else script
    return first if "/" in first and not first.startswith(("/", "..")) else None
