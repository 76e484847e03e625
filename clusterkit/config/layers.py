"""Finds, reads and merges the layers of settings; every value keeps its origin.

A layer is one source: a file of the user, of the project or shipped, the built-in values, the command line.
Later layers override earlier ones key by key; lists are replaced. A profile with `extends` inherits unset
values from the profile it names.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from clusterkit.config.lines import Key, join_key, key_lines
from clusterkit.errors import ConfigError
from clusterkit.folders import home, local_path
from clusterkit.resources import TEMPLATES
from clusterkit.runtimes import NONE
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object, read_limited

Table = dict[str, Any]

PROJECT_FILE = "clusterkit.toml"

_NOBODY = 65534
"""The owner that a file system reports if it is unknown."""
_POSITION = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")

BUILT_IN = "built-in"
COMMAND_LINE = "command line"
"""Labels of the layers that are no file."""


@dataclass(frozen=True)
class Origin:
    """Where a value was written."""

    label: str
    """"built-in", "command line" or the file's name as the user would write it."""
    line: int | None = None

    def __str__(self) -> str:
        return self.label if self.line is None else f"{self.label}:{self.line}"


DEFAULT = Origin("default")
"""The origin of a model's default value."""


@dataclass(frozen=True)
class Layer:
    """One source of settings.

    Args:
        label: its name in messages.
        data: its values, in the form of a settings document.
        file: the file it was read from.
        text: that file's text, for line numbers.
        prefix: the key under which the file's top level was placed.
    """

    label: str
    data: Mapping[str, Any]
    file: Path | None = None
    text: str = ""
    prefix: Key = ()

    @cached_property
    def _lines(self) -> dict[Key, int]:
        return {(*self.prefix, *key): line for key, line in key_lines(self.text).items()}

    def origin(self, key: Key) -> Origin:
        """Where this layer sets `key`: the line of the key or of its nearest table."""
        for end in range(len(key), len(self.prefix), -1):
            if line := self._lines.get(key[:end]):
                return Origin(self.label, line)
        return Origin(self.label)


@dataclass(frozen=True)
class Source:
    """The layer and key that a value came from; with `extends` the key differs."""

    layer: Layer
    key: Key

    @property
    def origin(self) -> Origin:
        """The file and line of the value."""
        return self.layer.origin(self.key)


@dataclass(frozen=True)
class Merged:
    """All layers as one document."""

    data: Table
    sources: Mapping[Key, Source]

    def origin(self, key: Key) -> Origin:
        """Where `key` or its table was set; DEFAULT if neither was."""
        for end in range(len(key), 0, -1):
            if source := self.sources.get(key[:end]):
                return source.layer.origin((*source.key, *key[end:]))
        return DEFAULT


def merge(layers: Sequence[Layer], others: Iterable[str] = ()) -> Merged:
    """Merges all layers and resolves `extends`.

    Args:
        layers: weakest first.
        others: names of further profiles, for hints.

    Raises:
        ConfigError: a profile extends an unknown profile or, indirectly, itself.
    """
    data: Table = {}
    sources: dict[Key, Source] = {}
    for layer in layers:
        _overlay(data, layer.data, (), layer, sources)
    profiles = data.get("profiles")
    if isinstance(profiles, dict):
        for name in list(profiles):
            _inherit(profiles, name, sources, (), others)
    return Merged(data, sources)


def _overlay(
    onto: Table, table: Mapping[str, Any], at: Key, layer: Layer, sources: dict[Key, Source]
) -> None:
    for name, value in table.items():
        key = (*at, name)
        sources[key] = Source(layer, key)
        if isinstance(value, Mapping):
            if not isinstance(onto.get(name), dict):
                onto[name] = {}
            _overlay(onto[name], value, key, layer, sources)
        else:
            onto[name] = value


def _inherit(
    profiles: Table, name: str, sources: dict[Key, Source], children: tuple[str, ...], others: Iterable[str]
) -> None:
    """Fills a profile from the one it extends, which is filled first; `extends` is removed."""
    profile = profiles[name]
    if not isinstance(profile, dict) or "extends" not in profile:
        return
    key = ("profiles", name, "extends")
    where = f"{sources[key].origin}: {join_key(key)}"
    base = profile["extends"]
    if not isinstance(base, str) or base not in profiles:
        hint = nearest(base, [*profiles, *others]) if isinstance(base, str) else "write the name of a profile"
        raise ConfigError(f"{where}: there is no profile {base!r}", hint=hint)
    if base in (*children, name):
        raise ConfigError(
            f"{where}: {' extends '.join((*children, name, base))}",
            hint="remove one `extends`; to change a built-in profile, list only the keys to change",
        )
    _inherit(profiles, base, sources, (*children, name), others)
    del profile["extends"]
    if isinstance(profiles[base], dict):
        _fill(profile, profiles[base], ("profiles", name), ("profiles", base), sources)


def _fill(onto: Table, base: Table, at: Key, base_at: Key, sources: dict[Key, Source]) -> None:
    for name, value in base.items():
        if name not in onto:
            onto[name] = {} if isinstance(value, dict) else value
            sources[(*at, name)] = sources[(*base_at, name)]
        if isinstance(value, dict) and isinstance(onto[name], dict):
            _fill(onto[name], value, (*at, name), (*base_at, name), sources)


def nearest(name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    """A hint: the most similar valid names first, then all of them."""
    known = ", ".join(sorted(names)) or "none"
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean {close[0]}? available: {known}" if close else f"available: {known}"


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
    found = home()
    return found and found.resolve()


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
        results = local_path(named, file.parent).resolve()
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
