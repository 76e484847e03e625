"""Taking a snapshot: what travels, what stays and is named, and what its address depends on."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError, ConfigError
from clusterkit.sharing.comparison import Changed, changed_in
from clusterkit.snapshots import Large, take
from tests.snapshots.conftest import commit, git, taken

BASE = {"link", "pkg/a.py", "train me.sh"}


def test_uncommitted_and_untracked_files_travel_ignored_ones_stay(project: Path) -> None:
    (project / ".gitignore").write_text("*.log\n")
    commit(project)
    (project / "x.log").write_text("ignored")
    (project / "pkg" / "a.py").write_text("a = 2\n")
    (project / "new.py").write_text("new")
    snapshot = taken(project)
    assert set(snapshot.project.files) == BASE | {".gitignore", "new.py"}
    assert snapshot.git.dirty
    assert "+a = 2" in snapshot.git.diff
    assert len(snapshot.git.commit or "") == 40


def test_what_never_travels_does_not_make_the_tree_dirty(project: Path) -> None:
    commit(project.parent)
    for folder in ("results", ".clusterkit"):
        (project / folder).mkdir()
        (project / folder / "x").write_text("x")
    assert not taken(project, "/results").git.dirty
    assert taken(project).git.dirty


@pytest.mark.parametrize("removed", [False, True], ids=["changed", "removed"])
def test_the_diff_holds_no_secret_and_no_excluded_file(project: Path, removed: bool) -> None:
    for name in (".env", "notes.txt"):
        (project / name).write_text("hidden-before\n")
    commit(project)
    for name in (".env", "notes.txt"):
        (project / name).unlink() if removed else (project / name).write_text("hidden-after\n")
    assert not taken(project, "notes.txt").git.dirty
    (project / "pkg" / "a.py").write_text("a = 2\n")
    snapshot = taken(project, "notes.txt")
    assert "+a = 2" in snapshot.git.diff
    assert "hidden" not in snapshot.git.diff


SECRET = "".join(f"hidden-{number}\n" for number in range(20))


@pytest.mark.slow
@pytest.mark.parametrize("name", [".envrc", "keys/id_rsa", "notes.txt"])
@pytest.mark.parametrize(
    "how", ["git mv", "mv", "mv and edit", "ignored", "copy", "copy, untracked", "back", "mode", "binary"]
)
def test_the_diff_holds_nothing_of_a_file_that_takes_or_drops_a_name_that_stays_here(
    project: Path, name: str, how: str
) -> None:
    config, kept = project / "config.txt", project / name
    kept.parent.mkdir(exist_ok=True)
    (kept if how in ("back", "mode") else config).write_text("\0" * (how == "binary") + SECRET)
    commit(project)
    if how in ("git mv", "binary"):
        git(project, "mv", "config.txt", name)
    elif how == "mv":
        config.rename(kept)
    elif how == "ignored":
        (project / ".gitignore").write_text(f"/{name}\n")
        config.rename(kept)
    elif how == "mv and edit":
        config.unlink()
        kept.write_text("other\n" * 60 + SECRET)
        git(project, "add", "-A")
    elif how.startswith("copy"):
        kept.write_text(SECRET)
        config.write_text(SECRET + "hidden-more\n")
        if how == "copy":
            git(project, "add", "-A")
    elif how == "back":
        git(project, "mv", name, "config.txt")
    else:
        kept.chmod(0o755)
    (project / "pkg" / "a.py").write_text("a = 2\n")
    before = git(project, "status", "--porcelain")
    diff = taken(project, "notes.txt").git.diff
    assert "+a = 2" in diff
    assert "hidden" not in diff
    assert git(project, "status", "--porcelain") == before, "the look changed the index"


def test_the_diff_tells_of_a_deleted_file_without_its_text(project: Path) -> None:
    (project / "old.py").write_text("gone = 1\n")
    commit(project)
    (project / "old.py").unlink()
    diff = taken(project).git.diff
    assert "deleted file mode" in diff
    assert "gone" not in diff
    assert changed_in(diff) == (Changed("old.py", 0, None),)


def test_the_diff_of_a_submodule_is_its_commit(project: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / ".env").write_text("hidden-before\n")
    git(inner, "init", "-q")
    commit(inner)
    commit(project)
    git(project, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
    commit(project)
    (project / "inner" / ".env").write_text("hidden-after\n")
    commit(project / "inner")
    git(project, "config", "diff.submodule", "diff")
    diff = taken(project).git.diff
    assert "+Subproject commit" in diff
    assert "hidden" not in diff


def test_a_huge_diff_is_cut(project: Path) -> None:
    commit(project)
    (project / "pkg" / "a.py").write_text("x = 1\n" * 300_000)
    diff = take(project, exclude=(), max_file_size=1 << 30).git.diff
    assert 1 << 20 < len(diff) < (1 << 20) + 100
    assert "the snapshot has every file" in diff


def test_a_repository_inside_travels_by_its_own_rules(project: Path) -> None:
    inner = project / "vendor" / "inner"
    inner.mkdir(parents=True)
    (inner / ".gitignore").write_text("*.o\n")
    (inner / "b.py").write_text("b")
    commit(inner)
    (inner / "b.o").write_text("o")
    (inner / "new.py").write_text("n")
    commit(project)  # as a submodule without .gitmodules
    expected = {f"vendor/inner/{name}" for name in (".gitignore", "b.py", "new.py")}
    assert set(taken(project).project.files) == BASE | expected


def test_the_same_without_git(project: Path) -> None:
    snapshot = taken(project)
    assert set(snapshot.project.files) == BASE
    assert snapshot.git.commit is None


@pytest.mark.parametrize("with_git", [False, True])
def test_clusterkitignore(project: Path, with_git: bool) -> None:
    if with_git:
        commit(project)
    (project / ".clusterkitignore").write_text("# big\n/pkg\n")
    assert set(taken(project).project.files) == BASE - {"pkg/a.py"} | {".clusterkitignore"}
    (project / ".clusterkitignore").write_text("!pkg\n")
    with pytest.raises(ConfigError, match=r"\.clusterkitignore:1"):
        taken(project)


def test_secrets_stay_and_are_named_unless_included(project: Path) -> None:
    secrets = {".env", "id_ed25519", "server.pem", "pkg/.netrc"}
    for name in secrets:
        (project / name).write_text("secret")
    snapshot = taken(project)
    assert set(snapshot.withheld) == secrets
    assert set(snapshot.project.files) == BASE
    some = taken(project, include=("server.pem",))
    assert set(some.withheld) == secrets - {"server.pem"}
    assert set(some.project.files) == BASE | {"server.pem"}


def test_include_brings_what_git_ignores_and_exclude_is_stronger(project: Path) -> None:
    (project / ".gitignore").write_text("*.pt\n")
    commit(project)
    for name in ("start.pt", "pkg/other.pt"):
        (project / name).write_text("weights")
    assert "start.pt" not in taken(project).project.files
    assert {"start.pt", "pkg/other.pt"} <= set(taken(project, include=("*.pt",)).project.files)
    assert "pkg/other.pt" not in taken(project, "pkg/*.pt", include=("*.pt",)).project.files


def test_a_file_over_the_limit_is_refused_or_asked_about(project: Path) -> None:
    (project / "data.bin").write_bytes(b"0" * 10_001)
    with pytest.raises(ClusterkitError, match=r"data\.bin: .* is over the limit") as caught:
        taken(project)
    assert "--send-large" in str(caught.value.hint)
    asked: list[tuple[list[Large], int]] = []

    def answer(allowed: bool) -> set[str]:
        def allow(files: Sequence[Large], limit: int) -> bool:
            asked.append((list(files), limit))
            return allowed

        return set(take(project, exclude=(), max_file_size=10_000, allow=allow).project.files)

    assert "data.bin" in answer(True)
    with pytest.raises(ClusterkitError, match="over the limit"):
        answer(False)
    assert asked == [([Large("data.bin", 10_001)], 10_000)] * 2


def test_the_address_follows_content_names_modes_and_links_only(project: Path) -> None:
    first = taken(project).id
    os.utime(project / "pkg" / "a.py", (1, 1))
    assert taken(project).id == first
    (project / "train me.sh").chmod(0o644)
    assert taken(project).id != first
    (project / "train me.sh").chmod(0o755)
    (project / "link").unlink()
    (project / "link").symlink_to("elsewhere")
    assert taken(project).id != first


def test_the_bundled_trainer_comes_along(project: Path) -> None:
    files = taken(project).bundle.files
    assert "trainer/__main__.py" in files
    assert any(name.startswith("trainer/recipes/") for name in files)
    assert not any("__pycache__" in name for name in files)


def test_git_settings_of_the_user_do_not_change_the_diff(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(project)
    (project / "pkg" / "a.py").write_text("a = 2\n")
    plain = taken(project).git.diff
    (tmp_path / "gitconfig").write_text('[color]\nui = always\n[diff]\nexternal = "false"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    git(project, "config", "diff.mnemonicPrefix", "false")
    assert taken(project).git.diff == plain
