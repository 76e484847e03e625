"""Asks git about a working tree: its files that are not ignored, its commit and its uncommitted changes.

Only a folder without `.git`, in it or above, is outside a repository. Any other refusal is an error: only git
knows which files it ignores.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from clusterkit.errors import ClusterkitError, last_words

_LONGEST_DIFF = 1 << 20
_MOST_LOOKED_AT = 500
"""Most untracked, left-out files compared for renames; more of them are data, not secrets."""
_UNREAD = re.compile(r"^warning: (could not open directory|unable to access) '(.+?)/?': (.+)", re.MULTILINE)
_TRACKED = re.compile(rb"[^?] (\d{6}) [0-9a-f]+ \d\t(.*)", re.DOTALL)
_SUBMODULE = b"160000"
_OFF = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "safe.bareRepository=explicit", "--no-pager"),
)
"""A repository may come from a stranger: no program that its own configuration names is started."""
_ALONE = {
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch by a command of its configuration
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1",
    "LC_ALL": "C",
    "PYTHONSAFEPATH": "1",  # the user's own filters start in the working tree
}
_PROGRAMS = re.compile(r"(filter|lfs\.extension|hook)\..+\.\w+", re.DOTALL)
"""Keys of programs by a name of one's choice, which no fixed option switches off."""
_SWITCHES = {"required": "false", "enabled": "false"}
"""Values that keep a driver without a program from being an error; others are empty."""
_USAGE = 129
"""Exit status of git that does not know an option."""
_PLAIN = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
"""Of `git diff`; inside a submodule git would follow the submodule's own configuration."""
_WORDS_BEFORE = {"1": 8, "u": 10, "?": 1}
"""Words before the path of an entry of `git status --porcelain=v2`, by its kind."""


@dataclass(frozen=True)
class Git:
    """The git state of a working tree."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
    diff: str = ""
    """`git diff HEAD` of a dirty tree, without left-out files under any name; cut at 1 MiB."""


def listed(folder: Path, *, excluded: Callable[[str], bool]) -> list[str] | None:
    """Names below a folder that are tracked, or untracked and not ignored; None outside a repository.

    A submodule or other nested repository is one name, which ends with a slash.

    Args:
        folder: any folder of a repository.
        excluded: whether a name does not matter.

    Raises:
        ClusterkitError: git failed, or could not read a folder or the rules of what it ignores.
    """
    done = _git(folder, "ls-files", "-z", "-t", "--stage", "--cached", "--others", "--exclude-standard")
    if done is None:
        return None
    for failed, path, reason in _UNREAD.findall(done.stderr.decode("utf-8", "surrogateescape")):
        name = path.removeprefix(_prefix(folder))
        rules = failed == "unable to access"
        # a .gitignore holds for its folder; .git/info/exclude and the user's own file for everything
        everywhere = rules and PurePosixPath(name).name != ".gitignore"
        if not everywhere and excluded(os.path.dirname(name) if rules else name):  # noqa: PTH120 - text only
            continue
        cure = "file, not a link" if rules else f'folder, or add "/{name}" to `exclude`'
        raise ClusterkitError(
            f"{folder / name}: {reason}" + ("; it says what git ignores" if rules else ""),
            hint=f"make it a readable {cure}",
        )
    return [_listed_name(entry) for entry in done.stdout.split(b"\0") if entry]


def _listed_name(entry: bytes) -> str:
    mode, name = tracked.groups() if (tracked := _TRACKED.fullmatch(entry)) else (b"", entry[2:])
    return os.fsdecode(name + (b"/" if mode == _SUBMODULE else b""))


def ignored(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of some names, existing or not, that git ignores, each by the rules of its own repository.

    Raises:
        ClusterkitError: git failed.
    """
    nested: dict[str, list[str]] = {}
    for name in names:
        above = [str(parent) for parent in reversed(PurePosixPath(name).parents[:-1])]
        home = next((inner for inner in above if os.path.lexists(folder / inner / ".git")), "")
        nested.setdefault(home, []).append(name)
    asked = [*nested.pop("", ()), *nested]  # git refuses to judge a name inside a submodule
    data = b"".join(os.fsencode(name) + b"\0" for name in asked)
    done = _git(folder, "check-ignore", "-z", "--stdin", stdin=data, fine=(0, 1)) if asked else None
    answer = [os.fsdecode(name) for name in done.stdout.split(b"\0") if name] if done else []
    found = [name for name in answer if name not in nested]
    for inner, members in nested.items():
        below = [name.removeprefix(f"{inner}/") for name in members]
        hidden = below if inner in answer else ignored(folder / inner, below)
        found += [f"{inner}/{name}" for name in hidden]
    return found


