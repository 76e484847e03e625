"""sync-results over a real sshd: nothing is asked twice, and nothing is imported for what is not there."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.slurm_site import DONE, FAILED, SlurmSite

pytestmark = pytest.mark.slow


def sync(site: SlurmSite, *words: str, code: int = 0) -> str:
    done = site.types("sync-results", "--no-wandb", *words, code=code)
    return done.stdout + done.stderr


def test_nothing_new_is_one_login_and_one_command(site: SlurmSite) -> None:
    site.knows([DONE, FAILED])
    sync(site)
    logins, commands = site.server.accepted_logins(), site.round_trips()
    assert sync(site).count("up to date") == 2
    assert (site.server.accepted_logins(), site.round_trips()) == (logins + 1, commands + 1)


@pytest.mark.needs("sshd")
def test_nothing_new_imports_nothing_that_only_news_need(tmp_path: Path) -> None:
    with closing(SlurmSite(tmp_path / "site", cold=True)) as site:
        site.knows([DONE])
        sync(site)
        told = site.types("sync-results", "--no-wandb", PYTHONPROFILEIMPORTTIME="1").stderr
    lines = [line for line in told.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "paramiko.transport" in imported
    news = {"clusterkit.transport.rsync", "clusterkit.commands.track", "clusterkit.wandb.log"}
    others = {"asyncio", "trainer.recipe", "clusterkit.transport.openssh.master"}
    assert imported & (news | others) == set()


def test_what_has_changed_comes_with_one_more_command(site: SlurmSite) -> None:
    site.knows([DONE])
    sync(site)
    commands = site.round_trips()
    log = f"{DONE.run_id}/attempts/0/log"
    (site.root / "runs" / log).write_text("a line\n")
    sync(site)
    assert (site.project / "results" / log).read_text() == "a line\n"
    assert site.round_trips() == commands + 2


def checkpoint(site: SlurmSite, digest: str) -> None:
    folder = site.root / "runs" / DONE.run_id / "checkpoints/step-1"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"weights")
    files = {"model.pt": {"bytes": 7, "sha256": digest}}
    (folder / "manifest.json").write_text(json.dumps({"step": 1, "files": files}))


def test_a_checkpoint_that_came_home_damaged_is_code_1(site: SlurmSite) -> None:
    site.knows([DONE, FAILED])
    checkpoint(site, "0" * 64)
    told = sync(site, code=1)
    assert "checkpoints/step-1/model.pt is damaged: its SHA-256 does not match its manifest" in told
    assert f"error: 1 file of {DONE.run_id} did not fit on the disk or arrived damaged" in told
    assert (site.project / "results" / FAILED.run_id / "run.json").exists()


def test_a_file_that_does_not_fit_on_the_disk_is_code_1(site: SlurmSite) -> None:
    site.knows([DONE, FAILED])
    large = site.root / "runs" / DONE.run_id / "large"
    large.touch()
    os.truncate(large, 2 * shutil.disk_usage(site.project).free)
    for _ in range(2):
        told = sync(site, code=1)
        assert "not synced: large: it has " in told
        assert f"error: 1 file of {DONE.run_id} did not fit on the disk or arrived damaged" in told
    assert (site.project / "results" / FAILED.run_id / "run.json").exists()
    large.unlink()
    assert "error" not in sync(site)


@pytest.mark.parametrize("name", ["away", "zone"])
def test_a_cluster_that_fails_does_not_stop_the_others(site: SlurmSite, name: str) -> None:
    site.knows([DONE])
    with site.ledger() as ledger:
        ledger.add(replace(site.entry(FAILED), cluster=name))
    told = sync(site, code=3)
    assert name in told
    assert (site.project / "results" / DONE.run_id / "run.json").exists()
    with (site.project / "clusterkit.toml").open("a") as file:
        file.write(f'\n[clusters.{name}]\nhost = "ssh://127.0.0.1:9"\nroot = "/x"\ncontainer = "none"\n')
    told = sync(site, code=4)
    assert DONE.run_id in told
    assert "127.0.0.1" in told
