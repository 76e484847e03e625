"""Finds the files of a project that a command line or an ssh configuration names, and digests them.

A file counts if it lies in the project's repository. What such a file reads or starts in turn does not count,
except the files that an ssh configuration includes.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from clusterkit.errors import NotAllowedError
from clusterkit.folders import home
from clusterkit.untrusted import open_regular, read_limited

_SEPARATORS = re.compile(r"[\s\"'=;|&<>(){}`$,]+")
_INCLUDE = re.compile(r"^\s*[\"']*include[\"']*[\s=]+(.+)$", re.IGNORECASE | re.MULTILINE)
_QUOTED = re.compile(r'"([^"]*)"|(\S+)')
_PLAIN = re.compile(r"(?:[\w ./~*?@+:,-]|%d|\$\{\w+\}|[^\x00-\x7f])+")
"""A name that ssh and `_included` read alike."""
_CONFIG_BYTES = 1 << 20
_MOST_CONFIGS = 200
"""Most files that one ssh configuration may include; ssh itself allows a depth of 16."""
_LARGE = 64 << 20
"""Bytes above which a file is known by its size and time."""


def repository(folder: Path) -> Path:
    """Returns the nearest folder with `.git`, this or one above it below the home folder; else this one."""
    own = home()
    for place in (folder, *folder.parents):
        if own is not None and own.is_relative_to(place):
            break
        if os.path.lexists(place / ".git"):
            return place
    return folder


def of_words(words: Iterable[str], folders: Sequence[Path], within: Path) -> set[Path]:
    """Returns the files that words name, alone or inside a shell line, also as Python modules.

    They lie below `within`, or are named by a path that leads up from the first folder.

    Args:
        words: of a command line or a text.
        folders: where relative names start.
        within: absolute.
    """
    pieces = {piece for word in words for piece in (word, *_SEPARATORS.split(word))} - {""}
    above = {piece for piece in pieces if ".." in piece.split("/") and piece[0] not in "/~"}
    named = {path for piece in pieces for path in _paths(piece, folders) if _inside(path, within)}
    return named | {path for piece in above for path in _paths(piece, folders[:1])}


def of_ssh_config(config: Path, folders: Sequence[Path], within: Path) -> set[Path]:
    """Returns an ssh configuration, the files that it includes, and those of `within` that these name.

    The user's own files in ~/.ssh and the system's do not count.

    Raises:
        NotAllowedError: what it includes cannot be followed.
    """
    configs: set[Path] = set()
    named: set[Path] = set()
    left = [config]
    while left:
        file = Path(os.path.abspath(left.pop()))  # noqa: PTH100 - a link is a name of its own
        if file in configs or _is_own(file):
            continue
        configs.add(file)
        data = read_limited(file, _CONFIG_BYTES)
        if len(configs) > _MOST_CONFIGS or (data is None and file.is_file()):
            raise NotAllowedError(
                f"{config}: includes more files than {_MOST_CONFIGS}, or one that cannot be read: {file}"
            )
        text = (data or b"").decode("utf-8", "surrogateescape")
        left += _included(text, file)
        named |= of_words(text.splitlines(), folders, within)
    return configs | named


def digest(path: Path) -> str:
    """Returns the SHA-256 of a regular file; of a large one its size and time; else why it has none."""
    try:
        with open_regular(path) as file:
            about = os.fstat(file.fileno())
            if about.st_size > _LARGE:
                return f"{about.st_size} {about.st_mtime_ns}"
            content = sha256()
            while data := file.read(1 << 20):
                content.update(data)
            return content.hexdigest()
    except OSError as error:
        return f"error {error.errno}"


def _paths(piece: str, folders: Sequence[Path]) -> Iterator[Path]:
    module = piece.replace(".", "/")
    names = (piece, f"{piece}/__main__.py", f"{module}.py", f"{module}/__main__.py", f"{module}/__init__.py")
    for folder in folders:
        for name in names:
            path = os.path.join(folder, os.path.expanduser(name))  # noqa: PTH111, PTH118 - names of any kind
            if os.path.isfile(path):  # noqa: PTH113 - as above: it raises nothing
                yield Path(os.path.abspath(path))  # noqa: PTH100


def _inside(path: Path, within: Path) -> bool:
    return path.is_relative_to(within) or Path(os.path.realpath(path)).is_relative_to(within)


def _is_own(file: Path) -> bool:
    own = home()
    places = [Path("/etc/ssh"), *([own / ".ssh"] if own else [])]
    return any(file.is_relative_to(place) for place in places)


def _included(text: str, file: Path) -> Iterator[Path]:
    own = home() or Path("/")
    for line in _INCLUDE.findall(text):
        for quoted, bare in _QUOTED.findall(line):
            name = quoted or bare
            if name.startswith("#"):
                continue
            if not _PLAIN.fullmatch(name):
                raise NotAllowedError(
                    f"{file}: `Include` names {name!r}, which clusterkit cannot follow",
                    hint="write plain names of files, without quotes inside, backslashes or brackets",
                )
            name = os.path.expandvars(name.replace("%d", str(own)))
            pattern = str(own / ".ssh" / os.path.expanduser(name))  # noqa: PTH111
            yield from map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207 - absolute patterns