def stand(folder: Path, *, stays: Callable[[str], bool]) -> Git:
    """The git state of a project; left-out files do not make it dirty and are not in the diff.

    Args:
        folder: of the project.
        stays: whether a name (relative to the folder) is never uploaded.

    Raises:
        ClusterkitError: git failed.
    """
    options = ("-z", "--branch", "--no-ahead-behind", "--no-renames", "--untracked-files=all", _PLAIN[-1])
    done = _git(folder, "status", "--porcelain=v2", *options, "--", ".")
    if done is None:
        return Git()
    lines = [os.fsdecode(line) for line in done.stdout.split(b"\0") if line]
    facts = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit, branch = facts["branch.oid"], facts["branch.head"]
    if commit == "(initial)":
        if branch == "(unknown)":  # the branch is damaged; `git status` does not say so, `git log` does
            _git(folder, "log", "-1", "--no-show-signature")
        return Git()
    prefix = _prefix(folder)
    entries = [line.split(" ", _WORDS_BEFORE[line[0]]) for line in lines if line[0] in _WORDS_BEFORE]
    names = [(kind, words[-1].removeprefix(prefix)) for kind, *words in entries]
    known = [name for kind, name in names if kind != "?" and stays(name)]
    unknown = [name for kind, name in names if kind == "?" and stays(name)]
    dirty = len(known) + len(unknown) < len(names) or _has_dirty_submodule(folder, stays)
    diff = _diff(folder, known, unknown, stays) if dirty else ""
    return Git(commit, "HEAD" if branch == "(detached)" else branch, dirty, diff)


def between(folder: Path, old: str, new: str) -> list[tuple[str, int | None, int | None]] | None:
    """Files below a folder that differ between two commits, with their added and removed lines.

    Returns:
        Path, lines added and lines removed (None for a binary file); or None when the repository lacks one
        of the commits.

    Raises:
        ClusterkitError: git failed.
    """
    if not all(re.fullmatch(r"[0-9a-f]{4,64}", commit) for commit in (old, new)):
        return None
    known = _output(folder, "cat-file", "--batch-check", stdin=f"{old}\n{new}\n".encode())
    if known.count(b" commit ") != 2:
        return None
    data = _output(
        folder, "diff", *_PLAIN, "--numstat", "-z", "--no-renames", "--relative", old, new, "--", "."
    )
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
    plain = (*_PLAIN, "--no-color", "--no-renames", "--submodule=short", "--relative")
    spared = [f":(exclude,literal){name}" for name in {*known, *_related(folder, known, unknown, stays)}]
    data = _output(folder, "diff", *plain, "--irreversible-delete", "HEAD", "--", ".", *spared)
    cut = b"\n[the diff is longer; the snapshot has every file]\n" if len(data) > _LONGEST_DIFF else b""
    return (data[:_LONGEST_DIFF] + cut).decode("utf-8", "replace")


def _has_dirty_submodule(folder: Path, stays: Callable[[str], bool]) -> bool:
    """Whether a checked-out submodule below a folder differs from its commit; each is asked by itself."""
    entries = _output(folder, "ls-files", "-z", "--stage").split(b"\0")
    gitlinks = [os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(_SUBMODULE)]
    for name in gitlinks:
        inner = folder / name
        if os.path.lexists(inner / ".git") and not stays(name):
            own = _output(inner, "status", "--porcelain", "-z", _PLAIN[-1])
            if own or _has_dirty_submodule(inner, stays):
                return True
    return False


def _related(
    folder: Path, known: Sequence[str], unknown: Sequence[str], stays: Callable[[str], bool]
) -> list[str]:
    """Names of files that were renamed or copied from or to a left-out one, judged by similarity."""
    if not known and not unknown:
        return []
    index = _output(folder, "rev-parse", "--git-path", "index")
    with tempfile.TemporaryDirectory() as place:
        # A temporary index lets git compare untracked files too, without touching the user's index.
        ours = {"GIT_INDEX_FILE": f"{place}/index"}
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / os.fsdecode(index).removesuffix("\n"), ours["GIT_INDEX_FILE"])
        if names := [f":(literal){name}" for name in unknown[:_MOST_LOOKED_AT]]:
            add = ("add", "--intent-to-add", "--ignore-errors", "--", *names)
            _git(folder, *add, variables=ours, fine=(0, 1, 128))  # one that cannot be read is not compared
        likeness = ("--find-renames=20%", "--find-copies=20%", "--find-copies-harder")
        compared = ("diff", *_PLAIN, "--name-status", "-z", *likeness, "--relative", "HEAD", "--", ".")
        words = iter(os.fsdecode(_output(folder, *compared, variables=ours)).split("\0"))
    found = []
    for status in words:
        names = [next(words, "") for _ in range(2 if status[:1] in ("R", "C") else 1)]
        if len(names) == 2 and any(map(stays, names)):
            found += names
    return found


def _prefix(folder: Path) -> str:
    """A folder's path in its repository; ends with a slash unless it is empty."""
    return os.fsdecode(_output(folder, "rev-parse", "--show-prefix")).removesuffix("\n")


