"""Selects the files of a working tree that go into a snapshot, and reports those left out with the reason."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clusterkit.errors import ClusterkitError, ConfigError
from clusterkit.folders import is_environment
from clusterkit.snapshots import git

IGNORE_FILE = ".clusterkitignore"


@dataclass(frozen=True)
class Collected:
    """The contents of a working tree, as relative POSIX paths."""

    files: dict[str, os.stat_result]
    """Regular files and symbolic links to upload, sorted by name."""
    withheld: tuple[str, ...]
    """Files that look like secrets."""
    special: tuple[str, ...]
    """Sockets, pipes and devices."""
    environments: tuple[str, ...]
    """Virtual environments that git does not ignore; nothing in them is uploaded."""
    outside: tuple[str, ...]
    """Links among `files` that point out of the tree."""
    stays: Callable[[str], bool]
    """Whether a name, existing or not, is never uploaded."""


def collect(root: Path, *, exclude: Sequence[str], include: Sequence[str] = ()) -> Collected:
    """List a working tree without opening any file.

    Args:
        root: the project's folder.
        exclude: patterns of files to leave out, in addition to .gitignore and .clusterkitignore.
        include: patterns of files to upload although git ignores them or they look like secrets, and of
            virtual environments.

    Raises:
        ConfigError: .clusterkitignore is invalid.
        ClusterkitError: a folder cannot be read, git failed or ignores everything, or a submodule is not
            checked out.
    """
    excluded = left_out(root, exclude)
    included = Patterns(include)
    environments = Environments(root, included)

    def secret(name: str) -> bool:
        return looks_secret(name) and not included.match(name)

    names = set(_names(root, excluded, environments))
    if include:
        names.update(name for name in walk(root, excluded, environments) if included.match(name))
    if not names and next(walk(root, excluded, environments), None):
        raise ClusterkitError(
            f"git ignores every file in {root}",
            hint="correct the .gitignore, or name the files to send under `include` in [project]",
        )
    files: dict[str, os.stat_result] = {}
    withheld, special, outside = [], [], []
    for name in sorted(name for name in names if not excluded.match(name)):
        if environments.hold(name):
            continue
        status = _status(root / name)
        if status is None or stat.S_ISDIR(status.st_mode):
            continue  # a folder in place of a tracked file; its own files have been listed
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            special.append(name)
        elif stat.S_ISLNK(status.st_mode) and environments.at(name):
            continue
        elif secret(name):
            withheld.append(name)
        else:
            files[name] = status
            if stat.S_ISLNK(status.st_mode) and _leads_out(root, name):
                outside.append(name)
    return Collected(
        files,
        tuple(withheld),
        tuple(special),
        environments.named,
        tuple(outside),
        lambda name: excluded.match(name.rstrip("/")) or secret(name.rstrip("/")) or environments.hold(name),
    )


def left_out(root: Path, exclude: Sequence[str]) -> Patterns:
    """Patterns of files that are in no snapshot of a tree, even if git tracks them.

    Raises:
        ConfigError: .clusterkitignore is invalid.
    """
    return Patterns((*ALWAYS_EXCLUDED, *_ignored(root), *exclude))


class Environments:
    """The virtual environments of a tree, by what lies in them, whatever they are called.

    Args:
        root: the tree. If it is one itself, only its packages are taken for one.
        included: patterns of those that are no exception.
    """

    def __init__(self, root: Path, included: Patterns) -> None:
        self._root, self._included = str(root), included
        self._itself = is_environment(root)
        self._folders: dict[str, bool] = {"": False}
        """Folder -> whether it is one or lies in one."""
        self._named: dict[str, None] = {}

    @property
    def named(self) -> tuple[str, ...]:
        """Those that were asked about so far, each once."""
        return tuple(sorted(self._named))

    def hold(self, name: str) -> bool:
        """Whether a file or folder, existing or not, lies in one."""
        folder = name.rstrip("/").rpartition("/")[0]
        return self._folders[folder] if folder in self._folders else self.at(folder)

    def at(self, folder: str) -> bool:
        """Whether a folder, or what a link leads to, is one or lies in one."""
        if folder not in self._folders:
            above = self.hold(folder)
            self._folders[folder] = above or self._is_one(folder)
            if self._folders[folder] and not above:
                self._named[folder] = None
        return self._folders[folder]

    def _is_one(self, folder: str) -> bool:
        one = is_environment(f"{self._root}/{folder}") or (
            self._itself and _PACKAGES.fullmatch(folder) is not None
        )
        return one and not self._included.match(folder)


_PACKAGES = re.compile(r"lib(64)?/python[0-9.]+|Lib/site-packages|conda-meta")


def walk(
    root: Path,
    excluded: Patterns,
    environments: Environments | None = None,
    below: str = "",
    *,
    repository: Callable[[str], Iterator[str]] | None = None,
) -> Iterator[str]:
    """Names of everything but folders below `root/below`; excluded folders are not entered.

    Args:
        root: the folder that names are relative to.
        excluded: patterns of names to leave out.
        environments: those of `root`, which are not entered either.
        below: a folder, empty or with a slash at its end.
        repository: gives the names in a git repository below that folder; None takes all of its files.

    Raises:
        ClusterkitError: a folder cannot be read.
    """

    def fail(error: OSError) -> None:
        raise ClusterkitError(
            f"{error.filename}: {error.strerror}",
            hint="make it readable, or add it to `exclude` in clusterkit.toml",
        )

    for folder, folders, files in os.walk(root / below, onerror=fail):
        prefix = Path(folder).relative_to(root).as_posix()
        prefix = "" if prefix == "." else f"{prefix}/"
        if repository and prefix != below and ".git" in (*folders, *files):
            folders.clear()
            yield from repository(prefix)
            continue
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = [
            name
            for name in folders
            if not excluded.match(prefix + name) and not (environments and environments.at(prefix + name))
        ]
        yield from (prefix + name for name in (*files, *linked) if not excluded.match(prefix + name))


def _names(root: Path, excluded: Patterns, environments: Environments, below: str = "") -> Iterator[str]:
    """Names as git lists them, including nested repositories; outside a repository, everything."""
    repository = partial(_names, root, excluded, environments)
    listed = git.listed(root / below, excluded=lambda name: excluded.match(below + name))
    if listed is None:
        yield from walk(root, excluded, environments, below, repository=repository)
        return
    for name in listed:
        path, inner = root / below / name, below + name
        if not name.endswith("/") or path.is_symlink() or not path.is_dir():
            yield inner.rstrip("/")
        elif excluded.match(inner.rstrip("/")) or environments.at(inner.rstrip("/")):
            continue
        elif os.path.lexists(path / ".git"):
            yield from _names(root, excluded, environments, inner)
        elif any(path.iterdir()):
            yield from walk(root, excluded, environments, inner, repository=repository)
        else:
            raise ClusterkitError(
                f"the submodule {path} is not checked out: the run would find an empty folder",
                hint="`git submodule update --init --recursive` checks it out; "
                f'or add "/{inner.rstrip("/")}" to `exclude` in clusterkit.toml',
            )


def _ignored(root: Path) -> tuple[str, ...]:
    path = root / IGNORE_FILE
    try:
        return ignore_file(path.read_text(encoding="utf-8-sig"), str(path))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterkitError(f"{path}: cannot be read: {error}") from error


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None  # tracked but deleted, or removed since it was listed


def _leads_out(root: Path, name: str) -> bool:
    """Whether a link is absolute or points out of the tree; links inside it, even loops, are safe to copy."""
    target = os.readlink(root / name)  # noqa: PTH115 - Path would tidy the text up
    below = os.path.normpath(os.path.join(os.path.dirname(name), target))  # noqa: PTH118, PTH120 - text only
    return target.startswith("/") or below == ".." or below.startswith("../")


ALWAYS_EXCLUDED = (
    ".git", ".hg", ".jj", ".svn", ".direnv", ".clusterkit", ".venv*", "__pycache__", "*.pyc", "/wandb",
    "*.sif", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "node_modules",
)  # fmt: skip


SECRETS = (
    ".env", ".env.*", ".envrc", "*.env",
    ".netrc", "_netrc", ".git-credentials", ".pgpass", ".pypirc", ".npmrc",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx", "*.gpg",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker/config.json", ".config/gcloud",
    "credentials", "credentials.json", "*_credentials.json", "client_secret*.json",
    "service[-_]account*.json", "secrets", ".secrets", "secrets.[jty]*", "*.tfstate", ".vault-token",
    "*api[-_]key", "*api[-_]key.txt", "*.token", ".huggingface",
)  # fmt: skip
"""The deny list, case-insensitive, whether or not git tracks the file. docs/security.md shows it."""


_EXAMPLES = re.compile(r"\.(example|sample|template|dist)$", re.IGNORECASE)


class Patterns:
    """Shell patterns that match a relative path, one of its folders, or any single component.

    A pattern that begins with a slash is anchored at the project root; `*` also matches slashes.

    >>> Patterns(["notes/", "/data", "*.mp4"]).match("a/notes/x.txt")
    True
    >>> Patterns(["/data"]).match("a/data")
    False
    """

    def __init__(self, patterns: Iterable[str], *, ignore_case: bool = False) -> None:
        texts = [fnmatch.translate(pattern.rstrip("/")) for pattern in patterns]
        self._regex = re.compile("|".join(texts) or "(?!)", re.IGNORECASE if ignore_case else 0)
        self._folders: dict[str, bool] = {"": False}

    def match(self, name: str) -> bool:
        """Whether a pattern matches the path or one of its folders."""
        folder, _, last = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self.match(folder)
        return self._folders[folder] or any(self._regex.match(text) for text in (last, name, f"/{name}"))


_secrets = Patterns(SECRETS, ignore_case=True)


def looks_secret(name: str) -> bool:
    """Whether a path is on the deny list; examples (`.env.example`) are not.

    >>> [looks_secret(name) for name in ("a/.env", "ID_RSA", "secrets.yaml", "secrets.py", ".env.example")]
    [True, True, True, False, False]
    """
    return _secrets.match(name) and not _EXAMPLES.search(name)


def ignore_file(text: str, where: str) -> tuple[str, ...]:
    """The patterns of a .clusterkitignore: one per line; `#` begins a comment.

    Raises:
        ConfigError: a line begins with `!`, git's negation.
    """
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        if line.startswith("!"):
            raise ConfigError(
                f"{where}:{number}: {line}: a pattern cannot be negated here",
                hint="list the files to upload under `include` of [project] in clusterkit.toml",
            )
    return tuple(line for line in lines if line and not line.startswith("#"))
