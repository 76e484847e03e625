"""What git ignores stays here; where git cannot say what it ignores, nothing is sent."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError
from clusterkit.snapshots import git as snapshot_git
from tests.snapshots.conftest import as_nobody, commit, git, taken

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"


@pytest.fixture(autouse=True)
def plain_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of whoever runs the tests may trust every folder."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repository(project: Path) -> Path:
    (project / ".gitignore").write_text("data/\nprivate-notes.txt\n")
    commit(project)
    (project / "data").mkdir()
    (project / "data" / "replay.npz").write_text("ignored")
    (project / "private-notes.txt").write_text("ignored")
    assert not {"data/replay.npz", "private-notes.txt"} & set(taken(project).project.files)
    return project


def give_away(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 12345, 12345, follow_symlinks=False)


def damage_index(project: Path) -> None:
    (project / ".git" / "index").write_bytes(b"x" * 100)


def add_extension(project: Path) -> None:
    git(project, "config", "core.repositoryFormatVersion", "1")
    git(project, "config", "extensions.ofTomorrow", "true")


def empty_git(project: Path) -> None:
    shutil.rmtree(project / ".git")
    (project / ".git").mkdir()


def point_nowhere(project: Path) -> None:
    shutil.rmtree(project / ".git")
    (project / ".git").write_text("gitdir: /nowhere/at/all\n")


def damage_branch(project: Path) -> None:
    (project / ".git" / git(project, "symbolic-ref", "HEAD").strip()).write_text("damaged\n")


def remove_tree(project: Path) -> None:
    tree = git(project, "rev-parse", "HEAD^{tree}").strip()
    (project / ".git" / "objects" / tree[:2] / tree[2:]).unlink()


@pytest.mark.parametrize(
    ("damage", "words", "cure"),
    [
        pytest.param(
            give_away,
            "dubious ownership",
            "git config --global --add safe.directory",
            marks=pytest.mark.needs("root"),
        ),
        (damage_index, "index file corrupt", "git reset"),
        (add_extension, "unknown repository extension found: oftomorrow", "use a newer git"),
        (empty_git, "not a git repository", "remove"),
        (point_nowhere, "not a git repository: /nowhere/at/all", "git worktree repair"),
        (lambda project: (project / ".git/HEAD").write_text("damaged"), "not a git repository", "repair it"),
        (lambda project: (project / ".git/config").write_text("[core"), "bad config line", "status"),
        (damage_branch, "your current branch appears to be broken", "status"),  # the list of files is whole
        (remove_tree, "bad tree object HEAD", "status"),
    ],
)
@pytest.mark.parametrize("below", ["", "pkg"])
def test_a_repository_that_git_refuses_is_an_error_with_its_words_and_cure(
    repository: Path, damage: Callable[[Path], None], words: str, cure: str, below: str
) -> None:
    damage(repository)
    with pytest.raises(ClusterkitError, match=words) as caught:
        taken(repository / below)
    assert cure in str(caught.value.hint)


def test_a_worktree_whose_main_repository_moved(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "worktree"))
    assert taken(tmp_path / "worktree").git.commit
    repository.rename(tmp_path / "moved")
    with pytest.raises(ClusterkitError, match=r"not a git repository: .*worktrees/worktree") as caught:
        taken(tmp_path / "worktree")
    assert "git worktree repair" in str(caught.value.hint)
    git(tmp_path / "moved", "worktree", "repair", str(tmp_path / "worktree"))
    assert taken(tmp_path / "worktree").git.commit


def test_a_damaged_repository_is_not_taken_for_the_one_around_it(repository: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    (inner / "b.py").touch()
    commit(inner)
    (inner / ".git" / "HEAD").write_text("damaged")
    with pytest.raises(ClusterkitError, match="inner: git: not a git repository"):
        taken(inner)


@pytest.mark.parametrize("below", ["", "pkg"])
def test_git_that_is_not_there_or_is_killed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    monkeypatch.setenv("PATH", str(bin_))
    with pytest.raises(ClusterkitError, match="git cannot be started: not on PATH") as caught:
        taken(repository / below)
    assert "install git" in str(caught.value.hint)
    (bin_ / "git").write_text("#!/bin/sh\nkill -9 $$\n")
    (bin_ / "git").chmod(0o755)
    with pytest.raises(ClusterkitError, match="git: ended by signal 9"):
        taken(repository / below)
    shutil.rmtree(repository / ".git")
    assert "private-notes.txt" in taken(repository).project.files  # now there is no repository


@pytest.mark.parametrize(
    "name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES", "GIT_LITERAL_PATHSPECS"]
)
def test_the_environment_of_a_hook_or_an_editor_leads_to_no_other_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (repository / "pkg" / "a.py").write_text("a = 2\n")
    (repository / ".env").write_text("secret")
    git(repository, "add", ".env")
    expected = taken(repository / "pkg"), taken(repository)
    other = tmp_path / "other"
    other.mkdir()
    commit(tmp_path)
    value = {"GIT_DIR": other.parent / ".git", "GIT_CEILING_DIRECTORIES": repository}.get(name, other)
    monkeypatch.setenv(name, "1" if name == "GIT_LITERAL_PATHSPECS" else str(value))
    found = taken(repository / "pkg"), taken(repository)
    assert [(s.id, s.git) for s in found] == [(s.id, s.git) for s in expected]


def test_trust_given_by_the_environment_counts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.excludesFile")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(repository.parent / "mine"))
    (repository.parent / "mine").write_text("new.py\n")
    (repository / "new.py").touch()
    assert "new.py" not in taken(repository).project.files


@pytest.mark.parametrize("around", ["a repository", "none"])
def test_a_nested_repository_that_git_refuses(repository: Path, around: str) -> None:
    inner = repository / "vendor" / "inner"
    inner.mkdir(parents=True)
    (inner / "b.py").touch()
    commit(inner)
    if around == "none":
        shutil.rmtree(repository / ".git")
    damage_index(inner)
    with pytest.raises(ClusterkitError, match=r"vendor/inner: git: index file corrupt"):
        taken(repository)
    assert "vendor/inner/b.py" not in taken(repository, "/vendor").project.files


def test_a_repository_in_a_project_outside_one_keeps_what_it_ignores(project: Path) -> None:
    inner = project / "vendor" / "inner"
    inner.mkdir(parents=True)
    (inner / ".gitignore").write_text("data/\n")
    (inner / "b.py").touch()
    commit(inner)
    (inner / "data").mkdir()
    (inner / "data" / "x").touch()
    names = taken(project).project.files
    assert {"vendor/inner/b.py", "pkg/a.py"} <= set(names)
    assert "vendor/inner/data/x" not in names
    assert "vendor/inner/data/x" in taken(project, include=("vendor/inner/data/*",)).project.files


def test_a_project_that_git_ignores_as_a_whole(repository: Path) -> None:
    inner = repository / "data"
    with pytest.raises(ClusterkitError, match="git ignores every file") as caught:
        taken(inner)
    assert "include" in str(caught.value.hint)
    assert taken(inner, include=("replay.npz",)).project.files == ("replay.npz",)


def test_an_ignored_folder_in_place_of_a_tracked_file_stays(repository: Path) -> None:
    (repository / ".gitignore").write_text("pkg/a.py/\n")
    (repository / "pkg" / "a.py").unlink()
    (repository / "pkg" / "a.py").mkdir()
    (repository / "pkg" / "a.py" / "x").touch()
    snapshot = taken(repository)
    assert not [name for name in (*snapshot.project.files, *snapshot.special) if name.startswith("pkg")]


@pytest.mark.parametrize("below", ["", "sub"])
@pytest.mark.parametrize("rules", ["sub/.gitignore", ".git/info/exclude"])
def test_rules_that_git_cannot_read_are_an_error(
    open_place: Path, monkeypatch: pytest.MonkeyPatch, rules: str, below: str
) -> None:
    project = open_place / "project"
    (project / "sub" / "data").mkdir(parents=True)
    git(project, "init", "-q")
    (project / rules).write_text("data/\n")
    (project / "sub" / "data" / "x").touch()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(open_place / "none"))
    monkeypatch.setenv("HOME", str(open_place))
    (project / rules).chmod(0)
    with as_nobody(project):
        for exclude in ("unrelated", ".gitignore"):
            with pytest.raises(
                ClusterkitError, match=r"(gitignore|exclude): Permission|use \.git/info/exclude"
            ):
                taken(project / below, exclude)


def test_a_link_in_place_of_a_gitignore_is_an_error(repository: Path) -> None:
    (repository / ".gitignore").rename(repository.parent / "rules")
    (repository / ".gitignore").symlink_to(repository.parent / "rules")
    with pytest.raises(ClusterkitError, match=r"\.gitignore: Too many levels of symbolic links") as caught:
        taken(repository)
    assert "not a link" in str(caught.value.hint)


def test_an_untracked_name_that_looks_like_an_entry_of_the_index(repository: Path) -> None:
    name = f"160000 {'a' * 40} 0\tdata"
    (repository / name).touch()
    assert name in taken(repository).project.files


@pytest.mark.needs("a checkout that others may read")
def test_a_folder_that_cannot_be_read_is_named_from_a_folder_below_the_repository(
    open_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(open_place / "none"))
    monkeypatch.setenv("HOME", str(open_place))
    (open_place / "project" / "sub" / "locked").mkdir(parents=True)
    (open_place / "project" / "sub" / "a.py").touch()
    git(open_place / "project", "init", "-q")
    (open_place / "project" / "sub" / "locked").chmod(0)
    with as_nobody(open_place / "project"):
        with pytest.raises(ClusterkitError, match="project/sub/locked: Permission denied"):
            taken(open_place / "project" / "sub")
        assert taken(open_place / "project" / "sub", "/locked").project.files == ("a.py",)
    (open_place / "project" / "sub" / "locked").chmod(0o700)


def test_each_other_question_fails_with_git_too(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD").strip()
    assert snapshot_git.ignored(repository, ["data/new", "new.py"]) == ["data/new"]
    (repository / ".git" / "config").write_text("[core")
    for question in (
        lambda: snapshot_git.ignored(repository, ["data/new", "new.py"]),
        lambda: snapshot_git.stand(repository, stays=lambda name: False),
        lambda: snapshot_git.between(repository, head, head),
    ):
        with pytest.raises(ClusterkitError, match="bad config line"):
            question()


def test_names_in_nested_repositories_are_judged_by_their_own_rules(repository: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / ".gitignore").write_text("*.o\n")
    commit(source)
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "--quiet", "add", str(source), "lib/sub")
    shutil.copytree(source, repository / "data" / "clone")
    names = ["lib/sub/a.o", "lib/sub/a.c", "lib/a.o", "data/clone/a.c", "private-notes.txt"]
    ignored = {"lib/sub/a.o", "data/clone/a.c", "private-notes.txt"}
    assert set(snapshot_git.ignored(repository, names)) == ignored


def test_a_submodule_that_is_not_checked_out_is_refused_unless_excluded(
    repository: Path, tmp_path: Path
) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    source.mkdir()
    (source / "b.py").touch()
    commit(source)
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "--quiet", "add", str(source), "lib/sub")
    git(repository, "commit", "-qm", "submodule")
    subprocess.run(["git", "clone", "-q", repository, clone], check=True)
    with pytest.raises(ClusterkitError, match=r"submodule .*lib/sub is not checked out") as caught:
        taken(clone)
    assert "git submodule update --init" in str(caught.value.hint)
    assert "pkg/a.py" in taken(clone, "/lib/sub").project.files
    git(clone, *allowed, "submodule", "--quiet", "update", "--init")
    assert "lib/sub/b.py" in taken(clone).project.files
    shutil.rmtree(clone / ".git" / "modules")
    with pytest.raises(ClusterkitError, match="lib/sub: git: not a git repository"):
        taken(clone)


def test_a_pointer_of_git_lfs_is_refused_unless_excluded(project: Path) -> None:
    (project / "model.bin").write_text(POINTER)
    with pytest.raises(ClusterkitError, match=r"model\.bin: only its Git LFS pointer is here") as caught:
        taken(project)
    assert "git lfs pull" in str(caught.value.hint)
    assert "model.bin" not in taken(project, "/model.bin").project.files
    (project / "model.bin").write_text(f"{POINTER}more\n")
    assert "model.bin" in taken(project).project.files


def test_a_git_folder_that_cannot_be_read(open_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(open_place / "none"))
    monkeypatch.setenv("HOME", str(open_place))
    project = open_place / "project"
    project.mkdir()
    git(project, "init", "-q")
    (project / ".git").chmod(0)
    with as_nobody(project), pytest.raises(ClusterkitError, match="git: not a git repository") as caught:
        taken(project)
    assert "repair it" in str(caught.value.hint)
    (project / ".git").chmod(0o700)
