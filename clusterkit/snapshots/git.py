"""What git knows of a working tree: the files that are not ignored, and where it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import ClusterkitError

_LONGEST_DIFF = 1 << 20
_MOST_LOOKED_AT = 500
"""Of the files that git does not know and that stay here; more are data, not secrets."""
_CLOSED = re.compile(r"could not open directory '(.+?)/?': (.+)")


@dataclass(frozen=True)
class Git:
    """Where the working tree stands."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
    diff: str = ""
    """`git diff HEAD` of a dirty tree, without files that stay here or stayed; at most 1 MiB of it."""

    @property
    def facts(self) -> dict[str, str | bool | None]:
        """What run.json says of it."""
        return {
            "git_commit": self.commit,
            "git_branch": self.branch,
            "dirty": self.dirty,
            "diff": self.diff,
        }


def listed(folder: Path, *, excluded: Callable[[str], bool]) -> list[str] | None:
    """Tracked and untracked-not-ignored names below a folder; None where git knows nothing.

    A repository inside the tree is one name that ends with a slash, or that of a folder.

    Args:
        folder: anywhere inside a repository.
        excluded: tells the names that do not matter.

    Raises:
        ClusterkitError: a folder in it cannot be read.
    """
    done = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if done is None or done.returncode != 0:
        return None
    for name, reason in _CLOSED.findall(done.stderr.decode("utf-8", "surrogateescape")):
        if not excluded(name):
            raise ClusterkitError(
                f"{folder / name}: {reason}",
                hint=f'make it readable, or add "/{name}" to `exclude` in clusterkit.toml',
            )
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def stand(folder: Path, *, stays: Callable[[str], bool]) -> Git:
    """Where the working tree stands; what stays here does not make it dirty and is in no diff.

    Args:
        folder: the project's.
        stays: tells the names (relative to the folder) that never travel.
    """
    place = _output(folder, "rev-parse", "HEAD", "--abbrev-ref", "HEAD", "--show-prefix")
    if place is None:
        return Git()
    commit, branch, rest = place.split(b"\n", 2)
    prefix = os.fsdecode(rest).removesuffix("\n")
    every = ("--porcelain", "-z", "--no-renames", "--untracked-files=all")
    status = _output(folder, "status", *every, "--", ".") or b""
    entries = [os.fsdecode(entry) for entry in status.split(b"\0") if entry]
    kept_here = [entry for entry in entries if stays(entry[3:].removeprefix(prefix))]
    dirty = len(kept_here) < len(entries)
    known = [entry[3:].removeprefix(prefix) for entry in kept_here if not entry.startswith("??")]
    unknown = [entry[3:].removeprefix(prefix) for entry in kept_here if entry.startswith("??")]
    diff = _diff(folder, known, unknown, stays) if dirty else ""
    return Git(commit.decode(), branch.decode(), dirty, diff)


def between(folder: Path, old: str, new: str) -> list[tuple[str, int | None, int | None]] | None:
    """Files below a folder that differ between two commits, with the lines that came and went.

    Returns:
        Path, lines added and lines removed, None for a file that is no text; or None when the repository
        does not have both commits.
    """
    if not all(re.fullmatch(r"[0-9a-f]{4,64}", commit) for commit in (old, new)):
        return None
    data = _output(folder, "diff", "--numstat", "-z", "--no-renames", "--relative", old, new, "--", ".")
    if data is None:
        return None
    rows = (os.fsdecode(entry).split("\t", 2) for entry in data.split(b"\0") if entry)
    return [
        (path, int(added) if added.isdigit() else None, int(removed) if removed.isdigit() else None)
        for added, removed, path in rows
    ]


def _diff(folder: Path, known: Sequence[str], unknown: Sequence[str], stays: Callable[[str], bool]) -> str:
    """Changes since HEAD, but for what stays here under its name of now or then.

    Of a file that was removed only the name is there: it may go on under a name that stays here, or that git
    ignores, and the commit has it anyway.

    Args:
        folder: the project's.
        known: changed files that stay here.
        unknown: files that stay here and are new to git.
        stays: tells the names that never travel.
    """
    plain = (
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--no-renames",
        "--submodule=short",
        "--relative",
    )
    spared = [f":(exclude,literal){name}" for name in {*known, *_related(folder, known, unknown, stays)}]
    data = _output(folder, "diff", *plain, "--irreversible-delete", "HEAD", "--", ".", *spared) or b""
    cut = b"\n[the diff is longer; the snapshot has every file]\n" if len(data) > _LONGEST_DIFF else b""
    return (data[:_LONGEST_DIFF] + cut).decode("utf-8", "replace")


def _related(
    folder: Path, known: Sequence[str], unknown: Sequence[str], stays: Callable[[str], bool]
) -> list[str]:
    """Names of files that were renamed or copied from or to one that stays here, likenesses included."""
    index = _output(folder, "rev-parse", "--git-path", "index") if known or unknown else None
    if index is None:
        return []
    with tempfile.TemporaryDirectory() as place:
        # In an index of its own git also looks at the files that it does not know yet.
        ours = {"GIT_INDEX_FILE": f"{place}/index"}
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / os.fsdecode(index).removesuffix("\n"), ours["GIT_INDEX_FILE"])
        if names := [f":(literal){name}" for name in unknown[:_MOST_LOOKED_AT]]:
            _git(folder, "add", "--intent-to-add", "--", *names, **ours)
        likeness = ("--find-renames=20%", "--find-copies=20%", "--find-copies-harder")
        told = _git(folder, "diff", "--name-status", "-z", *likeness, "--relative", "HEAD", "--", ".", **ours)
    words = iter(os.fsdecode(told.stdout).split("\0") if told is not None else ())
    found = []
    for status in words:
        names = [next(words, "") for _ in range(2 if status[:1] in ("R", "C") else 1)]
        if len(names) == 2 and any(map(stays, names)):
            found += names
    return found


def _output(folder: Path, *args: str) -> bytes | None:
    done = _git(folder, *args)
    return done.stdout if done is not None and done.returncode == 0 else None


def _git(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            ["git", "-C", folder, *args],
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **variables},
        )
    except FileNotFoundError:
        return None
