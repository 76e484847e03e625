"""The trainer image, really built from containers/ on the cluster, by an ordinary user.

The one thing that differs from what a user builds is where packages come from: this machine's pip fetches
the wheels, so that its configuration (a proxy, an index of one's own) is honoured, and the build sees nothing
else. torch is the CPU build where the index has one.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import jinja2

from tests.cluster.cache import cached
from tests.cluster.cluster import Cluster
from tests.cluster.host import TestbedError, debian_mirror, last_line
from tests.cluster.rootfs import USERS

PROJECT = Path(__file__).parents[2]
TEMPLATE = PROJECT / "containers/trainer.def.j2"
INPUTS = [
    PROJECT / "containers/install.sh",
    PROJECT / "containers/requirements.txt",
    PROJECT / "constraints.txt",
]
SUITE, PYTHON, GLIBC = "bookworm", "3.11", 36
CPU_TORCH = "https://download.pytorch.org/whl/cpu"


def render(**variables: object) -> str:
    """The Apptainer definition; a variable the template misses raises jinja2.UndefinedError."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(TEMPLATE.read_text()).render(variables)


def trainer_image(cluster: Cluster) -> Path:
    """The image, from the cache or built in about two minutes.

    Raises:
        TestbedError: a wheel is not to be had, or the build fails; the message ends with its output.
    """
    definition = render(
        bootstrap="debootstrap", mirror="MIRROR", **{"from": SUITE}, find_links="/mnt", no_index=True
    )
    inputs = [definition, PYTHON, *(path.read_text() for path in INPUTS)]
    return cached("trainer", inputs, lambda target: _build(cluster, definition, target), suffix=".sif")


def _build(cluster: Cluster, definition: str, target: Path) -> None:
    folder = cluster.share / "build"
    for path in (folder, folder / "tmp", folder / "wheels"):
        path.mkdir()
        os.chown(path, USERS[cluster.user], USERS[cluster.user])
    for path in INPUTS:
        shutil.copy(path, folder)
    folder.joinpath("trainer.def").write_text(definition.replace("MIRROR", debian_mirror()))
    _download_wheels(folder / "wheels")
    build = ["apptainer", "build", "--fakeroot", "--bind", "/share/build/wheels:/mnt"]
    pack = ["--mksquashfs-args", "-comp zstd -Xcompression-level 3"]
    where = ["env", "--chdir=/share/build", "APPTAINER_TMPDIR=/share/build/tmp"]
    argv = [*where, *build, *pack, "trainer.sif", "trainer.def"]
    cluster.run("login", argv, user=cluster.user, host_network=True, timeout=800)
    shutil.copyfile(folder / "trainer.sif", target)
    shutil.rmtree(folder)


def _download_wheels(folder: Path) -> None:
    """Fetch wheels for the image's Python and C library, whatever this machine's are."""
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC, 4, -1)]
    platforms += [
        f"manylinux2014_{machine}",
        f"manylinux2010_{machine}",
        f"manylinux1_{machine}",
        f"linux_{machine}",
    ]
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    argv += [
        "--only-binary=:all:",
        f"--python-version={PYTHON}",
        *(f"--platform={name}" for name in platforms),
    ]
    argv += ["--extra-index-url", CPU_TORCH, "--retries=1", "--timeout=30"]
    argv += ["-r", str(INPUTS[1]), "-c", str(INPUTS[2])]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"pip cannot fetch the image's packages: {last_line(done.stderr)}")
