"""logs on the local cluster: the last lines, several attempts, standard error, a silent cluster."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from clusterkit.runs import pieces
from clusterkit.transport.local import LocalTransport
from tests.commands.conftest import Project
from tests.doubles.person import type_at_terminal

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each

TALK = """
import os, sys, time
attempt = os.environ["CLUSTERKIT_ATTEMPT"]
for number in range(int(sys.argv[1])):
    print(f"attempt {attempt} line {number}")
print(f"attempt {attempt} trouble", file=sys.stderr)
if "wait" in sys.argv:
    while not os.path.exists(os.environ["CLUSTERKIT_RUN_DIR"] + "/go" + attempt): time.sleep(0.05)
sys.exit(85 if "again" in sys.argv and attempt == "0" else 0)
"""


@pytest.fixture
def talk(project: Project) -> Project:
    (project.folder / "train.py").write_text(TALK)
    return project


def start_again(project: Project, run_id: str) -> None:
    """What a requeue does: the same job script once more."""
    subprocess.run(["bash", project.run_dir(run_id) / "job.sh"], check=False, capture_output=True)


def test_the_last_lines(talk: Project) -> None:
    run_id = talk.submit("--", "100000")
    talk.ended(run_id)
    log = (talk.run_dir(run_id) / "attempts/0/log").read_text().splitlines(keepends=True)
    for count in (0, 1, 7, 50, 99_000, 200_000):
        last = log[len(log) - min(count, len(log)) :]
        assert talk.run("logs", "--lines", str(count)).stdout == "".join(last)
    assert talk.run("logs", "-n", "3").stdout == talk.run("logs", "--lines", "3").stdout == "".join(log[-3:])
    assert talk.run("logs").stdout == "".join(log[-50:])


def test_attempts_and_standard_error(talk: Project) -> None:
    run_id = talk.submit("--", "2", "again")
    talk.ended(run_id)
    start_again(talk, run_id)
    logs = [(talk.run_dir(run_id) / f"attempts/{number}/log").read_text() for number in (0, 1)]
    assert talk.run("logs").stdout == logs[1]
    assert talk.run("logs", "--attempt", "0").stdout == logs[0]
    assert talk.run("logs", "--all").stdout == "".join(logs)
    assert talk.run("logs", "--stderr").stdout == "attempt 1 trouble\n"
    assert talk.run("logs", "--all", "--stderr").stdout == "attempt 0 trouble\nattempt 1 trouble\n"
    missing = talk.run("logs", "--attempt", "2", code=8)
    assert "there is no attempt 2; it has attempts 0 to 1" in missing.stderr
    assert "exclude each other" in talk.run("logs", "--attempt", "1", "--all", code=3).stderr


def test_followed_from_start_to_start(talk: Project) -> None:
    run_id = talk.submit("--until-done", "--", "3", "wait", "again")
    folder = talk.run_dir(run_id)
    talk.until((folder / "attempts/0/log").exists)
    follower = talk.start("logs", "-f")
    first = "".join(follower.stdout.readline() for _ in range(6))  # all that it says before `go0`
    (folder / "go0").touch()
    talk.until((folder / "attempts/1/log").exists)
    (folder / "go1").touch()
    shown, said = follower.communicate(timeout=180)
    assert first + shown == "".join((folder / f"attempts/{number}/log").read_text() for number in (0, 1))
    node = json.loads((folder / "attempts/0/start.json").read_text())["node"]
    assert f"attempt 1 on {node} continues" in said


def test_a_silent_cluster_has_the_synced_copy(talk: Project) -> None:
    run_id = talk.submit("--", "9")
    talk.ended(run_id)
    talk.run("sync-results")
    toml = talk.folder / "clusterkit.toml"
    before = talk.run("logs").stdout
    toml.write_text(toml.read_text() + '\n[clusters.far]\nhost = "127.0.0.1:1"\nroot = "/x"\n')
    with sqlite3.connect(talk.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        ledger.execute("UPDATE runs SET cluster = 'far'")
    offline = talk.run("logs")
    assert offline.stdout == before
    assert "this is the synced copy" in offline.stderr
    assert talk.run("logs", "-n", "2").stdout == "".join(before.splitlines(keepends=True)[-2:])
    talk.run("logs", "--attempt", "3", code=8)
    with sqlite3.connect(talk.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        ledger.execute("UPDATE runs SET cluster = 'gone'")
    unknown = talk.run("logs")
    assert unknown.stdout == before
    assert "'gone'" in unknown.stderr
    (talk.folder / "results").rename(talk.folder / "elsewhere")
    assert "'gone'" in talk.run("logs", code=3).stderr


def test_a_log_that_is_not_there_any_more(talk: Project) -> None:
    run_id = talk.submit("--", "9")
    talk.ended(run_id)
    talk.run("sync-results")
    before = talk.run("logs").stdout
    (talk.run_dir(run_id) / "attempts/0/log").unlink()
    cleaned = talk.run("logs", "--attempt", "0")
    assert cleaned.stdout == before
    assert "no longer on local; this is the synced copy" in cleaned.stderr
    (talk.folder / "results").rename(talk.folder / "elsewhere")
    gone = talk.run("logs", "--all")
    assert gone.stdout == ""
    assert "the log of attempt 0 is no longer on local and was not synced" in gone.stderr


def test_a_log_without_line_ends_is_not_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(1 << 40)
    chunks = [*pieces.read_pieces(LocalTransport(), [pieces.Piece(str(log), lines=50)])]
    assert chunks[0].offset == (1 << 40) - pieces._WINDOW
    assert chunks[-1].offset == 1 << 40
    assert sum(len(chunk.data) for chunk in chunks) == pieces._WINDOW


def test_a_terminal_gets_what_does_not_control_it_and_all_of_it_with_raw(talk: Project) -> None:
    (talk.folder / "train.py").write_text(r"print('\x1b[31mred\x1b[0m \x1b]0;title\x07 10%\r 20%')")
    run_id = talk.submit()
    talk.ended(run_id)
    log = (talk.run_dir(run_id) / "attempts/0/log").read_bytes().decode().replace("\n", "\r\n")

    def shown(*options: str) -> str:
        words = ("logs", run_id, *options)
        return type_at_terminal(words, {}, folder=talk.folder, environment=os.environ).stdout

    assert "\x1b[31mred\x1b[0m  10%\r 20%\r\n" in shown()
    assert "title" not in shown()
    assert shown("--raw") == log
    assert "exclude each other" in talk.run("logs", "--raw", "--json", code=3).stderr
