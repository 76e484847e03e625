"""Snapshots: content-addressed, read-only copies of the working tree on a cluster.

A queued job runs the code it was submitted with, whatever is edited or deployed later. A snapshot
holds two trees: `project/` (the user's working tree, uncommitted changes included) and `bundle/`
(the trainer package of this clusterkit).
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from clusterkit.errors import ClusterkitError, TransportError
from clusterkit.site import Site
from clusterkit.transport.base import ProgressCallback, SyncOptions

ALWAYS_EXCLUDED = (
    ".git", ".clusterkit", ".venv*", "__pycache__", "*.pyc", "/wandb", "*.sif",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "node_modules",
)  # fmt: skip
"""Patterns as in `exclude`: a leading slash means the top of the project only."""
# What looks like a secret stays here, whatever git or the excludes say.
SECRETS = (
    ".env",
    ".env.*",
    ".netrc",
    "*.pem",
    "*.key",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    ".ssh",
    ".aws",
)
_READ_ONLY = "Dgo=,Fgo=,Fu-w"


@dataclass(frozen=True)
class Tree:
    """The files of one folder that make up a part of a snapshot."""

    root: Path
    files: tuple[str, ...]
    """Relative POSIX paths, sorted."""


@dataclass(frozen=True)
class Git:
    """Where the working tree stands."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
    diff: str = ""
    """`git diff HEAD` of a dirty tree."""


@dataclass(frozen=True)
class Snapshot:
    """A working tree ready to be sent, with its content address."""

    id: str
    project: Tree
    bundle: Tree
    bytes: int
    git: Git = field(default_factory=Git)
    withheld: tuple[str, ...] = ()
    """Files that look like secrets and stay on this machine."""

    def path(self, snapshots: str) -> str:
        """Where the snapshot lies below a cluster's snapshots folder."""
        return f"{snapshots}/{self.id}"


def take(project_dir: Path, *, exclude: Sequence[str], max_file_size: int) -> Snapshot:
    """Collect the working tree and the bundled trainer and compute their content address.

    Args:
        project_dir: the folder of clusterkit.toml.
        exclude: patterns of the configuration, against the relative path or any part of it.
        max_file_size: bytes; a larger file is refused, not sent.

    Raises:
        ClusterkitError: a file is over the limit.
    """
    names = list(_git_files(project_dir) or _walk(project_dir))
    patterns = (*ALWAYS_EXCLUDED, *exclude)
    kept = [name for name in names if not _matches(name, patterns)]
    withheld = tuple(sorted(name for name in kept if _matches(name, SECRETS)))
    files = tuple(sorted(set(kept) - set(withheld)))
    for name in files:
        size = (project_dir / name).lstat().st_size
        if size > max_file_size:
            raise ClusterkitError(
                f"{project_dir / name}: {size / 2**20:.0f} MiB is over the limit of "
                f"{max_file_size / 2**20:.0f} MiB a file",
                hint=f'add "{name}" to `exclude` in clusterkit.toml, or raise `max_file_size`',
            )
    project = Tree(project_dir, files)
    package = _trainer_package()
    bundle = Tree(
        package.parent,
        tuple(
            sorted(f"{package.name}/{name}" for name in _walk(package) if not _matches(name, ALWAYS_EXCLUDED))
        ),
    )
    digest = hashlib.sha256()
    total = _digest(digest, "project", project) + _digest(digest, "bundle", bundle)
    return Snapshot(digest.hexdigest()[:16], project, bundle, total, _git(project_dir, patterns), withheld)


def _trainer_package() -> Path:
    """The trainer's folder, found without importing it."""
    from importlib.util import find_spec

    spec = find_spec("trainer")
    if spec is None or not spec.submodule_search_locations:
        raise ClusterkitError("the trainer package is missing from this installation of clusterkit")
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def _digest(digest: hashlib._Hash, part: str, tree: Tree) -> int:
    total = 0
    for name in tree.files:
        path = tree.root / name
        if path.is_symlink():
            kind, content = "link", os.fsencode(path.readlink())
        else:
            kind, content = "exec" if os.access(path, os.X_OK) else "file", path.read_bytes()
        total += len(content)
        header = f"{part}\0{name}\0{kind}\0{len(content)}\0".encode("utf-8", "surrogateescape")
        digest.update(header + content)
    return total


