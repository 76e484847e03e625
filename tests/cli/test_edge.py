"""Whatever the world does to a command: two lines, a documented exit code, and never a traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from clusterkit.cli.catalogue import SHORT
from clusterkit.cli.causes import fault_of, masked, masked_text
from clusterkit.errors import ClusterkitError
from clusterkit.runs.ledger import Ledger
from tests.runs.test_ledger import run as a_run
from tests.sampling import sampled

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = {
    "init": "init nowhere.invalid --yes",
    "deploy": "deploy --dry-run --cluster nowhere",
    "plan": "plan",
    "run": "run --cluster nowhere",
    "submit": "submit --dry-run",
    "status": "status",
    "why": "why groesse-1",
    "logs": "logs groesse-1",
    "curves": "curves groesse-1 --once",
    "shell": "shell größe-2",
    "forward": "forward größe-2 0:8888",
    "ssh": "ssh größe-2",
    "ssh-config": "ssh-config größe-2",
    "dev": "dev --cluster nowhere",
    "top": "top größe-2 --once",
    "cancel": "cancel größe-2 --yes",
    "resume": "resume größe-2",
    "doctor": "doctor --cluster nowhere",
    "rehearse": "rehearse --cluster nowhere",
    "tune": "tune größe-2",
    "sync-results": "sync-results größe-2",
    "report": "report groesse-1",
    "evaluate": "evaluate größe-2",
    "play": "play größe-2",
    "diff": "diff groesse-1 groesse-1",
    "export": "export größe-2",
    "rerun": "rerun größe-2",
    "search": "search größe",
    "storage": "storage --help",
    "storage clean": "storage clean größe-2",
    "storage list": "storage list",
    "storage prune": "storage prune --dry-run",
    "login": "login nowhere",
    "logout": "logout nowhere",
    "notify": "notify",
    "build": "build --cluster nowhere",
    "config": "config",
    "profiles": "profiles",
    "completion": "completion bash",
    "docs": "docs",
    "skill": "skill",
    "demo": "demo --config größe.toml",
}
"""Command -> words that are quick and change nothing; one run, groesse-1, is known and has no folder."""
NOBODY, STRANGER = 65534, 54321
"""Somebody else than root, who may write everywhere, and a user that the machine does not know."""


@dataclass(frozen=True)
class Result:
    """What came of a command."""

    code: int
    out: str
    err: str


def names() -> set[str]:
    return set(SHORT)


@pytest.fixture(scope="module")
def project() -> Iterator[Path]:
    """A project that every user may read, with a name that not every encoding has."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "größe-\udcff")
        folder.mkdir()
        (folder / "clusterkit.toml").touch()
        with Ledger(folder / ".clusterkit" / "ledger.sqlite3") as ledger:
            ledger.add(a_run("groesse-1", "1"))
        for path in (Path(name), *Path(name).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield folder


@cache
def user_at_work(user: int | None) -> subprocess.Popen[str]:
    """A process that runs commands in situations, which ends with this one."""
    argv = [sys.executable, str(ROOT / "tests" / "doubles" / "situations.py")]
    if user is not None and os.getuid() == 0:  # who may read our own packages, wherever they lie
        caps = [f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")]
        argv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *caps, *argv]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def results(
    situation: str, folder: Path, commands: dict[str, str], *, user: int | None = None
) -> dict[str, Result]:
    """What comes of commands in a situation; see tests/doubles/situations.py."""
    process = user_at_work(user)
    cases = [[situation, words.split(), os.fsdecode(folder)] for words in commands.values()]
    process.stdin.write(json.dumps([dict(os.environ), cases]) + "\n")
    process.stdin.flush()
    came = json.loads(process.stdout.readline())
    return {name: Result(**one) for name, one in zip(commands, came, strict=True)}


@cache
def documented() -> set[int]:
    page = (ROOT / "docs" / "exit-codes.md").read_text().partition("## The trainer")[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}


def check(name: str, result: Result) -> None:
    assert result.code in documented(), (name, result)
    assert "Traceback" not in result.out + result.err, (name, result)
    assert "bug in clusterkit" not in result.err, (name, result)


def test_every_command_is_here() -> None:
    assert names() == set(ANSWERS)


SITUATIONS = {
    "stdin_closed": None,
    "stdout_closed": None,
    "stdout_full": None,
    "stderr_full": None,
    "reader_gone": None,
    "ascii_only": None,
    "nothing_else": NOBODY,
    "no_home": STRANGER,
    "missing_home": NOBODY,
}
"""What is done to a command, and as which user it runs; None is the one who tests."""
PAIRS = [f"{name} {situation}" for situation in SITUATIONS for name in ANSWERS]


@pytest.mark.slow
@pytest.mark.parametrize("pair", sampled(PAIRS, 100))
def test_every_command_in_a_situation(pair: str, project: Path, tmp_path: Path) -> None:
    name, _, situation = pair.rpartition(" ")
    where, user = project, SITUATIONS[situation]
    if user is None:  # may write, so into a copy
        where = tmp_path / project.name
        shutil.copytree(project, where)
    result = results(situation, where, {name: ANSWERS[name]}, user=user)[name]
    check(name, result)
    if situation == "reader_gone" and result.code == 0:
        assert not result.out, (name, result)


@pytest.mark.slow
def test_a_mistake_of_ours_is_kept_in_a_private_file(tmp_path: Path) -> None:
    (tmp_path / "clusterkit.toml").touch()
    (tmp_path / ".clusterkit").mkdir()
    commands = {name: words for name, words in ANSWERS.items() if name != "storage"}  # runs nothing itself
    for name, result in results("mistake", tmp_path, commands).items():
        assert result.code == 70, (name, result)
        error, hint = result.err.splitlines()[-2:]
        assert error == "error: a bug in clusterkit itself: ZeroDivisionError: planted, with api_key=***"
        kept = re.search(r"details are in (\S+\.txt)", hint)
        assert kept, (name, result)
        file = Path(kept[1])
        assert file.parent == tmp_path / ".clusterkit"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        text = file.read_text()
        assert "Traceback" not in result.out + result.err
        assert "in _planted" in text, name
        assert "0123456789abcdef" not in text, name


@pytest.mark.slow
def test_a_mistake_in_a_thread(tmp_path: Path) -> None:
    (tmp_path / "clusterkit.toml").touch()
    result = results("mistake_in_a_thread", tmp_path, {"config": "config"})["config"]
    assert (result.code, "Traceback" in result.err) == (70, False)
    assert "error: a bug in clusterkit itself: ZeroDivisionError" in result.err
    assert "[profiles" in result.out  # the command itself went on


@pytest.mark.slow
def test_a_mistake_with_no_place_for_a_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    monkeypatch.setenv("TMPDIR", "/proc")
    if os.getuid() == 0:
        result = results("mistake", project, {"status": "status"}, user=NOBODY)["status"]
        assert result.code == 70
        assert "ZeroDivisionError: planted" in result.err
    monkeypatch.undo()


def test_reading_commands_need_not_write(project: Path) -> None:
    """A folder of somebody else's: what they know is shown, and nothing is written."""
    commands = {name: ANSWERS[name] for name in ("status", "why", "logs", "report")}
    before = sorted(project.rglob("*"))
    found = results("nothing_else", project, commands, user=NOBODY)
    assert found["status"].code == 0, found
    assert "groesse-1" in found["status"].out
    assert "cannot be" not in found["why"].err + found["report"].err
    assert sorted(project.rglob("*")) == before


@pytest.mark.needs("root")
def test_reading_commands_need_no_ledger(project: Path) -> None:
    """A folder where nothing was ever submitted, and nothing can be made."""
    bare = project.parent / "bare"
    bare.mkdir(exist_ok=True)
    (bare / "clusterkit.toml").touch()
    found = results(
        "nothing_else", bare, {"status": "status", "why": "why", "cancel": "cancel x"}, user=NOBODY
    )
    assert (found["status"].code, found["why"].code, found["cancel"].code) == (0, 8, 1), found
    assert "no runs yet" in found["status"].err
    assert ".clusterkit: cannot be made: Permission denied" in found["cancel"].err
    assert sorted(path.name for path in bare.iterdir()) == ["clusterkit.toml"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "code"),
    [(">&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 1), ("2>/dev/full", 0), ("| head -0", 141)],
)
def test_what_a_shell_does_to_the_streams(redirected: str, code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m clusterkit --help {redirected}; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(errno.EACCES, "x", "/f"), "/f: permission denied"),
        (IsADirectoryError(errno.EISDIR, "x", "/f"), "/f: is a folder"),
        (FileExistsError(errno.EEXIST, "x", "/f"), "/f: already exists"),
        (NotADirectoryError(errno.ENOTDIR, "x", "/f"), "/f: there is a file where"),
        (OSError(errno.ENOSPC, "x"), "a file: no space left"),
        (OSError(errno.EROFS, "x", "/f"), "/f: the file system is read-only"),
        (OSError(errno.EMFILE, "x", "/f"), "/f: too many open files"),
        (OSError(errno.EXDEV, "odd", b"/f\xff", None, "/g"), "/f\udcff -> /g: odd"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "a connection was lost: reset"),
        (TimeoutError("timed out"), "a connection was lost: timed out"),
        (MemoryError(), "no memory left"),
    ],
)
def test_errors_of_the_system_are_faults(error: BaseException, words: str) -> None:
    fault = fault_of(error)
    assert words in fault.cause
    assert fault.hint


