"""Runs Apptainer on this machine: builds and inspects images."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clusterkit.errors import ImageError
from clusterkit.images.building.advice import advice, cause
from clusterkit.images.building.packages import READ, parse
from clusterkit.images.building.work import Work
from clusterkit.runtimes import BUILDER

PACKED = "-comp zstd -Xcompression-level 3"
"""mksquashfs: fifteen times faster than gzip at the same size."""
EPOCH = "1700000000"
"""SOURCE_DATE_EPOCH, and the time of all files in a trainer image."""
_WORKSHOP = "clusterkit-build-"
_OLD_SECONDS = 24 * 3600
_KEPT_LINES = 400
_END_SECONDS = 20.0


def find_runtime() -> str:
    """Path of apptainer or singularity.

    Raises:
        ImageError: neither is on PATH.
    """
    runtime = next(filter(None, map(shutil.which, BUILDER.commands)), None)
    if runtime is None:
        raise ImageError(
            f"neither {' nor '.join(BUILDER.commands)} is on PATH",
            hint="build on a cluster, as a job: `clusterkit build --cluster NAME`; or take the definition "
            "elsewhere: `clusterkit build --print`",
        )
    return runtime


@contextmanager
def workshop() -> Iterator[Path]:
    """A temporary empty folder with space for large files.

    It is in `APPTAINER_TMPDIR` if set, else in /var/tmp, because /tmp may be in memory.
    """
    given = filter(None, map(os.environ.get, BUILDER.temporary("")))
    place = next(given, None) or ("/var/tmp" if Path("/var/tmp").is_dir() else None)  # noqa: S108
    if place:
        _forget_old(Path(place), f"{_WORKSHOP}*")
    # What Apptainer leaves when it is killed may belong to one of the user's subordinate ids.
    with tempfile.TemporaryDirectory(prefix=_WORKSHOP, dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def build(work: Work, output: Path, *, say: Callable[[str], None]) -> None:
    """Build an image, which appears atomically.

    Args:
        work: the build.
        output: absolute path of the .sif; an existing file is replaced.
        say: called with each line of Apptainer's output.

    Raises:
        ImageError: Apptainer is missing or the build failed, with the reason.
    """
    runtime = find_runtime()
    # A name of our own: the Apptainer of a build that was killed may still be writing.
    part = output.with_name(f".{output.name}.{secrets.token_hex(4)}.part")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _forget_old(output.parent, f".{glob.escape(output.name)}.*.part")
        with workshop() as folder:
            for file, text in work.texts.items():
                (folder / file).write_text(text)
            argv = [runtime, *options(work, _help(runtime)), str(part), work.target]
            env = os.environ | BUILDER.temporary(str(folder))
            if work.ours:
                env["SOURCE_DATE_EPOCH"] = EPOCH
            code, log = _run(argv, work.folder or folder, env, say)
        if code != 0:
            raise ImageError(f"{BUILDER.name} could not build the image: {cause(log)}", hint=advice(log))
        part.replace(output)
    except OSError as error:
        raise ImageError(f"{error.filename or output}: {error.strerror}", hint=advice(str(error))) from error
    finally:
        part.unlink(missing_ok=True)


def options(work: Work, usage: str) -> list[str]:
    """The first words of the build command.

    Args:
        work: the build.
        usage: `apptainer build --help`; an old Singularity cannot pass options to mksquashfs.
    """
    packing = ["--mksquashfs-args", PACKED] if "--mksquashfs-args" in usage else []
    # Not needed to convert, and it asks for a set-up that not every machine has.
    fakeroot = ["--fakeroot"] if work.defined else []
    arch = ["--arch", work.arch] if work.arch else []
    return ["build", "--force", *fakeroot, *packing, *arch]


def packages(image: Path) -> dict[str, str]:
    """Package versions in an image, by name; empty if nothing in it can be run here."""
    runtime = find_runtime()
    for way in ([], ["--userns"]):  # as root without all capabilities only the second works
        argv = [runtime, "exec", *way, "--cleanenv", "--contain", str(image), "sh", "-c", READ]
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode == 0:
            return parse(done.stdout.decode(errors="replace"))
    return {}


def save(name: str, archive: Path) -> None:
    """Export an image from this machine's Docker.

    Raises:
        ImageError: Docker is missing, does not run, or has no such image.
    """
    docker = shutil.which("docker") or shutil.which("podman")
    if docker is None:
        raise ImageError(
            "docker is not on PATH",
            hint=f"run this where docker is installed: `docker save {name} -o FILE`, then --from "
            "docker-archive:FILE",
        )
    argv = [docker, "save", "--output", str(archive), name]
    done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise ImageError(f"docker cannot save {name}: {cause(words)}", hint=advice(words))


def _forget_old(folder: Path, pattern: str) -> None:
    """Remove the leftovers of builds that were killed more than a day ago."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            if path.lstat().st_uid == os.getuid() and time.time() - path.lstat().st_mtime > _OLD_SECONDS:
                path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)


def _help(runtime: str) -> str:
    argv = [runtime, "build", "--help"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _run(argv: list[str], folder: Path, env: dict[str, str], say: Callable[[str], None]) -> tuple[int, str]:
    """Run a build, which ends if this process is interrupted; returns its exit code and last lines."""
    # In a session of its own: Ctrl-C reaches us alone, and we end the whole of it.
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout
    kept: deque[str] = deque(maxlen=_KEPT_LINES)
    try:
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            kept.append(line)
            say(line)
        return process.wait(), "\n".join(kept)
    finally:
        if process.poll() is None:
            _end(process)
        process.stdout.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, on which Apptainer cleans up, then kill what is left."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
