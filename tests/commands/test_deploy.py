"""deploy over a real sshd: the plan is what happens, and nothing to do costs next to nothing."""

import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.allowing import allow
from tests.commands.conftest import CONFIG, Project
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.transport.runtime import runtime_folder
from tests.transport.tools import all_but_rsync

pytestmark = pytest.mark.slow


@pytest.fixture
@needing("sshd")
def sshd(tmp_path: Path) -> Iterator[LoopbackSshd]:
    with closing(LoopbackSshd(tmp_path / "sshd")) as server:
        yield server


@pytest.fixture
def remote(project: Project, sshd: LoopbackSshd, tmp_path: Path) -> Project:
    """The project with a cluster behind sshd, an image, and images on another root."""
    (project.folder / "image.sif").write_bytes(
        b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + bytes(range(256)) * 20_000
    )
    lines = [
        "[clusters.far]",
        'host = "node"',
        f'ssh_config = "{sshd.ssh_config}"',
        f'root = "{tmp_path}/far/root"',
        f'image_store = "{tmp_path}/far/store"',
        'image = "image.sif"',
    ]
    text = CONFIG.replace("[project]", '[project]\ndefault_cluster = "far"') + "\n".join(lines) + "\n"
    (project.folder / "clusterkit.toml").write_text(text)
    allow(project.folder)
    return project


def answer(project: Project, *options: str) -> dict[str, Any]:
    return dict(json.loads(project.run("deploy", "--json", *options).stdout))


def test_the_plan_changes_nothing_and_is_what_happens(remote: Project, tmp_path: Path) -> None:
    plan = answer(remote, "--dry-run")
    assert not (tmp_path / "far").exists()
    assert not plan["carried_out"]
    image_bytes = (remote.folder / "image.sif").stat().st_size
    assert plan["image"]["bytes_to_send"] == image_bytes
    assert plan["bytes_to_send"] == image_bytes + plan["code"]["bytes"]
    assert plan["rate"]["measured"] is None  # nothing was ever sent there: measured just now
    assert plan["seconds"] == pytest.approx(plan["bytes_to_send"] / plan["rate"]["bytes_per_second"])
    roots = {root["role"]: root for root in plan["roots"]}
    assert set(roots) == {"work root", "images", "scratch", "home"}
    assert all(root["free"] > 0 for root in roots.values())
    done = answer(remote)
    assert done["carried_out"]
    assert done["bytes_to_send"] == plan["bytes_to_send"]
    (image,) = (tmp_path / "far" / "store").glob("*.sif")
    assert image.read_bytes() == (remote.folder / "image.sif").read_bytes()
    assert (tmp_path / "far/root/snapshots" / done["code"]["id"] / "project/train.py").is_file()
    again = answer(remote, "--dry-run")
    assert (again["bytes_to_send"], again["image"]["present"], again["code"]["present"]) == (0, True, True)
    (remote.folder / "train.py").write_text("print(1)\n")
    small = answer(remote, "--dry-run")
    assert (small["code"]["files_to_send"], small["bytes_to_send"]) == (1, 9)
    assert small["rate"]["measured"]  # remembered from the deploy


def test_every_folder_is_private(remote: Project, tmp_path: Path) -> None:
    remote.run("deploy")
    for folder in [tmp_path / "far", *(tmp_path / "far").rglob("*")]:
        if folder.is_dir():
            assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0, folder


def test_nothing_to_do_is_one_login_and_one_command(remote: Project, sshd: LoopbackSshd) -> None:
    remote.run("deploy")
    log = sshd.log()
    assert remote.run("deploy").stdout.count("already there") == 2
    new = sshd.log().removeprefix(log)
    assert len(re.findall(r"^Accepted \S+ for ", new, re.MULTILINE)) == 1
    assert len(re.findall(r"^Starting session: command", new, re.MULTILINE)) == 1


def test_a_kept_login_needs_no_ssh_library_here(remote: Project, sshd: LoopbackSshd) -> None:
    remote.add('keep_login = "10m"\n')
    watched = (
        "import atexit, sys\nfrom clusterkit.cli.app import main\n"
        "heavy = {'paramiko', 'cryptography', 'nacl'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules)), flush=True))\nmain()"
    )
    with runtime_folder():
        for command in (["deploy"], ["deploy"], ["deploy", "--dry-run"], ["storage", "list"], ["status"]):
            done = subprocess.run(
                [sys.executable, "-c", watched, *command],
                cwd=remote.folder,
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout.endswith("\n[]\n") or done.stdout == "[]\n", command
    assert sshd.accepted_logins() == 1


def test_no_login_outlives_a_deploy_that_ends_before_it(remote: Project, sshd: LoopbackSshd) -> None:
    (remote.folder / "image.sif").write_bytes(b"no image")
    assert "not a SIF image" in remote.run("deploy", code=6).stderr
    remote.until(lambda: not sshd.sessions(), 60)


def test_what_does_not_fit_the_quota_is_refused_before_it_travels(
    remote: Project, sshd: LoopbackSshd, tmp_path: Path
) -> None:
    tools = sshd.home / "bin"
    tools.mkdir()
    lfs = tools / "lfs"
    lfs.write_text('#!/bin/sh\nfor path; do :; done\necho "  $path 9000 0 10000 - 12 0 0 -"\n')
    lfs.chmod(0o755)
    (sshd.home / ".bashrc").write_text(f'PATH="{tools}:$PATH"\n')
    plan = remote.run("deploy", "--dry-run")
    assert "quota leaves 1.0 MiB" in plan.stdout
    assert "does not fit:" in plan.stderr
    refused = remote.run("deploy", code=6)
    assert "allowed by the quota" in refused.stderr
    assert not list((tmp_path / "far" / "store").glob("*sha256*"))


def test_a_large_file_needs_the_flag_where_nobody_can_be_asked(remote: Project) -> None:
    with (remote.folder / "data.bin").open("wb") as file:
        file.truncate(101 << 20)
    assert "--send-large" in remote.run("deploy", "--dry-run", code=1).stderr
    assert answer(remote, "--dry-run", "--send-large")["code"]["bytes"] > 100 << 20


def test_a_laptop_without_rsync_deploys_too(
    remote: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(all_but_rsync(tmp_path / "tools")))
    done = remote.run("deploy")
    assert done.stderr.count("rsync is not installed on this machine") == 1
    (image,) = (tmp_path / "far" / "store").glob("*.sif")
    assert stat.S_IMODE(image.stat().st_mode) == 0o400
    snapshots = tmp_path / "far/root/snapshots"
    first = set(snapshots.iterdir())
    (remote.folder / "train.py").write_text("print(1)\n")
    remote.run("deploy")
    (second,) = set(snapshots.iterdir()) - first
    assert (second / "project/train.py").read_text() == "print(1)\n"
    old = next(path for path in first if (path / "project").is_dir())
    assert (second / "project/clusterkit.toml").samefile(old / "project/clusterkit.toml")


def test_every_secret_that_stays_here_is_named(project: Project) -> None:
    names = [f"a-key-with-a-rather-long-name-{number}.pem" for number in range(9)]
    for name in names:
        (project.folder / name).write_text("x")
    said = project.run("deploy").stderr
    assert [name for name in names if name not in "".join(said.split())] == []
    assert "..." not in said
