"""doctor on this machine, through the real command line."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.allowing import allow
from tests.commands.conftest import Project
from tests.programs import write_program

pytestmark = pytest.mark.slow


def asks(project: Project, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """`doctor --json`, by check; of the document the rest as ``""``."""
    document = json.loads(project.run("doctor", "--json", *words, code=code).stdout)
    return {"": document, **{check["name"]: check for check in document["checks"]}}


@pytest.fixture
def offline(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Without W&B, which would be asked."""
    project.add('\n[project.wandb]\nmode = "disabled"\n')
    return project


def test_without_any_cluster_it_looks_at_this_machine_and_says_so(offline: Project) -> None:
    seen = asks(offline)
    assert seen[""]["schema"] == 2
    assert seen[""]["works"]
    assert seen["cluster"]["outcome"] == "warn"
    assert seen["cluster"]["cure"] == "clusterkit init"
    assert seen["container"]["outcome"] == "pass"
    assert not {"login", "partition", "job", "wandb", "image-here", "gpu"} & set(seen)
    assert not (offline.folder / ".clusterkit/local").exists()


def test_a_library_is_looked_for_where_the_code_mentions_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    libraries = {"torch", "rendering", "wandb", "wandb-login", "wandb-server"}
    assert not libraries & set(asks(project))
    (project.folder / "agent.py").write_text("import mujoco\n")
    assert libraries & set(asks(project)) == {"rendering"}
    settings = project.folder / "clusterkit.toml"
    settings.write_text(settings.read_text().replace('"train.py"', '"-m", "trainer", "check"'))
    assert libraries <= set(asks(project, "--no-job"))


def test_what_is_safe_is_mended(offline: Project) -> None:
    root = offline.folder / ".clusterkit/local"
    (root / "runs").mkdir(parents=True)
    root.chmod(0o755)
    (root / "runs").chmod(0o750)
    before = asks(offline, "--no-job")
    assert before["modes"]["outcome"] == "warn"
    after = asks(offline, "--no-job", "--fix")
    assert after["modes"]["outcome"] == "pass"
    assert after["modes"]["fixed"].startswith("chmod go= ")
    assert [path.stat().st_mode & 0o777 for path in (root, root / "runs")] == [0o700, 0o700]


def test_what_cannot_be_mended_stops_nothing(
    offline: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of somebody else's, as an image store that a group shares."""
    (offline.folder / ".clusterkit/local").mkdir(parents=True)
    (offline.folder / ".clusterkit/local").chmod(0o755)
    write_program(tmp_path, "chmod", "echo chmod: Operation not permitted >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    seen = asks(offline, "--no-job", "--fix")
    assert seen["modes"]["outcome"] == "warn"
    assert seen["modes"]["fixed"].startswith("not all: chmod go= ")
    assert seen["modes"]["fixed"].endswith("Operation not permitted")
    assert seen["room"]["outcome"] == "pass"


def test_what_follows_a_fault_is_skipped_with_its_name(offline: Project) -> None:
    asks(offline, "--no-job")
    ledger = offline.folder / ".clusterkit/ledger.sqlite3"
    ledger.write_bytes(b"no database at all" * 100)
    done = offline.run("doctor", "--no-job", code=1)
    assert "  FAIL  ledger" in done.stdout
    assert "cure  move it away" in done.stdout
    assert "not checked (--no-job)" in done.stdout
    assert "1 failed" in done.stdout
    seen = asks(offline, "--no-job", "-p", "nobody", code=1)
    assert seen["settings"]["outcome"] == "fail"
    assert "nobody" in seen["settings"]["evidence"]
    assert set(seen) == {"", "python", "settings"}


def test_each_fault_of_the_settings_has_a_line(offline: Project) -> None:
    offline.add("\n[clusters.far]\nport = 1\nuser = 'x'\n")
    lines = offline.run("doctor", "--no-job", code=1).stdout.splitlines()
    faults = [line.split(":")[2].strip() for line in lines if "unknown key" in line]
    assert faults == ["clusters.far.port", "clusters.far.user"]


def test_a_program_that_stays_here_is_told_before_a_job_waits_for_it(offline: Project) -> None:
    assert asks(offline, "--no-job")["code"]["outcome"] == "pass"
    (offline.folder / "train.py").rename(offline.folder / "trian.py")
    seen = asks(offline, "--no-job", code=1)["code"]
    assert seen["outcome"] == "fail"
    assert "did you mean trian.py" in seen["evidence"]


def test_a_wrong_time_is_a_usage_error(project: Project) -> None:
    assert "--wait" in project.run("doctor", "--wait", "soon", code=3).stderr


@pytest.fixture
def short_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of kept logins, with a name that is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        (Path(folder) / "clusterkit").mkdir(mode=0o700)
        yield Path(folder) / "clusterkit"


def test_an_open_key_and_a_dead_socket_are_mended_before_the_login(
    offline: Project, tmp_path: Path, short_runtime: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("not looked into")
    key.chmod(0o644)
    dead = short_runtime / ("0" * 16)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    (tmp_path / "ssh_config").write_text(f"Host away\n  HostName 127.0.0.1\n  Port 9\n  IdentityFile {key}\n")
    offline.add('\n[clusters.away]\nhost = "away"\nroot = "/x"\ncontainer = "none"\n')
    offline.add(f'ssh_config = "{tmp_path}/ssh_config"\n')
    allow(offline.folder)
    before = asks(offline, "-c", "away", code=1)
    assert [before[name]["outcome"] for name in ("ssh-key", "kept-login", "reachable")] == [
        "warn",
        "warn",
        "fail",
    ]
    assert before["root"]["because"] == before["job"]["because"] == "reachable failed"
    after = asks(offline, "-c", "away", "--fix", code=1)
    assert [after[name]["outcome"] for name in ("ssh-key", "kept-login")] == ["pass", "pass"]
    assert after["ssh-key"]["fixed"] == f"chmod go= {key}"
    assert key.stat().st_mode & 0o777 == 0o600
    assert not dead.exists()
