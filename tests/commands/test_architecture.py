"""A cluster of which one partition's nodes are Arm: commands compare images with them before a job waits.

Slurm only queues; a test starts the job that it wants, on a node whose `uname` says what the partition's do
and whose container runtime refuses other images, in Apptainer's words.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.slurm_site import SlurmSite
from tests.needs import needing
from tests.programs import write_program

SETTINGS = """container = "apptainer"
image = "image-{arch}.sif"
partition = "x86"
arch = { "*" = "x86_64", grace = "aarch64" }

[profiles.local-demo]
program = ["true"]
signal = "none"
"""
SBATCH = """
partition=x86 number=
for word; do
  case $word in
    --test-only) exit ;;
    --partition=*) partition=${word#*=} ;;
    */job.sh) script=$word ;;
    -*) ;;
    *) number=$word ;;
  esac
done
id=$(($(wc -l <FOLDER/queue) + 101))
echo "$partition $id $script $number" >>FOLDER/queue
echo $id
"""
APPTAINER = """
case $1 in exec) ;; *) exit ;; esac
for word; do case $word in *.sif) image=$word ;; esac; done
case $(uname -m)$(dd if="$image" bs=1 skip=45 count=2 2>/dev/null) in
  x86_6402 | aarch6404) echo "started $image on $(uname -m)" ;;
  *) echo "FATAL:   While checking image: could not open image $image: the image's architecture (amd64)" \
    "could not run on the host's (arm64)" >&2
    exit 255 ;;
esac
"""
MACHINES = {"x86": "x86_64", "grace": "aarch64"}


def image(project: Path, arch: str, name: str = "") -> Path:
    """A file that begins as a SIF for an architecture does."""
    code = {"x86_64": b"02", "aarch64": b"04"}[arch]
    path = project / (name or f"image-{arch}.sif")
    head = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\00001\0"
    path.write_bytes(head + code + b"\0" + arch.encode() * 9)
    return path


class ArmSite(SlurmSite):
    """The site with its two partitions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.set(SETTINGS)
        (folder / "queue").touch()
        self.tool("sbatch", SBATCH.replace("FOLDER", str(folder)))
        self.tool("scancel", "exit 0")
        for partition, machine in MACHINES.items():
            node = folder / "nodes" / partition
            write_program(node, "uname", f'[ "$*" != -m ] || exec echo {machine}\nexec /usr/bin/uname "$@"')
            write_program(node, "apptainer", APPTAINER)

    def set(self, lines: str) -> None:
        """Replaces what the settings say of images and nodes."""
        path = self.project / "clusterkit.toml"
        path.write_text(path.read_text().partition("container = ")[0] + lines)

    def start(self, run_id: str, partition: str) -> str:
        """Starts the newest job of a run that waits in a partition; returns its newest log."""
        rows = [line.split() for line in (self.folder / "queue").read_text().splitlines()]
        *_, (_, job_id, script, *number) = [row for row in rows if row[0] == partition and run_id in row[2]]
        path = f"{self.folder}/nodes/{partition}:{self.bin}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "SLURM_JOB_ID": job_id, "SLURM_JOB_PARTITION": partition}
        subprocess.run(["bash", "-p", script, *number], env=env, capture_output=True, check=False)
        *_, log = sorted((self.root / "runs" / run_id / "attempts").glob("*/log"))
        return log.read_text()


@pytest.fixture
@needing("sshd")
def site(tmp_path: Path) -> Iterator[ArmSite]:
    with closing(ArmSite(tmp_path / "site")) as arm:
        yield arm


def submit(site: ArmSite, *words: str) -> str:
    return site.types("submit", *words).stdout.strip()


@pytest.mark.slow
def test_first_starts_the_image_of_each_partition_where_it_starts(site: ArmSite) -> None:
    files = {arch: image(site.project, arch) for arch in MACHINES.values()}
    sent = site.types("deploy").stdout
    assert sent.count("  image  ") == 2
    for partition, machine in MACHINES.items():
        run_id = submit(site, "--first", "partition:x86,grace")
        log = site.start(run_id, partition)
        (stored,) = [path for path in (site.root / "images").iterdir() if str(path) in log]
        assert stored.read_bytes() == files[machine].read_bytes()
        assert f"on {machine}" in log
        assert "ended: completed" in log
    alone = submit(site, "--sbatch", "partition=grace")
    record = (site.root / "runs" / alone / "run.json").read_text()
    assert '"arch": "aarch64"' in record
    assert record.count("sha256-") == 1
    assert "on aarch64" in site.start(alone, "grace")


@pytest.mark.slow
def test_a_run_goes_on_with_the_image_of_the_partition_that_took_it(site: ArmSite) -> None:
    for arch in MACHINES.values():
        image(site.project, arch)
    site.types("deploy")
    run_id = submit(site, "--first", "partition:x86,grace")
    failing = site.folder / "nodes/grace/apptainer"
    sound = failing.read_text()
    failing.write_text(sound.replace('on $(uname -m)" ;;', 'on $(uname -m)"; exit 1 ;;'))
    assert "ended: container" in site.start(run_id, "grace")
    failing.write_text(sound)
    site.types("resume", run_id, "--sbatch", "partition=grace")
    assert "ended: completed" in site.start(run_id, "grace")


@pytest.mark.slow
def test_nothing_waits_for_nodes_that_cannot_start_the_image(site: ArmSite) -> None:
    image(site.project, "x86_64")
    site.types("deploy")
    cure = "clusterkit build --cluster far --partition grace"
    there = ("--sbatch", "partition=grace")
    for words in (there, (*there, "--dry-run"), ("--first", "partition:x86,grace")):
        refused = site.types("submit", *words, code=6).stderr
        assert "is for x86_64, and the nodes of grace are aarch64" in refused
        assert cure in refused
    assert cure in site.types("plan", *there).stderr
    assert (site.folder / "queue").read_text() == ""
    submit(site)
    foreign = image(site.project, "aarch64", "mine.sif")
    site.set(SETTINGS.replace('{ "*" = "x86_64", grace = "aarch64" }', '"x86_64"'))
    refused = site.types("deploy", "--image", str(foreign), code=6).stderr
    assert "is for aarch64, and the nodes of far are x86_64" in refused


@pytest.mark.slow
def test_a_job_refuses_the_image_where_the_settings_do_not_tell(site: ArmSite) -> None:
    image(site.project, "x86_64")
    site.set(SETTINGS.replace("arch = {", "# arch = {"))
    site.types("deploy")
    run_id = submit(site, "--sbatch", "partition=grace")
    log = site.start(run_id, "grace")
    assert "is for x86_64, and" in log
    assert "FATAL" not in log
    why = site.types("why", run_id).stdout
    assert "the image is for another architecture than the node's" in why
    assert "clusterkit build --cluster far --partition grace" in why
