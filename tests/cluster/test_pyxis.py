"""Runs on a cluster whose containers Pyxis starts. In its place is files/pyxis.c, which has its options."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.allowing import allow, state
from tests.cluster import rootfs, small_image
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.site import FILES
from tests.doubles.person import type_at_terminal
from tests.needs import needing
from tests.waiting import until

PROFILES = """
[profiles.one]
gpu = "a40"
cpus = 2
memory = "1G"
time = "10m"
signal = "USR1"
program = ["python3", "one.py"]

[profiles.growing]
extends = "one"
memory = "60M"

[profiles.growing.retry]
memory_up_to = "120M"
"""
SITE = """
container = "pyxis"
binds = ["/share/pyxis/data:/data:ro", "/share/pyxis/both"]
prelude = ["export LEAKED=1 NVIDIA_VISIBLE_DEVICES=all"]
"""
PROGRAM = """
import json, os, pathlib, signal, sys, time

def writable(folder):
    try:
        (pathlib.Path(folder) / "probe").touch()
    except OSError:
        return False
    return True

def stop(number, frame):
    (run / "checkpoints" / "step-1").mkdir(parents=True)
    print("checkpoint at signal", number, flush=True)
    sys.exit(85)

run, what = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"]), sys.argv[1]
again = (run / "checkpoints").exists()
signal.signal(signal.SIGUSR1, stop)
signal.signal(signal.SIGTERM, lambda *_: (run / "terminated").touch() or sys.exit(1))
if what == "fails":
    sys.exit("no such luck")
if what == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "grows":
    filled = bytearray(os.urandom(1)) * (80 << 20)
if what.startswith("beside"):
    both = pathlib.Path("/share/pyxis/both")
    (both / what).touch()
    while len(os.listdir(both)) < 2:
        time.sleep(0.1)
if what == "waits":
    (run / "ready").touch()
    while not again:
        time.sleep(0.1)
