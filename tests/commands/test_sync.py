"""sync-results over a real sshd: nothing is asked twice, and nothing is imported for what is not there."""

from __future__ import annotations

from contextlib import closing
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


def test_an_unknown_cluster_gets_a_suggestion(site: SlurmSite) -> None:
    site.knows([DONE])
    assert "did you mean far?" in sync(site, "--cluster", "fat", code=3)
