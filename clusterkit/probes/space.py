"""Free space of a cluster's roots: df, and quotas if the site shows them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from clusterkit.probes import Probe
from clusterkit.untrusted import ordinal

DF = re.compile(r"(.+?)\s+([0-9]{1,18})\s+([0-9]{1,18})\s+(-?[0-9]{1,18})\s+\S+\s+(/.*)")
"""A line of `df -Pk`: device; total, used and free KiB; mount point."""
_HOME = "home"


@dataclass(frozen=True)
class Space:
    """The space of one root, in bytes; None if unknown."""

    role: str
    """What the root is for: "work root", "images", "scratch" or "home"."""
    path: str
    file_system: str
    """Device and mount point; roots with equal ones share their space."""
    free: int | None
    total: int | None
    quota_left: int | None
    """Bytes left in the user's quota."""

    @property
    def left(self) -> int | None:
        """Bytes that can be written: the smaller of free space and quota."""
        limits = [value for value in (self.free, self.quota_left) if value is not None]
        return min(limits) if limits else None


def space(roots: dict[str, str]) -> Probe[tuple[Space, ...]]:
    """Returns a probe for the space of roots and the home folder; a quota tool that fails is ignored.

    Args:
        roots: paths by role.
    """
    return Probe("space", f"set -- {shlex.join(roots.values())}\n{SCRIPT}", lambda text: parse(text, roots))


def parse(text: str, roots: dict[str, str]) -> tuple[Space, ...]:
    """Reads what the script prints.

    Args:
        text: sections that begin with a line `== NAME ARGUMENT`.
        roots: paths by role; the home folder is in the text.
    """
    by_path: dict[str, tuple[str, ...]] = {}
    quotas: dict[str, int] = {}
    lustre: dict[str, int] = {}
    home = ""
    for section in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        head, _, body = section.partition("\n")
        kind, _, argument = head.partition(" ")
        if kind == "df" and (line := DF.fullmatch(body.strip().rpartition("\n")[2])):
            by_path[argument] = line.groups()
        elif kind == "lfs" and (left := quota_left(body.split()[1:])) is not None:
            lustre[argument] = left
        elif kind == "quota":
            quotas = quotas_left(body)
        elif kind == _HOME:
            home = argument
    paths = {**roots, **({_HOME: home} if home else {})}
    found_spaces = []
    for role, path in paths.items():
        device, total, _, free, mount = by_path.get(path, ("", None, None, None, ""))
        found_spaces.append(
            Space(
                role,
                path,
                f"{device} {mount}".strip(),
                None if free is None else max(0, int(free)) * 1024,
                None if total is None else int(total) * 1024,
                lustre.get(path, quotas.get(device)),
            )
        )
    return tuple(found_spaces)


def quotas_left(text: str) -> dict[str, int]:
    """Bytes left by device, from `quota -w`."""
    lines = (line.split() for line in text.splitlines())
    limits = {words[0]: quota_left(words[1:]) for words in lines if len(words) > 3}
    return {device: left for device, left in limits.items() if left is not None}


def quota_left(words: list[str]) -> int | None:
    """Bytes left of `used quota limit` in KiB; 0 is no limit, a `*` marks what is exceeded."""
    numbers = [word.rstrip("*") for word in words[:3]]
    if len(numbers) < 3 or not all(ordinal(number) is not None for number in numbers):
        return None
    used, soft, hard = map(int, numbers)
    allowed = hard or soft
    return max(0, allowed - used) * 1024 if allowed else None


# Prints what `parse` reads. Arguments: paths. A root that does not exist yet is judged by the folder it would
# be made in. `quota` asks NFS servers and may hang.
SCRIPT = r"""
export LC_ALL=C
limited=
command -v timeout >/dev/null && limited='timeout 10'
printf '== home %s\n' "$HOME"
for path in "$@" "$HOME"; do
    place=$path
    while test ! -e "$place" && test -n "$place"; do place=${place%/*}; done
    printf '== df %s\n' "$path"
    $limited df -Pk "${place:-/}" 2>/dev/null
    if command -v lfs >/dev/null; then
        printf '== lfs %s\n' "$path"
        $limited lfs quota -q -u "$(id -un)" "${place:-/}" 2>/dev/null
    fi
done
if command -v quota >/dev/null; then
    printf '== quota\n'
    $limited quota -w 2>/dev/null
fi
exit 0
"""