folders = (run, os.environ["CLUSTERKIT_SCRATCH"], "/tmp", "/var/tmp", ".", "/data", "/usr")
facts = {
    "argv": sys.argv[1:],
    "env": dict(os.environ),
    "writable": [writable(folder) for folder in folders],
    "data": os.listdir("/data"),
    "homes": os.path.exists("/home/alice/.ssh"),
    "system": pathlib.Path("/etc/os-release").read_text(),
}
(run / "facts.json").write_text(json.dumps(facts))
print("said on stdout", flush=True)
print("said on stderr", file=sys.stderr)
"""


@pytest.fixture(scope="module")
@needing("gcc")
def site(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with the plugin until the end of this file."""
    plugin, stack = cluster.site.slurm / "pyxis.so", cluster.site.slurm / "plugstack.conf"
    header = f"-I{rootfs.rootfs() / 'usr/include'}"
    argv = ["gcc", "-Wall", "-Werror", "-shared", "-fPIC", header, "-o", str(plugin), str(FILES / "pyxis.c")]
    built = subprocess.run(argv, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    stack.write_text("required /etc/slurm/pyxis.so\n")
    stack.chmod(0o644)
    yield cluster
    stack.unlink()
    plugin.unlink()


@pytest.fixture(scope="module")
def user(site: Cluster, small_sif: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    """With the small image as enroot has it: the file system that is in the SIF."""
    folder = site.share / "pyxis"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "set.txt").touch()
    (folder / "both").mkdir()
    (folder / "both").chmod(0o777)
    (folder / "small.sif").write_bytes(small_sif.read_bytes())
    dump = "cd /share/pyxis; id=$(apptainer sif list small.sif | awk '/Squashfs/ {print $1}' FS='|'); "
    site.run("login", ["sh", "-c", f"{dump} apptainer sif dump $id small.sif >small.sqsh"])
    home = tmp_path_factory.mktemp("laptop")
    user = User.settle(home, site, folder / "small.sqsh")
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text().replace("[clusters.site]\n", f"[clusters.site]{SITE}")
    table = text[text.index("[clusters.site]") : text.index("[profiles")]
    lost = table.replace("clusters.site", "clusters.lost").replace("/pyxis/data", "/pyxis/gone")
    drawn = re.sub("\nimage = .*", '\nregistry_image = "docker://testbed#small"', table)
    drawn = drawn.replace("clusters.site", "clusters.drawn")
    none = drawn.replace("clusters.drawn", "clusters.none").replace("#small", "#none")
    settings.write_text(text + lost + drawn + none + PROFILES)
    allow(user.folder)
    (user.folder / "one.py").write_text(PROGRAM)
    user.types("deploy")
    return user


@pytest.fixture(scope="module")
def ids(user: User) -> dict[str, str]:
    """Runs that need nothing from outside, by name."""
    found = {
        name: user.submits("--profile", "growing" if name == "grows" else "one", "--name", name, "--", name)
        for name in ("facts", "fails", "dies", "grows")
    }
    pack = user.submits("--profile", "one", "--pack", "2", "--sweep", "x=1,2", "--", "beside-{x}")
    return found | {f"beside-{index + 1}": f"{pack}-{index}" for index in range(2)}


@pytest.fixture(scope="module")
def ended(user: User, ids: dict[str, str]) -> dict[str, dict[str, Any]]:
    """How they end."""
    seen: dict[str, dict[str, Any]] = {}
    until(lambda: all(run["final"] for run in (seen.update(user.status(*ids.values())) or seen).values()))
    return {name: seen[run_id] for name, run_id in ids.items()}


def why(user: User, run_id: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(user.types("why", "--json", run_id))
    return told


def waiting(user: User, *words: str) -> tuple[str, Path]:
    """A run whose program waits, and its folder."""
    run_id = user.submits("--profile", "one", *words, "--", "waits")
    folder = user.root / "runs" / run_id
    until(lambda: (folder / "ready").exists())
    return run_id, folder


def overwrite(file: Path, beginning: bytes) -> None:
    with file.open("r+b") as opened:
        opened.write(beginning)


def test_a_run_comes_home(user: User, ended: dict[str, dict[str, Any]]) -> None:
    run = ended["facts"]
    assert run["state"] == "COMPLETED", user.types("logs", run["run_id"])
    user.types("sync-results", run["run_id"])
    home = user.folder / "results" / run["run_id"]
    assert "said on stdout" in (home / "attempts/0/log").read_text()
    assert (home / "attempts/0/stderr").read_text() == "said on stderr\n"
    facts = json.loads((home / "facts.json").read_text())
    assert facts["argv"] == ["facts"]
    assert f"ID={small_image.NAME}" in facts["system"]
    assert facts["writable"] == [True, True, True, True, True, False, False]
    assert facts["data"] == ["set.txt"]
    assert not facts["homes"]
    env = facts["env"]
    assert env["HOME"] == f"{env['CLUSTERKIT_SCRATCH']}/home"
    assert (env["TMPDIR"], env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"]) == ("/tmp", "0", "all")
    assert env["SLURM_JOB_ID"] == run["job_id"]
    assert "LEAKED" not in env
    assert list((user.root / "scratch").iterdir()) == []


def test_how_the_program_ends_is_how_the_run_ends(user: User, ended: dict[str, dict[str, Any]]) -> None:
    exits = {
        name: json.loads((user.root / "runs" / ended[name]["run_id"] / "attempts/0/exit.json").read_text())
        for name in ("fails", "dies")
    }
    assert (exits["fails"]["code"], exits["fails"]["why"]) == (1, "failed")
    assert why(user, ended["fails"]["run_id"])["sentence"].endswith("with an error: exit code 1")
    killed = exits["dies"]
    assert (killed["code"], killed["why"], killed["signal"]) == (137, "signalled", "KILL")


def test_runs_of_a_pack_share_the_job(ended: dict[str, dict[str, Any]]) -> None:
    assert [ended[f"beside-{one}"]["state"] for one in "12"] == ["COMPLETED", "COMPLETED"]


def test_out_of_memory_is_tried_again_with_more(ended: dict[str, dict[str, Any]]) -> None:
    run = ended["grows"]
    assert (run["state"], run["attempt"]) == ("COMPLETED", 1)
    assert run["why"] == "try 2, with 120M after out of memory"


def test_at_the_signal_it_saves_and_goes_on_in_a_requeue(user: User) -> None:
    run_id, folder = waiting(user, "--until-done")
    job = user.status(run_id)[run_id]["job_id"]
    user.cluster.run("ctl", ["scancel", "--signal=USR1", "--batch", job])  # as Slurm before the time limit
    until(lambda: user.status(run_id)[run_id]["final"])
    run = user.status(run_id)[run_id]
    assert (run["state"], run["attempt"]) == ("COMPLETED", 1), user.types("logs", run_id)
    first = json.loads((folder / "attempts/0/exit.json").read_text())
    assert (first["code"], first["why"], first["signal"]) == (85, "requeue", "USR1")


def test_shell_enters_and_cancel_ends_the_program(user: User) -> None:
    run_id, folder = waiting(user)
    assert user.types("shell", run_id, "--", "cat", "/etc/os-release") == f"ID={small_image.NAME}\n"
    keys = iter(["echo $((6 * 7)) $TERM; tty", "exit 3"])
    done = type_at_terminal(
        ["shell", run_id],
        {f"({run_id}) work$": lambda: next(keys)},
        folder=user.folder,
        environment={"PATH": os.environ["PATH"], "HOME": str(user.folder.parent), "TERM": "xterm"} | state(),
    )
    assert done.returncode == 3, done.stdout
    assert "42 xterm" in done.stdout
    assert "/dev/" in done.stdout
    user.types("cancel", run_id)
    assert user.ended(run_id)[run_id]["state"] == "CANCELLED"
    assert (folder / "terminated").exists()


def test_program_has_its_secrets(user: User) -> None:
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text()
    settings.write_text(text + '\n[secrets]\nnames = ["HF_TOKEN"]\n')
    run_id = user.types("submit", "--profile", "one", "--", "facts", HF_TOKEN="hf_0123456789").strip()
    settings.write_text(text)
    user.ended(run_id)
    env = json.loads((user.root / "runs" / run_id / "facts.json").read_text())["env"]
    assert env["HF_TOKEN"] == "hf_0123456789"
    assert list((user.root / "secrets").iterdir()) == []
    assert "said on stdout" in user.types("logs", run_id)


def test_an_image_of_a_registry_runs_and_is_recorded(user: User) -> None:
    words = ("--profile", "one", "--", "facts")
    found, absent = (user.submits("--cluster", name, *words) for name in ("drawn", "none"))
    user.ended(found, absent)
    assert user.status(found)[found]["state"] == "COMPLETED", user.types("logs", found)
    record = json.loads((user.root / "runs" / found / "run.json").read_text())
    assert (record["image"], record["versions"]["image"]) == (None, "docker://testbed#small")
    told = why(user, absent)
    assert told["cause"] == "container-failed"
    assert told["sentence"].endswith(": URL https://testbed returned error code: 404 Not Found")


@pytest.mark.parametrize("cluster_name", ["site", "drawn"])
def test_doctor_looks_into_the_container(user: User, cluster_name: str) -> None:
    done = user.tries("doctor", "--json", "-p", "one", "--cluster", cluster_name)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    files = {"image-there", "image-visible"} if cluster_name == "site" else set()
    assert files == checks.keys() & {"image-there", "image-visible"}
    for name in ("runtime-there", "runtime", "container", "binds", *files):
        assert checks[name]["outcome"] == "pass", checks[name]


def test_an_image_that_enroot_cannot_read_is_named(user: User) -> None:
    (image,) = user.root.glob("images/*.sif")
    image.chmod(0o600)
    overwrite(image, b"torn")
    run_id = user.submits("--profile", "one", "--", "facts")
    user.ended(run_id)
    overwrite(image, b"hsqs")
    told = why(user, run_id)
    assert told["cause"] == "image-damaged", told
    assert any("Invalid image format" in line["text"] for line in told["evidence"])


def test_a_mount_that_is_not_there_is_named(user: User) -> None:
    run_id = user.submits("--cluster", "lost", "--profile", "one", "--", "facts")
    user.ended(run_id)
    told = why(user, run_id)
    assert told["cause"] == "bind-missing"
    assert "mounts+=,/share/pyxis/gone:/data:ro" in [line["text"] for line in told["evidence"]]


def test_a_node_without_pyxis_is_named(user: User, site: Cluster) -> None:
    stack = site.site.slurm / "plugstack.conf"
    before = stack.read_text()
    stack.write_text("")
    run_id = user.submits("--profile", "one", "--", "facts")
    user.ended(run_id)
    stack.write_text(before)
    assert why(user, run_id)["cause"] == "runtime-missing"
