"""Finds and reads the settings files: the shipped profiles, the user's file, the project's own file."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from clusterkit import folders
from clusterkit.config.layers import BUILT_IN, Layer
from clusterkit.errors import ConfigError
from clusterkit.resources import TEMPLATES
from clusterkit.runtimes import NONE
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object, read_limited

PROJECT_FILE = "clusterkit.toml"

_NOBODY = 65534
"""The owner that a file system reports if it is unknown."""
_POSITION = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


def user_file() -> Path | None:
    """The user's own settings file if there is one."""
    file = user_path()
    return file if file and _is_there(file) else None


def user_path() -> Path | None:
    """The path of the user's own settings file (XDG Base Directory Specification); None without a home."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    home = home_folder()
    root = Path(base) if base.startswith("/") else home and home / ".config"
    return root and root / "clusterkit" / "config.toml"


def is_users(file: Path) -> bool:
    """Whether a settings file is the user's own one."""
    own = user_path()
    return own is not None and (file == own or file.resolve() == own.resolve())


def find_project_file(start: Path) -> Path | None:
    """The nearest clusterkit.toml in `start` or above it.

    The search ends below the home folder, where a file would make the whole home one project. Only a start in
    the home folder itself looks there.
    """
    start, home = start.resolve(), home_folder()
    for folder in (start, *start.parents):
        if folder == home and folder != start:
            return None
        if _is_there(folder / PROJECT_FILE):
            return folder / PROJECT_FILE
    return None


def refuse_foreign(file: Path, start: Path) -> None:
    """Refuses a project's settings file of another user, or one among results.

    The search may find one that came with a pulled run, or in a folder that others can write to, such as
    /tmp; it runs programs as the user. Root, as in a container, also accepts files of the current folder's
    owner.

    Args:
        file: absolute.
        start: where the search for it began.

    Raises:
        ConfigError: it is not the user's.
    """
    hint = f"only if you trust it: --config {display_path(file)}"
    mine = {os.geteuid(), 0, _NOBODY} | ({start.stat().st_uid} if os.geteuid() == 0 else set())
    for path in (file.parent, file):
        owner = path.lstat().st_uid
        if owner not in mine:
            raise ConfigError(f"{path} belongs to another user (number {owner}): not read", hint=hint)
    folder = file.parent
    if _in_results(folder) or any(map(_is_run, (folder, *folder.parents))):
        raise ConfigError(f"{display_path(file)}: not read, because it came with results", hint=hint)


def built_in_layer(project_dir: Path) -> Layer:
    """The cluster `local` and the project's name."""
    root = str(project_dir / ".clusterkit" / "local")
    values = {
        "clusters": {"local": {"kind": "local", "container": NONE.name, "root": root}},
        "project": {"name": project_dir.name or "project"},
        "profiles": {},
    }
    return Layer(BUILT_IN, values)


def shipped_profiles() -> dict[str, Path]:
    """The files of the shipped profiles, by name and in order."""
    return {file.stem: file for file in sorted((TEMPLATES / "profiles").glob("*.toml"))}


def shipped_layer(file: Path) -> Layer:
    """A shipped profile."""
    return read_layer(file, label=f"{BUILT_IN} {file.name}", prefix=("profiles", file.stem))


def read_layer(file: Path, *, label: str | None = None, prefix: tuple[str, ...] = ()) -> Layer:
    """Reads one TOML file and puts its top level under `prefix`.

    Raises:
        ConfigError: it cannot be read, or is not TOML (then with the line).
    """
    name = label or display_path(file)
    try:
        text = file.read_bytes().decode("utf-8-sig")  # Notepad writes a byte order mark
        data: dict[str, Any] = tomllib.loads(text)
    except IsADirectoryError:
        raise ConfigError(
            f"{name}: is a folder, not a settings file", hint="rename or remove the folder"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{name}: cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is not UTF-8 at byte {error.start}", hint="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(name, text, str(error)) from None
    for part in reversed(prefix):
        data = {part: data}
    return Layer(name, data, file, text, prefix)


def display_path(file: Path) -> str:
    """A file as the user would write it: relative to the current folder or to home."""
    for root, sign in ((Path.cwd(), ""), (home_folder(), "~/")):
        if root and file.is_relative_to(root):
            return f"{sign}{file.relative_to(root)}"
    return str(file)


def home_folder() -> Path | None:
    """The home folder; None for a user without one, as in some containers."""
    home = folders.home()
    return home and home.resolve()


def _is_there(file: Path) -> bool:
    """Whether anything has a settings file's name, even a folder or a broken link, which reading reports.

    An inaccessible folder counts as having none.
    """
    try:
        return file.is_file() or file.is_dir() or file.is_symlink()
    except OSError:
        return False


def _is_run(folder: Path) -> bool:
    data = read_limited(folder / "run.json", DOCUMENT_BYTES)
    return data is not None and isinstance((parse_object(data) or {}).get("run_id"), str)


def _in_results(folder: Path) -> bool:
    """Whether a project further up keeps its results there."""
    file = find_project_file(folder.parent)
    if file is None:
        return False
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("project", {})
        named = project.get("results", "results")
        results = folders.local_path(named, file.parent).resolve()
    except (OSError, ValueError, TypeError, AttributeError):
        return False  # its own settings are not ours to judge
    return folder.is_relative_to(results) and not file.parent.is_relative_to(results)


def _syntax_error(name: str, text: str, message: str) -> ConfigError:
    position = _POSITION.search(message)
    line = position[1] if position else None
    number = int(line) if line else len(text.splitlines())
    cause = _POSITION.sub("", message)
    return ConfigError(
        f"{name}:{number}: not valid TOML: {cause}",
        hint="text needs quotes, tables look like [profiles.mine]; see https://toml.io",
    )
