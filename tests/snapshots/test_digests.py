"""Files are read once: again as soon as anything about them says so, and never believed too early."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.runs.ledger import Ledger
from clusterkit.snapshots import Snapshot, snapshot, take


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "state" / "ledger.sqlite3") as opened:
        yield opened


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read; files come to rest at once."""
    monkeypatch.setattr(snapshot, "_AT_REST_NS", -(10**12))
    names: list[str] = []
    honest = snapshot._sha256

    def watched(path: Path) -> str:
        names.append(path.name)
        return honest(path)

    monkeypatch.setattr(snapshot, "_sha256", watched)
    return names


def again(project: Path, ledger: Ledger, read: list[str]) -> tuple[Snapshot, list[str]]:
    read.clear()
    taken = take(project, exclude=(), max_file_size=1 << 30, memory=ledger.connection)
    names = sorted(read)
    assert taken == take(project, exclude=(), max_file_size=1 << 30)
    return taken, names


def test_only_what_changed_is_read_again(project: Path, ledger: Ledger, read: list[str]) -> None:
    odd = os.fsdecode(b"odd\xff\n name")
    (project / odd).write_text("odd")
    first, names = again(project, ledger, read)
    assert {"a.py", "train me.sh", odd} < set(names)
    assert again(project, ledger, read) == (first, [])
    (project / "pkg" / "a.py").write_text("a = 3\n")
    (project / "new").write_text("new")
    assert again(project, ledger, read)[1] == ["a.py", "new"]
    assert again(project, ledger, read)[1] == []
    (project / "train me.sh").chmod(0o644)
    assert again(project, ledger, read)[1] == ["train me.sh"]  # its ctime says only that something changed


def test_an_edit_that_hides_behind_size_and_time_is_seen(
    project: Path, ledger: Ledger, read: list[str]
) -> None:
    file = project / "pkg" / "a.py"
    file.write_text("a = 1\n")
    before = file.stat()
    first, _ = again(project, ledger, read)
    file.write_text("a = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    edited, names = again(project, ledger, read)
    assert names == ["a.py"]
    assert edited.id != first.id
    other = project / "other"
    other.write_text("a = 1\n")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    assert again(project, ledger, read)[0].id == first.id


def test_a_file_changed_a_moment_ago_is_read_again(
    project: Path, ledger: Ledger, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_AT_REST_NS", 60 * 10**9)
    (project / "fresh").write_text("1")
    assert "fresh" in again(project, ledger, read)[1]
    assert "fresh" in again(project, ledger, read)[1]


def test_what_is_gone_is_forgotten_and_two_parts_of_one_folder_do_not_mix(
    project: Path, ledger: Ledger, read: list[str]
) -> None:
    (project / "gone").write_text("1")
    again(project, ledger, read)
    rows = ledger.connection.execute("SELECT count(*) FROM files").fetchone()[0]
    (project / "gone").unlink()
    again(project, ledger, read)
    assert ledger.connection.execute("SELECT count(*) FROM files").fetchone()[0] == rows - 1
    status = (project / "pkg" / "a.py").lstat()
    for part in ("one", "two"):
        mine = snapshot.Digests(ledger.connection, part, project)
        mine.learn("name", status, part)
        mine.save()
    assert snapshot.Digests(ledger.connection, "one", project).get("name", status) == "one"