def _matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a relative path, one of its folders or one of its parts matches a pattern."""
    parts = PurePosixPath(name).parts
    prefixes = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    anchored = [f"/{prefix}" for prefix in prefixes]
    return any(
        fnmatch.fnmatchcase(text, pattern.rstrip("/"))
        for pattern in patterns
        for text in (*parts, *prefixes, *anchored)
    )


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not _matches(name, ALWAYS_EXCLUDED)]
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*files, *linked):
            yield (Path(folder) / name).relative_to(root).as_posix()


def _git_output(project_dir: Path, *args: str) -> bytes | None:
    try:
        result = subprocess.run(["git", "-C", project_dir, *args], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None


def _git_files(project_dir: Path) -> list[str] | None:
    """Tracked and untracked-not-ignored files that exist; None outside a repository."""
    listed = _git_output(project_dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        return None
    names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    return [n for n in names if (project_dir / n).is_symlink() or (project_dir / n).is_file()]


def _git(project_dir: Path, excluded: Sequence[str]) -> Git:
    """Where the working tree stands; what never travels does not make it dirty."""
    commit = _git_output(project_dir, "rev-parse", "HEAD")
    if commit is None:
        return Git()
    branch = _git_output(project_dir, "rev-parse", "--abbrev-ref", "HEAD") or b""
    prefix = os.fsdecode(_git_output(project_dir, "rev-parse", "--show-prefix") or b"").strip()
    status = _git_output(project_dir, "status", "--porcelain", "-z", "--no-renames", "--", ".") or b""
    changed = [os.fsdecode(entry[3:]).removeprefix(prefix) for entry in status.split(b"\0") if entry]
    dirty = any(not _matches(name, excluded) for name in changed)
    diff = (_git_output(project_dir, "diff", "HEAD", "--", ".") or b"") if dirty else b""
    return Git(commit.decode().strip(), branch.decode().strip(), dirty, diff.decode("utf-8", "replace"))


def publish(site: Site, snapshot: Snapshot, *, progress: ProgressCallback | None = None) -> bool:
    """Bring a snapshot to the cluster; returns False when it was there already.

    Unchanged files are hard-linked against the newest snapshot there, so that many submits cost one
    copy. The folder appears under its name only when it is whole.
    """
    final = snapshot.path(site.layout.snapshots)
    part = f"{site.layout.snapshots}/.{snapshot.id}.{secrets.token_hex(4)}.part"
    result = site.transport.run(
        ["sh", "-c", _OPEN_PART, "sh", final, part, site.layout.snapshots], check=False
    )
    newest = result.text.strip()
    if newest == "present":
        return False
    if result.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot write {part}: {result.reason}")
    for name, tree in (("project", snapshot.project), ("bundle", snapshot.bundle)):
        previous = f"{site.layout.snapshots}/{newest}/{name}" if newest else None
        # By content: to rsync's quick check an edit of the same size within one second looks unchanged.
        options = SyncOptions(files_from=tree.files, link_dest=previous, checksum=True, mode=_READ_ONLY)
        if tree.files:
            site.transport.push(tree.root, f"{part}/{name}", options=options, progress=progress)
    site.transport.run(["sh", "-c", _PUBLISH_PART, "sh", final, part])
    return True


# $1 the snapshot, $2 its partial folder, $3 all snapshots. Prints "present", or the newest snapshot's name.
# A snapshot's time is when it was last submitted with: gc leaves what is young alone.
# Partial folders of uploads that broke off more than a day ago are removed on the way.
_OPEN_PART = """
if test -d "$1"; then touch "$1"; echo present; exit 0; fi
umask 077; mkdir -p "$2/project" "$2/bundle" || exit 1
find "$3" -maxdepth 1 -name '.*.part' -mmin +1440 -exec rm -rf {} + 2>/dev/null
ls -t "$3" | head -n 1
"""

# Two uploads of one snapshot may finish together: mv then moves the second folder into the first.
_PUBLISH_PART = """
if test -d "$1"; then rm -rf "$2"; else mv "$2" "$1" && rm -rf "$1/${2##*/}"; fi
"""
