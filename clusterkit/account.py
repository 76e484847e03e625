"""The local user and their home folder, which some containers do not know."""

from __future__ import annotations

import os
from pathlib import Path

from clusterkit.errors import ConfigError


def home() -> Path | None:
    """The home folder, which need not exist; None for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def user_name() -> str:
    """The login name, or else the user's number."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no variable says it, and no entry of the passwd database
        return str(os.getuid())


def home_or_root() -> Path:
    """The home folder, or / without one, as in sshd."""
    folder = home()
    return folder if folder and folder.is_dir() else Path("/")


def expanded(path: str) -> Path:
    """Expands `~` or `~user` in a path.

    Raises:
        ConfigError: the home folder is unknown.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{path!r} starts with a home folder that is not known", hint="write the whole path"
        ) from None
