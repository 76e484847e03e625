"""What git knows of a working tree: the files that are not ignored, and where it stands."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import ClusterkitError

_LONGEST_DIFF = 1 << 20
_CLOSED = re.compile(r"could not open directory '(.+?)/?': (.+)")


@dataclass(frozen=True)
class Git:
    """Where the working tree stands."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
    diff: str = ""
    """`git diff HEAD` of a dirty tree, without files that stay here; at most 1 MiB of it."""


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
    status = _output(folder, "status", "--porcelain", "-z", "--no-renames", "--", ".") or b""
    changed = [os.fsdecode(entry[3:]).removeprefix(prefix) for entry in status.split(b"\0") if entry]
    kept_here = [name for name in changed if stays(name)]
    dirty = len(kept_here) < len(changed)
    diff = _diff(folder, kept_here) if dirty else ""
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


def _diff(folder: Path, without: Sequence[str]) -> str:
    plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--relative")
    spared = [f":(exclude,literal){name}" for name in without]
    data = _output(folder, "diff", *plain, "HEAD", "--", ".", *spared) or b""
    cut = b"\n[the diff is longer; the snapshot has every file]\n" if len(data) > _LONGEST_DIFF else b""
    return (data[:_LONGEST_DIFF] + cut).decode("utf-8", "replace")


def _output(folder: Path, *args: str) -> bytes | None:
    done = _git(folder, *args)
    return done.stdout if done is not None and done.returncode == 0 else None


def _git(folder: Path, *args: str) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            ["git", "-C", folder, *args],
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
        )
    except FileNotFoundError:
        return None
