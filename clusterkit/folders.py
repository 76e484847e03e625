"""Makes the folders that belong to clusterkit inside a user's project."""

from __future__ import annotations

from pathlib import Path


def make_ignored(folder: Path) -> None:
    """Make a folder of mode 0700 that git ignores, by a `.gitignore` of its own.

    A folder that is there already stays as it is: it may be one that the user keeps in git.

    Raises:
        OSError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    (folder / ".gitignore").write_text("*\n")
