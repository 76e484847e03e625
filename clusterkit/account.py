"""Who runs clusterkit on this machine, and where their home is; some containers know neither."""

from __future__ import annotations

import os
from pathlib import Path

from clusterkit.errors import ConfigError


def home() -> Path | None:
    """The home folder, which need not be there; None for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def user_name() -> str:
    """The login name; the user's number for one who has none."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no variable says it, and no entry of the passwd database
        return str(os.getuid())


def home_or_root() -> Path:
    """The home folder, or / where there is none, as sshd has it: where commands and searches begin."""
    folder = home()
    return folder if folder and folder.is_dir() else Path("/")


def expanded(path: str) -> Path:
    """A path with its `~` or `~user` filled in.

    Raises:
        ConfigError: that home folder is not known.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{path!r} starts with a home folder that is not known", hint="write the whole path"
        ) from None
