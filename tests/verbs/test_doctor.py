"""doctor on this machine, through the real command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.verbs.conftest import Project


def asks(project: Project, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """`doctor --json`, by check; of the document the rest as ``""``."""
    document = json.loads(project.run("doctor", "--json", *words, code=code).stdout)
    return {"": document, **{check["name"]: check for check in document["checks"]}}


@pytest.fixture
def offline(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Without W&B, which would be asked."""
    with (project.folder / "clusterkit.toml").open("a") as file:
        file.write('\n[project.wandb]\nmode = "disabled"\n')
    return project


def test_without_any_cluster_it_looks_at_this_machine_and_says_so(offline: Project) -> None:
    seen = asks(offline)
    assert seen[""]["schema"] == 1
    assert seen[""]["works"]
    assert seen["cluster"]["outcome"] == "warn"
    assert seen["cluster"]["cure"] == "clusterkit init"
    assert seen["container"]["outcome"] == "pass"
    assert not {"login", "partition", "job", "wandb", "image-here", "gpu"} & set(seen)
    assert not (offline.folder / ".clusterkit/local").exists()


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


def test_what_follows_a_fault_is_skipped_with_its_name(offline: Project) -> None:
    asks(offline, "--no-job")
    ledger = offline.folder / ".clusterkit/ledger.sqlite3"
    ledger.write_bytes(b"no database at all" * 100)
    done = offline.run("doctor", "--no-job", code=1)
    assert "  FAIL  ledger" in done.stdout
    assert "cure  move it away" in done.stdout
    assert "no job is wanted (--no-job)" in done.stdout
    assert "1 failed" in done.stdout
    seen = asks(offline, "--no-job", "-p", "nobody", code=1)
    assert seen["settings"]["outcome"] == "fail"
    assert "nobody" in seen["settings"]["evidence"]
    assert set(seen) == {"", "python", "settings"}


def test_a_wrong_time_is_a_usage_error(project: Project) -> None:
    assert "--wait" in project.run("doctor", "--wait", "soon", code=3).stderr
