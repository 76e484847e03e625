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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2

from clusterkit.images.building.local import EPOCH
from tests.cluster.cache import cached
from tests.cluster.cluster import Cluster
from tests.cluster.host import TestbedError, UnavailableError, last_line
from tests.cluster.rootfs import BASE, MINIMAL, USERS, base

PROJECT = Path(__file__).parents[2]
TEMPLATE = PROJECT / "containers/trainer.def.j2"
INPUTS = [
    PROJECT / "containers/install.sh",
    PROJECT / "containers/locked.txt",
    PROJECT / "containers/locked-cpu.txt",
]
PYTHON, GLIBC = "3.11", 36
"""Of Debian bookworm."""
PACKING = "-comp zstd -Xcompression-level 1"
CPU_TORCH = "https://download.pytorch.org/whl/cpu"


def render(**variables: object) -> str:
    """The Apptainer definition; a variable the template misses raises jinja2.UndefinedError."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(TEMPLATE.read_text()).render(variables)


def trainer_image(cluster: Cluster) -> Path:
    """The image, from the cache or built in two or three minutes.

    Raises:
        TestbedError: a wheel is not to be had, or a build fails; the message ends with its output.
    """
    definition = render(
        bootstrap="localimage", **{"from": "base"}, torch="cpu", find_links="/mnt", no_index=True
    )
    inputs = [*MINIMAL, BASE, definition, PYTHON, *(path.read_text() for path in INPUTS)]

    def build(target: Path) -> None:
        with _workshop(cluster) as folder:
            user = USERS[cluster.user]
            subprocess.run(["cp", "-a", base(), folder / "base"], check=True)
            subprocess.run(["chown", "-hR", f"{user}:{user}", folder / "base"], check=True)
            for path in INPUTS:
                shutil.copy(path, folder)
            _download_wheels(folder / "wheels")
            _apptainer_build(cluster, folder, definition, target, "--bind", "/share/build/wheels:/mnt")

    return cached("trainer", inputs, build, suffix=".sif")


@contextmanager
def _workshop(cluster: Cluster) -> Iterator[Path]:
    """An empty /share/build that belongs to the user, seen from this machine."""
    folder = cluster.share / "build"
    for path in (folder, folder / "tmp", folder / "wheels"):
        path.mkdir()
        os.chown(path, USERS[cluster.user], USERS[cluster.user])
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _apptainer_build(cluster: Cluster, folder: Path, definition: str, target: Path, *options: str) -> None:
    (folder / "image.def").write_text(definition)
    where = ["env", "--chdir=/share/build", "APPTAINER_TMPDIR=/share/build/tmp", f"SOURCE_DATE_EPOCH={EPOCH}"]
    build = ["apptainer", "build", "--fakeroot", "--mksquashfs-args", PACKING, *options]
    argv = [*where, *build, "image.sif", "image.def"]
    cluster.run("login", argv, user=cluster.user, host_network=True, timeout=800)
    shutil.copyfile(folder / "image.sif", target)


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
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    argv += [
        "--only-binary=:all:",
        f"--python-version={PYTHON}",
        *(f"--platform={name}" for name in platforms),
    ]
    argv += ["--extra-index-url", CPU_TORCH, "--retries=1", "--timeout=30"]
    argv += ["--require-hashes", "-r", str(INPUTS[1]), "-r", str(INPUTS[2])]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"pip cannot fetch the image's packages: {last_line(done.stderr)}")


def main() -> None:
    """Build what is not in the cache yet, before a test waits for it."""
    try:
        with Cluster() as cluster:
            trainer_image(cluster)
    except UnavailableError as reason:
        print(f"no test cluster: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
