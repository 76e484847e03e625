"""Asks git about a working tree: its files that are not ignored, its commit and its uncommitted changes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import ClusterkitError

_LONGEST_DIFF = 1 << 20
_MOST_LOOKED_AT = 500
"""Most untracked, left-out files compared for renames; more of them are data, not secrets."""
_FATAL = 128
_CLOSED = re.compile(r"could not open directory '(.+?)/?': (.+)")


@dataclass(frozen=True)
class Git:
    """The git state of a working tree."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
    diff: str = ""
    """`git diff HEAD` of a dirty tree, without left-out files under any name; cut at 1 MiB."""

    @property
    def facts(self) -> dict[str, str | bool | None]:
        """The fields of run.json."""
        return {
            "git_commit": self.commit,
            "git_branch": self.branch,
            "dirty": self.dirty,
            "diff": self.diff,
        }


def listed(folder: Path, *, excluded: Callable[[str], bool]) -> list[str] | None:
    """Names below a folder that are tracked, or untracked and not ignored; None outside a repository.

    A nested repository is one name: a folder's, or one that ends with a slash.

    Args:
        folder: any folder of a repository.
        excluded: whether a name does not matter.

    Raises:
        ClusterkitError: a folder below it cannot be read.
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


def ignored(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of some names, existing or not, that git ignores; none where it cannot tell."""
    if not names or _output(folder, "rev-parse", "--git-dir") is None:
        return []
    return _ignored(folder, names)


def _ignored(folder: Path, names: Sequence[str]) -> list[str]:
    data = b"".join(os.fsencode(name) + b"\0" for name in names)
    done = _git(folder, "check-ignore", "-z", "--stdin", stdin=data)
    if done is not None and done.returncode == _FATAL and len(names) > 1:  # one lies in a submodule
        half = len(names) // 2
        return _ignored(folder, names[:half]) + _ignored(folder, names[half:])
    if done is None or done.returncode != 0:
        return []
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def stand(folder: Path, *, stays: Callable[[str], bool]) -> Git:
    """The git state of a project; left-out files do not make it dirty and are not in the diff.

    Args:
        folder: of the project.
        stays: whether a name (relative to the folder) is never uploaded.
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
    """Files below a folder that differ between two commits, with their added and removed lines.

    Returns:
        Path, lines added and lines removed (None for a binary file); or None when the repository lacks one
        of the commits.
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
    """Changes since HEAD, without files that are left out under their current or former name.

    A removed file appears only by name: its content may live on in a file that is left out or that git
    ignores, and the commit has it anyway.

    Args:
        folder: of the project.
        known: changed tracked files that are left out.
        unknown: untracked files that are left out.
        stays: whether a name is never uploaded.
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
    """Names of files that were renamed or copied from or to a left-out one, judged by similarity."""
    index = _output(folder, "rev-parse", "--git-path", "index") if known or unknown else None
    if index is None:
        return []
    with tempfile.TemporaryDirectory() as place:
        # A temporary index lets git compare untracked files too, without touching the user's index.
        ours = {"GIT_INDEX_FILE": f"{place}/index"}
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / os.fsdecode(index).removesuffix("\n"), ours["GIT_INDEX_FILE"])
        if names := [f":(literal){name}" for name in unknown[:_MOST_LOOKED_AT]]:
            _git(folder, "add", "--intent-to-add", "--", *names, variables=ours)
        likeness = ("--find-renames=20%", "--find-copies=20%", "--find-copies-harder")
        compared = ("diff", "--name-status", "-z", *likeness, "--relative", "HEAD", "--", ".")
        told = _git(folder, *compared, variables=ours)
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


def _git(
    folder: Path, *args: str, stdin: bytes | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            ["git", "-C", folder, *args],
            input=stdin,
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **(variables or {})},
        )
    except FileNotFoundError:
        return None
