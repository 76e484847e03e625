"""Starts programs in a container with Pyxis, the plugin by which `srun` has enroot start a task. Pure.

Source of the options and their meaning: github.com/NVIDIA/pyxis, args.c and pyxis_slurmstepd.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterkit.errors import ConfigError

FOUND = "srun --help 2>/dev/null | grep -o -e '--container-image=.*'"
"""Shell: whether, and how, srun here offers Pyxis. Its options since version 0.15 are needed."""
ABSENT = "has no --container-image"
ASK = "ask the site for Pyxis, or set `container` to the runtime that it has"
REGISTRY = "docker://"
"""How the name of an image in a registry begins."""

# Overlapping, it may use all CPUs and memory of the job.
SRUN = """srun --quiet --overlap --nodes=1 --ntasks=1
  --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --cpu-bind=none
  --container-readonly --no-container-mount-home --no-container-remap-root --no-container-entrypoint"""
"""Bash: the command's words that are always the same: the image stays as it is, and the user who they are."""

_UNSAFE = re.compile(r"[\s$`\"\\]")


def mounts(binds: Iterable[str]) -> tuple[str, ...]:
    """Mounts, `source[:target[:options]]`, as Pyxis takes them."""
    found = []
    for bind in binds:
        source, _, rest = bind.partition(":")
        target, _, options = rest.partition(":")
        found.append(":".join(filter(None, (source, target or source, options.replace(",", "+")))))
    return tuple(found)


def check(mounted: Iterable[str]) -> None:
    """Raises ConfigError for a path that Pyxis, which writes it into a bash script, would change."""
    for each in mounted:
        if bad := _UNSAFE.search(each):
            raise ConfigError(
                f"{each!r} contains {bad[0]!r}, which a mount of Pyxis cannot contain",
                hint="choose another path, or reach it through a symbolic link",
            )
