"""Secrets of a run on the local cluster: the program has them, and no file shows them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.allowing import allow
from tests.commands.conftest import Project
from tests.snapshots.conftest import commit

TOKEN = "hf_0123456789abcdefXYZ"
PROGRAM = """
import hashlib, os, pathlib, sys, time
token = os.environ["HF_TOKEN"]
print("the token is", token, flush=True)
print("the seed is", os.environ["CLUSTERKIT_SEED"], flush=True)
print(token, file=sys.stderr, flush=True)
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
(run / "proof").write_text(hashlib.sha256(token.encode()).hexdigest())
if "sleep" in sys.argv:
    time.sleep(600)
sys.exit(int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 0)
"""
SECRETS = '\n[secrets]\nnames = ["HF_TOKEN"]\n'

pytestmark = pytest.mark.slow


@pytest.fixture
def own(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a secret, and a program that prints it."""
    project.add(SECRETS)
    (project.folder / "train.py").write_text(PROGRAM)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return project


def shows(folder: Path, value: str = TOKEN) -> list[Path]:
    """The files that contain a text."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if value.encode() in path.read_bytes()]


def folders(project: Project) -> list[Path]:
    """The folders of secrets on the cluster."""
    return list((project.folder / ".clusterkit" / "local" / "secrets").glob("*"))


def had_it(project: Project, run_id: str) -> bool:
    proof = project.run_dir(run_id) / "proof"
    return proof.exists() and proof.read_text() == hashlib.sha256(TOKEN.encode()).hexdigest()


def test_program_has_it_and_no_file_shows_it(own: Project) -> None:
    run_id = own.submit()
    own.ended(run_id)
    assert had_it(own, run_id)
    assert "the token is ***\n" in own.run("logs", run_id).stdout
    assert (own.run_dir(run_id) / "attempts" / "0" / "stderr").read_text() == "***\n"
    own.until(lambda: folders(own) == [])
    own.run("sync-results", "--no-wandb")
    own.run("export", run_id, "--out", "archive.tar.gz")
    assert shows(own.folder) == []


def test_it_is_private_and_encrypted_while_it_is_needed(own: Project) -> None:
    run_id = own.submit("--", "sleep")
    own.until(lambda: had_it(own, run_id))
    (folder,) = folders(own)
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "values")] == [
        0o700,
        0o700,
        0o600,
    ]
    assert shows(own.folder) == []
    assert own.run("shell", run_id, "--", "sh", "-c", "printf %s $HF_TOKEN").stdout == TOKEN
    own.run("cancel", run_id, "--yes")
    assert folders(own) == []


def test_resumed_run_gets_it_again(own: Project) -> None:
    run_id = own.submit("--", "3")
    own.ended(run_id)
    (own.run_dir(run_id) / "proof").unlink()
    own.until(lambda: folders(own) == [])
    own.run("resume", run_id)
    own.until((own.run_dir(run_id) / "attempts" / "1" / "exit.json").exists)
    assert had_it(own, run_id)
    own.until(lambda: folders(own) == [])


def test_each_run_of_a_group_gets_it(own: Project) -> None:
    group = own.submit("--seeds", "1..3")
    ids = [row["run_id"] for row in own.rows(group)]
    own.ended(*ids)
    assert len(ids) == 3
    assert all(had_it(own, run_id) for run_id in ids)
    own.until(lambda: folders(own) == [])


def test_status_removes_what_a_killed_job_has_left(own: Project) -> None:
    run_id = own.submit("--", "sleep")
    own.until(lambda: had_it(own, run_id))
    start = json.loads((own.run_dir(run_id) / "attempts" / "0" / "start.json").read_text())
    os.kill(start["pid"], signal.SIGKILL)
    assert len(folders(own)) == 1
    own.until(lambda: "FAILED" in own.run("status", "--all").stdout)
    assert folders(own) == []


def test_secret_without_a_value_is_refused_before_any_work(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    done = own.run("submit", code=3)
    assert "the secret HF_TOKEN has no value on this machine" in done.stderr
    assert "keyring set clusterkit HF_TOKEN" in done.stderr
    monkeypatch.setenv("HF_TOKEN", "short")
    done = own.run("submit", "--dry-run", code=3)
    assert "has 5 characters, and must have 8 to" in done.stderr
    assert not (own.folder / ".clusterkit" / "local" / "runs").exists()


def test_command_prints_the_value(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    (own.folder.parent / "token").write_text(TOKEN)
    manager = own.folder / "manager.sh"
    manager.write_text("cat ../token")
    own.add('commands = { HF_TOKEN = ["sh", "manager.sh"] }\n')
    allow(own.folder)
    run_id = own.submit()
    own.ended(run_id)
    assert had_it(own, run_id)
    manager.write_text("echo wrong password >&2; exit 3")
    refused = own.run("submit", code=10)
    assert "secrets.commands.HF_TOKEN = sh manager.sh (changed)" in refused.stderr
    assert "wrong password" not in refused.stderr
    own.run("config", "allow")
    done = own.run("submit", code=3)
    assert "wrong password" in done.stderr
    assert "the command of the secret HF_TOKEN ended with 3" in done.stderr


def test_keyring_has_the_value(own: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "ring.py").write_text(
        "from keyring.backend import KeyringBackend\n"
        "class Ring(KeyringBackend):\n"
        "    priority = 1\n    set_password = None\n"
        "    def get_password(self, service, username):\n"
        f"        return {TOKEN!r} if (service, username) == ('clusterkit', 'HF_TOKEN') else None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "ring.Ring")
    run_id = own.submit()
    own.ended(run_id)
    assert had_it(own, run_id)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    done = own.run("submit", code=3)
    assert "HF_TOKEN has no value on this machine; the keyring said: " in done.stderr
    assert "No recommended backend was available" in done.stderr


def test_resumed_group_asks_for_the_value_once(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    group = own.submit("--seeds", "1..3", "--", "3")
    status = ("status", "--json", group)
    own.until(lambda: all(run["final"] for run in json.loads(own.run(*status).stdout)["runs"]))
    monkeypatch.delenv("HF_TOKEN")
    (own.folder.parent / "manager.sh").write_text(f"echo asked >>asked; echo {TOKEN}")
    own.add('commands = { HF_TOKEN = ["sh", "../manager.sh"] }\n')
    allow(own.folder)
    own.run("resume", group)
    assert (own.folder / "asked").read_text() == "asked\n"
    own.run("rerun", group)
    assert (own.folder / "asked").read_text() == "asked\n" * 2


SEARCH = ("search", "s", "--space", "x=1,2", "--trials", "1", "--")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("submit", "--", TOKEN), "argument 2 of the program"),
        (("submit", "--dry-run", "--", f"--x=https://{TOKEN}@host"), "argument 2 of the program"),
        (("submit", "--name", TOKEN), "--name"),
        (("submit", "--sweep", f"x=a,{TOKEN}", "--", "{x}"), "argument 2 of the program"),
        (("submit", "--cluster", "far", "--sbatch", f"comment={TOKEN}"), "the scheduler's option --comment"),
        (("search", "s", "--space", f"x=a,{TOKEN}", "--", "{x}"), "search.space.x"),
        ((*SEARCH, "{x}", TOKEN), "search.arguments.1"),
        (("rehearse", "--profile", "shows"), "profiles.shows.env.X"),
        (("build", "--cluster", "far", "--from", f"docker://me:{TOKEN}@host/image"), "request.source"),
    ],
)
def test_value_in_a_command_is_refused_and_nothing_is_written(
    own: Project, words: tuple[str, ...], place: str
) -> None:
    settings = own.folder / "clusterkit.toml"
    far = '\n[clusters.far]\nhost = "nowhere.invalid"\nroot = "/x"\n'
    shows = f'\n[profiles.shows]\nextends = "tiny"\nenv = {{ X = "{TOKEN}" }}\n' if "shows" in words else ""
    settings.write_text(
        settings.read_text().replace("[project]\n", '[project]\nexclude = ["*.toml"]\n') + far + shows
    )
    done = own.run(*words, code=3)
    assert f"the value of HF_TOKEN is in {place}, where others could read it" in done.stderr
    assert TOKEN not in done.stdout + done.stderr
    settings.unlink()
    assert shows_anywhere(own) == []


def shows_anywhere(project: Project) -> list[Path]:
    """The files and names in and beside a project that show the value."""
    named = [path for path in project.folder.parent.rglob("*") if TOKEN in path.name]
    return [*named, *shows(project.folder.parent)]


@pytest.mark.parametrize("command", ["submit", "deploy", "plan"])
def test_file_with_the_value_is_not_sent(own: Project, command: str) -> None:
    (own.folder / "notes.md").write_text(f"the token is {TOKEN}")
    done = own.run(command, code=3)
    assert "the value of HF_TOKEN is in notes.md, where others could read it" in done.stderr
    assert not (own.folder / ".clusterkit" / "local" / "snapshots").exists()
    (own.folder / "notes.md").unlink()
    assert shows_anywhere(own) == []


def test_line_that_was_removed_is_masked_in_the_recorded_diff(own: Project) -> None:
    (own.folder / "token.py").write_text(f"token = '{TOKEN}'\n")
    commit(own.folder)
    (own.folder / "token.py").write_text("import os\n")
    run_id = own.submit()
    own.ended(run_id)
    assert "-token = '***'" in own.described(run_id)["snapshot"]["diff"]
    assert shows(own.folder / ".clusterkit") == []


def test_run_that_shows_a_value_is_not_repeated(own: Project) -> None:
    settings = own.folder / "clusterkit.toml"
    text = settings.read_text()
    settings.write_text(text.replace('names = ["HF_TOKEN"]', "names = []"))
    run_id = own.submit("--", "3", TOKEN)
    own.ended(run_id)
    settings.write_text(text)
    for command in ("rerun", "resume"):
        done = own.run(command, run_id, code=3)
        assert "the value of HF_TOKEN is in argument 3 of the program" in done.stderr
    assert len(list((own.folder / ".clusterkit" / "local" / "runs").iterdir())) == 1


def test_search_asks_for_the_value_once(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    (own.folder.parent / "manager.sh").write_text(f"echo asked >>asked; echo {TOKEN}")
    own.add('commands = { HF_TOKEN = ["sh", "../manager.sh"] }\n')
    allow(own.folder)
    own.run(*SEARCH, "{x}", code=8)  # its trials log no metric
    assert (own.folder / "asked").read_text() == "asked\n"
