"""dev --live, work push and work pull on the local cluster: what travels, and what never does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterkit.results.work_here import project_files
from clusterkit.results.work_there import WorkChange, arrived_folder, change_work
from clusterkit.snapshots.snapshot import entry_of
from clusterkit.transport.local import LocalTransport
from tests.commands.conftest import Project, new_project
from tests.doubles.person import type_at_terminal
from tests.transport.tools import all_but_rsync

pytestmark = pytest.mark.slow  # real jobs, half a second or more each


@dataclass(frozen=True)
class Live:
    """A project folder and the working copy of its live session."""

    project: Project
    run_id: str

    @property
    def here(self) -> Path:
        return self.project.folder

    @property
    def there(self) -> Path:
        return self.project.run_dir(self.run_id) / "work"

    def both(self, name: str, text: str) -> None:
        """Make a file that both sides have."""
        (self.here / name).parent.mkdir(parents=True, exist_ok=True)
        (self.here / name).write_text(text)
        self.push()

    def push(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.project.run("work", "push", *words, code=code)

    def pull(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.project.run("work", "pull", *words, code=code)


def commands_that_run() -> str:
    return subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live") / "my project"
    with pytest.MonkeyPatch.context() as patch:
        project = new_project(folder, patch)
        subprocess.run(["git", "init", "-q", folder], check=True)
        (folder / ".gitignore").write_text("*.out\n")
        (folder / ".env").write_text("TOKEN=secret\n")
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o755)
        (folder / "clusterkit.toml").write_text(
            (folder / "clusterkit.toml").read_text().replace("[project]", '[project]\nexclude = ["scrap"]')
        )
        run_id = project.run("dev", "--live", "--keep").stdout.strip()
        yield Live(project, run_id)
        project.run("cancel", run_id)


@pytest.fixture
def live(session: Live) -> Live:
    """With both sides alike."""
    session.pull("--delete", "--force")
    session.push("--delete", "--force")
    assert session.pull("--dry-run").stdout == ""
    return session


def test_shells_begin_in_a_copy_that_can_be_changed(live: Live) -> None:
    tell = "pwd; test -x run.sh && echo '# more' >> run.sh && ls -A"
    done = live.project.run("shell", live.run_id, "--", "sh", "-c", tell)
    where, *names = done.stdout.splitlines()
    assert Path(where) == live.there
    assert {"train.py", "run.sh"} <= set(names)
    assert ".env" not in names


def test_what_was_changed_travels_in_both_directions(live: Live) -> None:
    (live.here / "train.py").write_text("print('edited')\n")
    (live.here / "pkg/deep").mkdir(parents=True)
    (live.here / "pkg/deep/ü new.py").write_text("new\n")
    (live.here / "tool").write_text("#!/bin/sh\n")
    (live.here / "tool").chmod(0o755)
    shown = live.push("--dry-run")
    assert shown.stdout.splitlines() == ["pkg/deep/ü new.py", "tool", "train.py"]
    assert "3 files would be sent" in shown.stderr
    assert not (live.there / "tool").exists()
    assert live.push().stdout == shown.stdout
    assert live.push().stdout == ""
    assert (live.there / "train.py").read_text() == "print('edited')\n"
    assert (live.there / "pkg/deep/ü new.py").read_text() == "new\n"
    assert os.access(live.there / "tool", os.X_OK)

    (live.there / "train.py").write_text("print('there')\n")
    (live.there / "pkg/made.py").write_text("made\n")
    (live.there / "tool").chmod(0o600)
    before = live.here.joinpath("train.py").stat().st_mode
    shown = live.pull("--dry-run")
    assert shown.stdout.splitlines() == ["pkg/made.py", "tool", "train.py"]
    assert not (live.here / "pkg/made.py").exists()
    assert live.pull(live.run_id).stdout == shown.stdout
    assert live.pull().stdout == ""
    assert (live.here / "train.py").read_text() == "print('there')\n"
    assert live.here.joinpath("train.py").stat().st_mode == before
    assert (live.here / "tool").stat().st_mode & 0o111 == 0


def test_a_laptop_without_rsync_exchanges_files_too(
    live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(all_but_rsync(tmp_path / "tools")))
    (live.here / "slow").mkdir()
    (live.here / "slow/tool").write_text("#!/bin/sh\n")
    (live.here / "slow/tool").chmod(0o755)
    assert live.push().stdout == "slow/tool\n"
    assert (live.there / "slow/tool").read_text() == "#!/bin/sh\n"
    assert (live.there / "slow/tool").stat().st_mode & 0o777 == 0o700
    (live.there / "slow/tool").write_text("#!/bin/sh\n# there\n")
    (live.there / "slow/empty").touch()
    assert live.pull().stdout == "slow/empty\nslow/tool\n"
    assert (live.here / "slow/tool").read_text() == "#!/bin/sh\n# there\n"
    assert (live.here / "slow/tool").stat().st_mode & 0o777 == 0o755
    assert (live.here / "slow/empty").read_text() == ""
    assert not list(live.there.rglob(".clusterkit-partial"))


def test_git_judges_files_beside_a_submodule(live: Live) -> None:
    """It answers for none of the names if one of them lies in a submodule."""
    inner = live.here / "inner"
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "init", "-q", inner], check=True)
    subprocess.run(
        ["git", "-C", inner, *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True
    )
    subprocess.run(["git", "-C", live.here, "add", "inner"], check=True, capture_output=True)
    (live.there / "inner").mkdir()
    (live.there / "inner/new.py").write_text("new\n")
    (live.there / "beside.out").write_text("ignored\n")
    pulled = live.pull()
    assert pulled.stdout == "inner/new.py\n"
    assert "beside.out" in pulled.stderr
    assert not (live.here / "beside.out").exists()
    (live.there / "beside.out").unlink()


def test_a_file_that_both_have_changed_stays_until_one_is_forced(live: Live) -> None:
    live.both("both.py", "first\n")
    (live.here / "both.py").write_text("here\n")
    (live.there / "both.py").write_text("there\n")
    (live.here / "alone.py").write_text("alone\n")
    pushed = live.push(code=8)
    assert pushed.stdout == "alone.py\n"
    assert "changed both here and there, left as they are: both.py" in pushed.stderr
    assert "changed both here and there" in live.pull(code=8).stderr
    assert (live.here / "both.py").read_text() == "here\n"
    assert (live.there / "both.py").read_text() == "there\n"
    live.pull("--force")
    assert (live.here / "both.py").read_text() == "there\n"
    (live.here / "both.py").write_text("here again\n")
    (live.there / "both.py").write_text("there again\n")
    live.push("--force")
    assert (live.there / "both.py").read_text() == "here again\n"
    (live.here / "both.py").write_text("alike\n")
    (live.there / "both.py").write_text("alike\n")
    assert live.push().stdout == live.pull().stdout == ""


def test_deletions_travel_only_if_asked(live: Live) -> None:
    for name in ("gone-here", "gone-there", "gone-and-edited"):
        live.both(name, name)
    (live.here / "gone-here").unlink()
    (live.there / "gone-there").unlink()
    (live.here / "gone-and-edited").unlink()
    (live.there / "gone-and-edited").write_text("edited\n")
    kept = live.push()
    assert kept.stdout == ""
    assert "deleted here, kept there: gone-here; --delete" in kept.stderr
    assert "deleted there, kept here: gone-there; --delete" in live.pull("--dry-run", code=8).stderr
    deleted = live.push("--delete", code=8)
    assert deleted.stdout == "gone-here (deleted)\n"
    assert "left as they are: gone-and-edited" in deleted.stderr
    assert not (live.there / "gone-here").exists()
    assert (live.there / "gone-and-edited").exists()
    assert live.pull("--delete", "--force").stdout == "gone-and-edited\ngone-there (deleted)\n"
    assert not (live.here / "gone-there").exists()


def test_what_no_snapshot_contains_travels_neither_way(live: Live) -> None:
    names = ["id_rsa", "scrap/notes", "big.out", "results/x/metrics.jsonl", "__pycache__/x.pyc"]
    for side in (live.here, live.there):
        for name in names:
            (side / name).parent.mkdir(parents=True, exist_ok=True)
            (side / name).write_text(str(side))
    (live.there / ".git/hooks").mkdir(parents=True)
    (live.there / ".git/hooks/pre-commit").write_text("evil\n")
    (live.there / ".clusterkit").mkdir()
    (live.there / ".clusterkit/ledger.sqlite3").write_text("evil\n")
    (live.there / ".GIT").mkdir()
    (live.there / ".GIT/config").write_text("evil\n")
    (live.there / ".env").write_text("evil\n")
    assert live.push().stdout == ""
    pulled = live.pull()
    assert pulled.stdout == ""
    for name in names:
        assert (live.here / name).read_text() == str(live.here)
        assert (live.there / name).read_text() == str(live.there)
    assert (live.here / ".env").read_text() == "TOKEN=secret\n"
    assert not (live.here / ".git/hooks/pre-commit").exists()
    assert not (live.here / ".GIT/config").exists()
    assert ".env, id_rsa: left there: it looks like a secret" in pulled.stderr
    assert "big.out: left there: git ignores it" in pulled.stderr
    assert ".GIT/config: left there: its name means another file on some machines" in pulled.stderr


def test_a_cluster_does_not_choose_which_files_leave_this_machine(live: Live) -> None:
    before = {name: (live.here / name).read_text() for name in ("clusterkit.toml", ".gitignore")}
    for name in before:
        (live.there / name).write_text("")
    (live.there / ".clusterkitignore").write_text("")
    pulled = live.pull("--force")
    assert pulled.stdout == ""
    names = ".clusterkitignore, .gitignore, clusterkit.toml"
    assert f"{names}: left there: it decides which files leave this machine" in pulled.stderr
    assert {name: (live.here / name).read_text() for name in before} == before
    assert not (live.here / ".clusterkitignore").exists()
    (live.there / ".clusterkitignore").unlink()
    live.push("--force")


def test_no_link_is_followed_and_no_hostile_name_comes_home(live: Live, tmp_path: Path) -> None:
    live.both("data/x", "first\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("first\n")
    (live.there / "data/x").unlink()
    (live.there / "data").rmdir()
    (live.there / "data").symlink_to(outside)
    (live.here / "data/y").write_text("new\n")
    (live.there / "two\nlines").write_text("x")
    (live.here / "link").symlink_to("train.py")
    pushed = live.push()
    assert pushed.stdout == ""
    assert "link: left here: it is a link" in pushed.stderr
    assert f"data/y: left here: a link to outside the run (to {outside}), there" in pushed.stderr
    assert sorted(path.name for path in outside.iterdir()) == ["x"]
    pulled = live.pull()
    assert pulled.stdout == ""
    assert "characters that cannot be shown" in pulled.stderr
    assert "data: left there: a link to outside the run" in pulled.stderr
    (live.there / "two\nlines").unlink()
    (live.there / "data").unlink()
    (live.here / "link").unlink()

    live.push("--force")
    (live.there / "data/z").write_text("from there\n")
    (live.here / "data").rename(live.here / "moved")
    (live.here / "data").symlink_to(outside)
    pulled = live.pull()
    assert "data/z: left there" in pulled.stderr
    assert "is a link, and clusterkit does not write through links" in pulled.stderr
    assert sorted(path.name for path in outside.iterdir()) == ["x"]
    (live.here / "data").unlink()
    (live.here / "moved").rename(live.here / "data")


def test_an_interrupted_push_is_repeated(live: Live) -> None:
    for number in range(3):
        (live.here / f"large-{number}").write_bytes(os.urandom(24 << 20))
    arrived = live.there.parent / ".clusterkit-partial/work"
    process = subprocess.Popen(
        [sys.executable, "-m", "clusterkit", "work", "push"],
        cwd=live.here,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    live.project.until(lambda: arrived.exists() or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait()
    live.project.until(lambda: str(arrived) not in commands_that_run())  # its rsync
    live.push()
    for number in range(3):
        name = f"large-{number}"
        assert (live.there / name).read_bytes() == (live.here / name).read_bytes()
        (live.here / name).unlink()
    assert not arrived.exists()
    live.push("--delete")


def test_an_exchange_that_was_not_recorded_is_no_conflict(live: Live) -> None:
    base = live.here / ".clusterkit/live" / f"{live.run_id}.gz"
    assert base.stat().st_mode & 0o777 == 0o600
    before = base.read_bytes()
    (live.here / "unrecorded").write_text("new\n")
    live.push()
    base.write_bytes(before)  # as if it had been killed before it wrote this
    assert live.push().stdout == ""
    (live.there / "unrecorded").write_text("edited\n")
    assert live.pull().stdout == "unrecorded\n"
    base.write_bytes(b"damaged")
    assert "damaged" in live.push(code=8).stderr
    base.write_bytes(before)


def test_a_file_that_changes_during_an_exchange_is_left(live: Live) -> None:
    run_dir, name = str(live.there.parent), "raced.py"
    live.both(name, "first\n")
    seen = entry_of(live.there / name, (live.there / name).lstat())
    arrived = Path(arrived_folder(run_dir))
    arrived.mkdir(parents=True)
    (arrived / name).write_text("ours\n")
    (live.there / name).write_text("theirs\n")
    ours = entry_of(arrived / name, (arrived / name).lstat())
    left = change_work(LocalTransport(), run_dir, [WorkChange(name, seen, ours)])
    assert left == {name: "it was changed there in the meantime"}
    assert (live.there / name).read_text() == "theirs\n"
    arrived.mkdir(parents=True)
    (arrived / name).write_text("of another push\n")
    theirs = entry_of(live.there / name, (live.there / name).lstat())
    left = change_work(LocalTransport(), run_dir, [WorkChange(name, theirs, ours)])
    assert left == {name: "it changed while it was being sent"}
    assert (live.there / name).read_text() == "theirs\n"
    live.push("--force")

    from clusterkit.config.settings import load_settings

    here = project_files(load_settings(config=live.here / "clusterkit.toml"))
    (live.here / name).write_text("edited\n")
    staged = live.here / ".clusterkit/staged"
    staged.write_text("from there\n")
    assert here.place(name, staged, entry_of(staged, staged.lstat())) == "it was changed here in the meantime"
    assert (live.here / name).read_text() == "edited\n"
    assert here.remove(name) == "it was changed here in the meantime"


def test_dev_names_what_was_not_pulled_and_pull_works_after_the_end(project: Project) -> None:
    keys = iter(["echo edited > train.py; echo $((6 * 7))", "exit 3"])
    done = type_at_terminal(
        ["dev", "--live"],
        {") work$": lambda: next(keys)},
        folder=project.folder,
        environment={**os.environ, "TERM": "dumb", "COLUMNS": "200"},
    )
    assert done.returncode == 3, done.stdout
    assert "42\r\n" in done.stdout
    assert (
        "not pulled: train.py; they stay in the run directory, for `clusterkit work pull dev-" in done.stdout
    )
    assert project.run("work", "pull").stdout == "train.py\n"
    assert (project.folder / "train.py").read_text() == "edited\n"


def test_a_run_without_a_working_copy_says_so(project: Project) -> None:
    assert "no live session" in project.run("work", "pull", code=8).stderr
    run_id = project.submit("--", "0")
    refused = project.run("work", "push", run_id, code=8).stderr
    assert f"{run_id} has no working copy" in refused
    assert "clusterkit dev --live" in refused
    project.ended(run_id)
