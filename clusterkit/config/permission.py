"""What a project's settings may start, and write to, on this machine: what its user has allowed.

A project may come from a stranger. What the user's own settings file names needs no permission. A permission
is kept outside the project, for each setting: a digest of its words and of the project's files among them.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from clusterkit.config.layers import Merged, Origin, display_path, find_project_file, home_folder
from clusterkit.config.lines import Key, join_key
from clusterkit.config.named_files import digest, of_ssh_config, of_words, repository
from clusterkit.errors import ConfigError, NotAllowedError
from clusterkit.folders import is_environment, local_path, make_private, replace_file
from clusterkit.trackers import tracker_named
from clusterkit.untrusted import DOCUMENT_BYTES, open_regular, parse_object, table_of_texts

HELD = (
    ("clusters", "*", "ssh_config"),
    ("secrets", "commands", "*"),
    ("notify", "webhook_command"),
    ("notify", "command"),
)
"""Keys whose value clusterkit starts, or hands to ssh, on this machine."""
CHECKED_HERE = (
    ("clusters", "*", "prelude"),
    ("clusters", "*", "python"),
    ("clusters", "*", "image"),
    ("profiles", "*", "env", "*"),
)
"""Keys that matter where `doctor` examines this machine. A run there starts because it was asked for."""
RESULTS: Key = ("project", "results")
TRACKERS: Key = ("project", "trackers")
"""Keys of what is written to: elsewhere it could become an editor's plugin, and a server gets a token."""
INTERPRETERS = (".venv/bin/python", "venv/bin/python")
"""Of the project, taken for a program's `python`."""
_SHOWN, _LISTED = 200, 20
"""Most characters of a line, and most lines, of a message."""


@dataclass(frozen=True)
class NamedProgram:
    """What one setting of a project names for this machine."""

    key: Key
    words: tuple[str, ...]
    origin: Origin
    files: tuple[Path, ...]
    """Files of the project among the words, and what an ssh configuration includes."""

    @property
    def digest(self) -> str:
        """Differs if a word, or the content of a file, does."""
        files = [[str(file), digest(file)] for file in self.files]
        return sha256(json.dumps([self.key, self.words, files]).encode()).hexdigest()

    def __str__(self) -> str:
        return printable(f"{self.origin}: {join_key(self.key)} = {shlex.join(self.words)}")