def _output(
    folder: Path, *args: str, stdin: bytes | None = None, variables: Mapping[str, str] | None = None
) -> bytes:
    """Git's output; empty outside a repository."""
    done = _git(folder, *args, stdin=stdin, variables=variables)
    return done.stdout if done else b""


def _git(
    folder: Path,
    *args: str,
    stdin: bytes | None = None,
    variables: Mapping[str, str] | None = None,
    fine: Container[int] = (0,),
) -> subprocess.CompletedProcess[bytes] | None:
    """Runs git; None outside a repository. An exit status that is not `fine` is a ClusterkitError.

    No program starts that the repository's own configuration names; those of the user's configuration do.
    """
    top = _top(folder)
    if top is None:
        return None
    off = _own_programs_off(folder, top)
    done = _started(folder, top, [*off, *args], stdin=stdin, variables=variables)
    if done.returncode not in fine:
        raise _failure(folder, top, done)
    return done


def _own_programs_off(folder: Path, top: Path) -> list[str]:
    """Options by which the filters and hooks that a repository names are what they are without it.

    Raises:
        ClusterkitError: git cannot read its configuration, or one of their names does not fit an option.
    """
    done = _started(folder, top, ["config", "--list", "--show-scope", "-z"])
    words = done.stdout.split(b"\0")[:-1]
    if done.returncode == _USAGE:  # git before 2.26; the user's own values are not told apart then
        done = _started(folder, top, ["config", "--list", "--local", "--includes", "-z"])
        words = [word for entry in done.stdout.split(b"\0")[:-1] for word in (b"local", entry)]
    if done.returncode != 0:
        raise _failure(folder, top, done)
    others: dict[str, str] = {}
    own: dict[str, str] = {}
    for scope, entry in zip(words[::2], words[1::2], strict=True):
        key, _, value = os.fsdecode(entry).partition("\n")
        if _PROGRAMS.fullmatch(key):
            (own if scope in (b"local", b"worktree") else others)[key] = value
    options = []
    for key in own:
        if "=" in key:
            raise ClusterkitError(
                f"{folder}: git: the repository's configuration names the program {key!r}",
                hint=f"remove it from {top / '.git' / 'config'}, or give it a name without `=`",
            )
        value = others.get(key, _SWITCHES.get(key.rpartition(".")[2], ""))
        options += ["-c", f"{key}={value}"]
    return options


def _started(
    folder: Path,
    top: Path,
    args: Sequence[str],
    *,
    stdin: bytes | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    # A hook or an editor names another repository in GIT_DIR, GIT_INDEX_FILE and others; settings count.
    others = re.compile(r"GIT_(?!CONFIG|EXEC_PATH)")
    environment = {name: value for name, value in os.environ.items() if not others.match(name)} | _ALONE
    if top != top.parent:  # git would take the next repository above for one that is damaged
        environment["GIT_CEILING_DIRECTORIES"] = str(top.parent)
    try:
        return subprocess.run(
            ["git", *_OFF, "-C", folder, *args],
            input=stdin,
            capture_output=True,
            check=False,
            env={**environment, **(variables or {})},
        )
    except OSError as error:
        reason = "not on PATH" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise ClusterkitError(
            f"{top} is a git repository, but git cannot be started: {reason}",
            hint="install git; nothing is sent while it is unknown what git ignores",
        ) from error


def _top(folder: Path) -> Path | None:
    """The nearest folder with a `.git`, this one or above."""
    here = folder.resolve()
    return next((place for place in (here, *here.parents) if os.path.lexists(place / ".git")), None)


def _failure(folder: Path, top: Path, done: subprocess.CompletedProcess[bytes]) -> ClusterkitError:
    """Git's own words, and the cure."""
    said = done.stderr.decode("utf-8", "replace")
    line = re.search(r"^(?:fatal|error): (.+:\n.+)|^fatal: (.+)", said, re.MULTILINE)
    words = last_words(line[1] or line[2] if line else said).replace(": / ", ": ")
    if done.returncode < 0:
        words = f"ended by signal {-done.returncode}"
    here, there = shlex.quote(str(folder)), shlex.quote(str(top))
    if offered := re.search(r"^\s+(git config .+)", said, re.MULTILINE):
        cure = f"if you trust its owner, `{offered[1]}`"
    elif "not a git repository" in words:
        moved = (top / ".git").is_file()
        cure = f"`git worktree repair {there}` in its main repository" if moved else "repair it"
        cure += f", or remove {top / '.git'}"
    elif "index" in words:
        cure = f"`cd {here} && rm $(git rev-parse --git-path index) && git reset` makes another"
    elif "extension" in words or "version" in words:
        cure = "use a newer git"
    else:
        cure = f"make `git -C {here} status` work"
    return ClusterkitError(
        f"{folder}: git: {words}",
        hint=f"{cure}; nothing is sent while it is unknown what git ignores",
    )
