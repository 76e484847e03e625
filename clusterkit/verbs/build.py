"""build: the trainer image, from the definition that ships with clusterkit, with Apptainer here."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import ClusterkitError, ImageError
from clusterkit.resources import resource

BOOTSTRAPS = ("docker", "debootstrap", "localimage")
_DEBIAN_MIRROR = "https://deb.debian.org/debian"
_PACKED = "-comp zstd -Xcompression-level 3"
"""mksquashfs: fifteen times faster than gzip at the same size."""


@dataclass(frozen=True)
class Request:
    """How the image starts."""

    bootstrap: str = "docker"
    source: str | None = None
    """Its base: a Docker image, a Debian suite, or a .sif file; None is the definition's own."""


@dataclass(frozen=True)
class Built:
    """A finished image."""

    path: Path
    bytes: int


def definition(request: Request) -> str:
    """The Apptainer definition.

    Raises:
        ClusterkitError: the bootstrap is unknown, or `localimage` has no source.
    """
    import jinja2

    if request.bootstrap not in BOOTSTRAPS:
        raise ClusterkitError(
            f"--bootstrap {request.bootstrap}: unknown", hint=f"it is one of {', '.join(BOOTSTRAPS)}"
        )
    if request.bootstrap == "localimage" and not request.source:
        raise ClusterkitError("--bootstrap localimage needs --from IMAGE.sif")
    environment = jinja2.Environment(  # noqa: S701 - an Apptainer definition, not HTML
        loader=jinja2.FileSystemLoader(resource("containers")),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    given = {"from": request.source} if request.source else {}
    template = environment.get_template("trainer.def.j2")
    return template.render(bootstrap=request.bootstrap, mirror=_DEBIAN_MIRROR, **given)


def build(request: Request, output: Path, *, force: bool = False) -> Built:
    """Build the image; it appears under its name only when it is whole.

    Raises:
        ImageError: it exists already, Apptainer is not here, or its build failed.
    """
    text = definition(request)
    output = output.absolute()
    if output.exists() and not force:
        raise ImageError(f"{output} exists", hint="--force replaces it")
    apptainer = shutil.which("apptainer") or shutil.which("singularity")
    if apptainer is None:
        raise ImageError(
            "neither apptainer nor singularity is on PATH",
            hint="install Apptainer, or take the definition elsewhere: `clusterkit build --print`",
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="clusterkit-build-") as folder:
        for name in (("containers", "install.sh"), ("containers", "requirements.txt"), ("constraints.txt",)):
            shutil.copy(resource(*name), folder)
        Path(folder, "trainer.def").write_text(text)
        part = output.with_name(f".{output.name}.part")
        options = ["--force", "--fakeroot", "--mksquashfs-args", _PACKED]
        argv = [apptainer, "build", *options, str(part), "trainer.def"]
        if subprocess.run(argv, cwd=folder, check=False).returncode != 0:
            part.unlink(missing_ok=True)
            raise ImageError("apptainer could not build the image", hint="its own lines above say why")
        part.replace(output)
    return Built(output, output.stat().st_size)