@dataclass(frozen=True, eq=False)
class Permission:
    """Whether the user has allowed what a project's settings name; reads the files whenever it is asked."""

    written: Path | None
    """The project's settings file; None without one."""
    folder: Path
    """The project's folder, where its programs start."""
    merged: Merged = field(repr=False)
    """All settings."""

    @property
    def file(self) -> Path:
        """The settings file, or the folder without one."""
        return self.written or self.folder

    @property
    def programs(self) -> dict[Key, NamedProgram]:
        """What needs a permission, by key."""
        return {program.key: program for program in (*self._held(), *self._checked_here(), *self._outside())}

    @property
    def missing(self) -> list[NamedProgram]:
        """What has no permission."""
        allowed = self._allowed()
        return [program for program in self.programs.values() if program.digest not in allowed]

    @property
    def is_users(self) -> bool:
        """Whether the user has allowed everything that the settings name."""
        return all(program.key[0] in INTERPRETERS for program in self.missing)

    def require(self, keys: Collection[Key]) -> None:
        """Raises NotAllowedError if one of these settings names something that is not allowed."""
        missing = self.missing if keys else []
        if not any(program.key in keys for program in missing):
            return
        known = set(self._allowed().values())
        lines = ["you have not allowed what this project would start here, or write outside of its folder:"]
        for program in missing[:_LISTED]:
            line, changed = str(program), " (changed)" if join_key(program.key) in known else ""
            lines.append(f"  {line[:_SHOWN]}{'...' if len(line) > _SHOWN else ''}{changed}")
        if len(missing) > _LISTED:
            lines.append(f"  and {len(missing) - _LISTED} more")
        raise NotAllowedError(
            "\n".join(lines), hint=f"read them; if you trust them, `clusterkit config allow{self._option}`"
        )

    def require_here(self, cluster: str, profiles: Iterable[str], *, interpreter: bool) -> None:
        """Raises NotAllowedError if an examination of this machine would start what is not allowed.

        Args:
            cluster: whose jobs run here.
            profiles: whose environment the checks get.
            interpreter: whether the project's own interpreter is started.
        """
        names = {cluster, *profiles}
        keys = [key for key in self.programs if key[1:2] and key[1] in names and _matches(key, CHECKED_HERE)]
        self.require([*keys, *((name,) for name in INTERPRETERS if interpreter)])

    def allow(self, *, interpreters: bool = True) -> list[NamedProgram]:
        """Allows everything as it is now, besides what was allowed before; returns it.

        Args:
            interpreters: the project's own interpreters, too, which no setting names.

        Raises:
            ConfigError: the permission cannot be written.
        """
        programs = [
            program
            for program in self.programs.values()
            if interpreters or program.key[0] not in INTERPRETERS
        ]
        allowed = {**self._allowed(), **{program.digest: join_key(program.key) for program in programs}}
        if programs:
            document = {"schema": 1, "file": str(self.file), "allowed": allowed}
            record = self._record()
            try:
                make_private(record.parent)
                replace_file(record, json.dumps(document).encode(), mode=0o600)
            except OSError as error:
                raise ConfigError(
                    f"{record}: the permission cannot be kept: {error.strerror}",
                    hint="make the folder writable, or set XDG_STATE_HOME to one that is",
                ) from None
        return programs

    def revoke(self) -> bool:
        """Withdraws every permission of the project; returns whether there was one.

        Raises:
            ConfigError: it cannot be removed.
        """
        record = self._record()
        try:
            record.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"{record}: cannot be removed: {error.strerror}") from None
        return True

    @property
    def _option(self) -> str:
        """The option that names the settings file, where it would not be found without."""
        if self.written is None or find_project_file(Path.cwd()) == self.written:
            return ""
        return f" --config {shlex.quote(display_path(self.written))}"

    def _held(self) -> Iterator[NamedProgram]:
        root = repository(self.folder)
        for key, value in self._values(HELD):
            words = tuple(value) if isinstance(value, list | tuple) else (str(value),)
            if key[0] != "clusters":
                if self._is_foreign(key):
                    yield self._named(key, words, of_words(words, [self.folder], root))
                continue
            config = local_path(words[0], self.folder)
            at_home = local_path(words[0], "").is_absolute()
            if self._is_foreign(key) or not at_home or config.resolve().is_relative_to(root):
                # A relative command of it starts where the user is.
                folders = [self.folder, *({Path.cwd()} - {self.folder})]
                yield self._named(key, (str(config),), of_ssh_config(config, folders, root))

    def _checked_here(self) -> Iterator[NamedProgram]:
        clusters = self.merged.data.get("clusters", {})
        root = repository(self.folder)
        for key, value in self._values(CHECKED_HERE):
            if not self._is_foreign(key) or (key[0] == "clusters" and clusters[key[1]].get("host")):
                continue
            words = tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)
            files = set() if key[2:3] == ("image",) else of_words(words, [self.folder], root)
            yield self._named(key, words, files)
        for name in INTERPRETERS:
            file = self.folder / name
            active = os.environ.get("VIRTUAL_ENV")  # the user's own choice
            if self.written and os.access(file, os.X_OK) and not (active and file.is_relative_to(active)):
                files = {file} if file.resolve().is_relative_to(root) else set()
                origin = Origin(display_path(file))
                yield NamedProgram((name,), (str(file.resolve()),), origin, tuple(files))

    def _outside(self) -> Iterator[NamedProgram]:
        """Yields where results and metrics go, outside the project."""
        results = local_path(dict(self._values([RESULTS])).get(RESULTS, "results"), self.folder)
        places: list[tuple[Key, str, Path | None]] = [(RESULTS, str(results), results)]
        for key, text in self._values([(*TRACKERS, "*")]):
            tracker = tracker_named(key[-1])
            place = tracker.place(text, self.folder)
            places.append((key, place, tracker.folder(place)))
        for key, place, path in places:
            theirs = self._is_foreign(key) or (path is not None and path.is_relative_to(self.folder))
            if theirs and not (path and _is_plain_place(path.resolve(), self.folder)):
                yield self._named(key, (str(path.resolve()) if path else place,), ())

    def _named(self, key: Key, words: tuple[str, ...], files: Iterable[Path]) -> NamedProgram:
        return NamedProgram(key, words, self.merged.origin(key), tuple(sorted(files)))

    def _values(self, patterns: Iterable[Key]) -> Iterator[tuple[Key, Any]]:
        for key in sorted(self.merged.sources):
            if not _matches(key, patterns):
                continue
            value: Any = self.merged.data
            for part in key:
                value = value.get(part) if isinstance(value, Mapping) else None
            if value is not None:
                yield key, value

    def _is_foreign(self, key: Key) -> bool:
        source = self.merged.sources.get(key)
        return self.written is not None and source is not None and source.layer.file == self.written

    def _record(self) -> Path:
        """The file of this project's permissions.

        Raises:
            ConfigError: there is no home folder.
        """
        folder = _state_folder()
        if folder is None:
            raise ConfigError("there is no home folder to keep a permission in", hint="set XDG_STATE_HOME")
        return folder / "allowed" / f"{sha256(os.fsencode(self.file.resolve())).hexdigest()[:32]}.json"

    def _allowed(self) -> dict[str, str]:
        """The keys of the permissions by digest; none from a file that others could have written."""
        try:
            with open_regular(self._record()) as file:
                about = os.fstat(file.fileno())
                private = about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                document = parse_object(file.read(DOCUMENT_BYTES)) if private else None
        except (OSError, ConfigError):
            return {}
        return table_of_texts((document or {}).get("allowed")) or {}


def printable(text: str) -> str:
    """Returns a foreign text without characters that could hide a part of it."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def _matches(key: Key, patterns: Iterable[Key]) -> bool:
    return any(
        len(key) == len(pattern) and all(map(lambda part, wanted: wanted in ("*", part), key, pattern))
        for pattern in patterns
    )


def _is_plain_place(path: Path, folder: Path) -> bool:
    """Whether a path lies in a project's repository, and in nothing there that other programs obey."""
    roots = (folder.resolve(), repository(folder).resolve())
    root = next((root for root in roots if path.is_relative_to(root)), None)
    if root is None:
        return False
    below = [place for place in (path, *path.parents) if root in place.parents]
    return not any(place.name.startswith(".") or is_environment(place) for place in below)


def _state_folder() -> Path | None:
    """The user's folder for state of clusterkit (XDG Base Directory Specification); None without a home."""
    base = os.environ.get("XDG_STATE_HOME", "")
    own = home_folder()
    root = Path(base) if base.startswith("/") else own and own / ".local" / "state"
    return root and root / "clusterkit"