@pytest.mark.parametrize("error", [OSError("ours"), KeyError("x"), sqlite3.ProgrammingError("ours")])
def test_our_mistakes_are_not_taken_for_faults(error: BaseException) -> None:
    assert fault_of(error) is None


def locked(path: Path) -> None:
    holder = sqlite3.connect(path, timeout=0.1, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    with sqlite3.connect(path, timeout=0.1, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    path.write_bytes(data)
    sqlite3.connect(path).execute("SELECT * FROM runs").fetchall()


def read_only(path: Path) -> None:
    sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("DELETE FROM runs")


def full(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA max_page_count = 1")
    connection.execute("CREATE TABLE more AS SELECT zeroblob(100000)")


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (locked, "process is using it"),
        (corrupt, "not a readable ledger"),
        (read_only, "read-only"),
        (full, "no space"),
    ],
)
def test_errors_of_the_ledger_are_faults(happens, words: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.add(a_run("a", "1"))
    with pytest.raises(sqlite3.DatabaseError) as caught:
        happens(tmp_path / "ledger")
    fault = fault_of(caught.value)
    assert isinstance(fault, ClusterkitError)
    assert words in fault.cause


def test_what_may_be_secret_is_not_kept() -> None:
    words = "submit --sbatch export=API_KEY=abc --password x --time 4h -- --token y"
    hidden = "submit --sbatch export=API_KEY=*** --password *** --time 4h -- *** ***"
    assert masked(words.split()) == hidden.split()
    told = masked_text("no such host: WANDB_API_KEY=abc, https://me:pw@host/x")
    assert told == "no such host: WANDB_API_KEY=*** https://***@host/x"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("{'HF_TOKEN': 'hush hush'}", "{'HF_TOKEN': ***}"),
        ("Authorization: Bearer hush", "Authorization: Bearer ***"),
        ("Command '['ssh', '--password', 'hush']'", "Command '['ssh', '--password', ***]'"),
        ("x --api-key hush y", "x --api-key *** y"),
    ],
)
def test_a_message_keeps_no_secret_of_several_words_or_in_a_list(text: str, kept: str) -> None:
    assert masked_text(text) == kept


def test_what_follows_a_secret_in_one_word_hides_nothing_before_it() -> None:
    assert masked(["export=ALL,HF_TOKEN=hush,A=1"]) == ["export=ALL,HF_TOKEN=***"]
