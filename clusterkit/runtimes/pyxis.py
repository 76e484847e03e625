"""Pyxis, the plugin by which `srun` has enroot start a task. Pure, but for an image's architecture.

Source of the options and their meaning: github.com/NVIDIA/pyxis, args.c and pyxis_slurmstepd.c.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from clusterkit.errors import ConfigError
from clusterkit.runtimes import ImageFormat, Runtime

_ABSENT = "has no --container-image"
_UNSAFE = re.compile(r"[\s$`\"\\]")


_SHELLS = ("bin/sh", "usr/bin/dash", "usr/bin/bash", "bin/busybox")
"""In images of common systems; where /bin/sh is a link, one of the others is the file."""
_MACHINES = {62: "x86_64", 183: "aarch64", 21: "ppc64le", 243: "riscv64"}
"""By ELF's e_machine (elf.h), of files whose numbers begin with the low byte."""


def _architecture(path: Path) -> str:
    """Asks the machine code of the image's shell; unsquashfs may be missing."""
    unsquashfs = shutil.which("unsquashfs")
    for shell in _SHELLS if unsquashfs else ():
        argv = [unsquashfs or "", "-cat", str(path), shell]
        head = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False).stdout[:20]
        if head[:4] == b"\x7fELF" and len(head) == 20:
            return _MACHINES.get(int.from_bytes(head[18:20], "little"), "")
    return ""


class Pyxis(Runtime):
    """Starts programs by `srun --container-image`, from a squashfs file or from a registry."""

    name, title = "pyxis", "Pyxis"
    image = ImageFormat(
        name="squashfs",
        offset=0,
        magic=b"hsqs",
        file="image.sqsh",
        maker="enroot import",
        convert="Pyxis takes what `enroot import` and `enroot export` make",
        architecture=_architecture,
    )
    registry = "docker://"
    in_step = True
    # Its options since version 0.15 are needed.
    find = "srun --help 2>/dev/null | grep -o -e '--container-image=.*'"
    # Overlapping, it may use all CPUs and memory of the job.
    command = """srun --quiet --overlap --nodes=1 --ntasks=1
  --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --cpu-bind=none
  --container-readonly --no-container-mount-home --no-container-remap-root --no-container-entrypoint"""
    """Bash: the words that are always the same: the image stays as it is, and the user who they are."""
    enter = '[ "${command[0]}" != srun ] || [ ! -t 0 ] || command=(srun --pty "${command[@]:1}")\n'
    install = "ask the site for Pyxis"
    unseen = 'with Pyxis, set `container = "pyxis"`'
    make_image = (
        "make one with `enroot import`, and name it as `image` of the cluster or with `deploy --image FILE`"
    )
    says: ClassVar[Mapping[str, str]] = {
        "image-damaged": r"pyxis: .*Invalid image format",
        "bind-missing": r"enroot-mount: failed to mount: (\S+).*No such file",
        "runtime-missing": rf"srun on .* {_ABSENT}",
        "container-failed": r"error: pyxis: ",
        "speaker": r".*pyxis: *(\[ERROR\])?",
    }

    def check_settings(self, *, kind: str, here: bool, mps: bool, registry_image: str | None) -> None:
        """As `Runtime`: it needs srun, and its containers have a /dev/shm of their own."""
        if here:
            raise ValueError(f'container = "pyxis" needs Slurm, and kind = "{kind}" is without it')
        if mps:
            raise ValueError('mps = true and container = "pyxis" exclude each other')
        if registry_image is not None and not registry_image.startswith(self.registry):
            raise ValueError(
                f'{registry_image!r} is not an image of enroot; write e.g. "docker://nvcr.io#nvidia/pytorch:24.05-py3"'
            )

    def check_mounts(self, paths: Iterable[str]) -> None:
        """As `Runtime`: Pyxis writes paths into a bash script."""
        for path in paths:
            if bad := _UNSAFE.search(path):
                raise ConfigError(
                    f"{path!r} contains {bad[0]!r}, which a mount of Pyxis cannot contain",
                    hint="choose another path, or reach it through a symbolic link",
                )

    def mount(self, bind: str) -> str:
        """As `Runtime`: it has a target, and plus signs between its options."""
        source, _, rest = bind.partition(":")
        target, _, options = rest.partition(":")
        return ":".join(filter(None, (source, target or source, options.replace(",", "+"))))

    def add(self, mount: str) -> str:
        """As `Runtime`."""
        return f"mounts+=,{mount}"

    def missing(self, host: str, table: str) -> tuple[str, str]:
        """As `Runtime`."""
        del table
        return (
            f"srun on {host} {_ABSENT}",
            "ask the site for Pyxis, or set `container` to the runtime that it has",
        )


RUNTIME = Pyxis()
