"""The contents of a cluster's image and snapshot stores, and the runs that use them.

A run uses whatever its run.json mentions anywhere: `sha256-<digest>` of an image, `snapshots/<id>`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from clusterkit.errors import TransportError
from clusterkit.site import Site
from clusterkit.untrusted import one_line, ordinal

YOUNG_MINUTES = 60
"""Things sent or used so recently may be about to be used."""

_COMMON = """
about() { stat -c "$1 %s %Y $2" "$2" 2>/dev/null || stat -f "$1 %z %m $2" "$2"; }
young() { [ -n "$(find "$1" -mmin "-$2" 2>/dev/null | head -n 1)" ]; }
kilobytes() {
  if [ $# -eq 0 ]; then echo 0; return; fi
  du -sk "$@" | { sum=0; while read -r one _; do sum=$((sum + one)); done; echo "$sum"; }
}
"""

_LIST = (
    _COMMON
    + """
# $1 images, $2 snapshots, $3 runs. Prints a line a thing; `use ./RUN/run.json:WHAT` for what a run names.
date '+now %s'
if [ ! -d "$1" ]; then echo end; exit 0; fi
cd "$1" || exit 1
for name in sha256-*.sif .damaged-sha256-*.sif; do
  [ ! -f "$name" ] || about image "$name"
done
for name in .upload-*; do
  if [ -d "$name" ] && ! young "$name" 1440; then echo "left $(kilobytes "$name") image $name"; fi
done
cd "$2" || exit 1
for name in *; do
  [ ! -d "$name" ] || about snapshot "$name"
done
for name in .*.part; do
  if [ -d "$name" ] && ! young "$name" 1440; then echo "left $(kilobytes "$name") snapshot $name"; fi
done
cd "$3" || exit 1
for name in *; do
  [ ! -e "$name/run.json" ] || echo "run $name"
done
find . -maxdepth 2 -name run.json -exec grep -oE 'sha256-[0-9a-f]{64}|snapshots/[0-9A-Za-z]+' /dev/null {} + |
  sort -u | sed 's/^/use /'
echo end
"""
)

_WEIGH = (
    _COMMON
    + """
# $1 snapshots; standard input: the ones that stay. Equal files of several snapshots are one file on disk.
cd "$1" || exit 1
all=$(kilobytes ./*)
set --
while read -r name; do set -- "$@" "./$name"; done
echo "$((all - $(kilobytes "$@")))"
"""
)

# A snapshot goes out of sight at once and then away; a rest of that looks like an upload that broke off.
_REMOVE = (
    _COMMON
    + """
# $1 images, $2 snapshots, $3 minutes; standard input: what goes.
while read -r kind name; do
  case $kind in
    image)
      cd "$1" || exit 1
      if young "$name" "$3"; then echo "kept $name"; continue; fi
      rm -f "$name" "${name%.sif}.chunks" || exit 1 ;;
    snapshot)
      cd "$2" || exit 1
      if [ -n "$(find "$name" -prune -mmin "-$3")" ]; then echo "kept $name"; continue; fi
      mv "$name" ".$name.gc.part" && name=.$name.gc.part || exit 1
      find "$name" -type d -exec chmod u+rwx {} +
      rm -rf "$name" || exit 1 ;;
    left-*)
      if [ "$kind" = left-image ]; then cd "$1"; else cd "$2"; fi || exit 1
      find "$name" -type d -exec chmod u+rwx {} +
      rm -rf "$name" || exit 1 ;;
  esac
done
"""
)


@dataclass(frozen=True)
class StoredImage:
    """An image on a cluster."""

    digest: str
    bytes: int
    used: int
    """When it was last sent or used in a submission, Unix seconds."""
    damaged: bool = False
    """Whether its content does not match its name, so that it is no longer used."""

    @property
    def name(self) -> str:
        """Its file name in the store."""
        return f"{'.damaged-' if self.damaged else ''}sha256-{self.digest}.sif"


@dataclass
class Inventory:
    """The inventory of a cluster's stores."""

    now: int = 0
    """The cluster's clock, Unix seconds."""
    images: list[StoredImage] = field(default_factory=list)
    snapshots: dict[str, int] = field(default_factory=dict)
    """When each was made or last used in a submission, Unix seconds."""
    left_over: dict[tuple[str, str], int] = field(default_factory=dict)
    """Uploads interrupted more than a day ago: bytes by kind (`image`, `snapshot`) and name."""
    uses: dict[str, set[str]] = field(default_factory=dict)
    """Digests of images and ids of snapshots that each run mentions."""

    def users(self, what: str) -> list[str]:
        """The runs that mention an image's digest or a snapshot's id."""
        return sorted(run for run, named in self.uses.items() if what in named)

    @property
    def silent(self) -> list[str]:
        """Runs whose run.json mentions nothing, because it is damaged or unreadable."""
        return sorted(run for run, named in self.uses.items() if not named)


def take_inventory(site: Site) -> Inventory:
    """Read the stores and the run directories in one round trip.

    Raises:
        TransportError: the cluster gave no answer.
    """
    layout = site.layout
    argv = ["sh", "-c", _LIST, "sh", layout.images, layout.snapshots, layout.runs]
    return parse_inventory(site.transport.run(argv, timeout=None).text)


def parse_inventory(text: str) -> Inventory:
    """Parse the inventory in the script's output.

    Raises:
        TransportError: the output was cut short.
    """
    found, ended = Inventory(), False
    for line in text.split("\n"):
        match line.split(" ", 3):
            case ["now", clock]:
                found.now = _whole(clock)
            case ["image", size, used, name]:
                digest = name.removeprefix(".damaged-").removeprefix("sha256-").removesuffix(".sif")
                found.images.append(StoredImage(digest, _whole(size), _whole(used), name.startswith(".")))
            case ["snapshot", _, made, name]:
                found.snapshots[name] = _whole(made)
            case ["left", kilobytes, kind, name]:
                found.left_over[kind, name] = _whole(kilobytes) * 1024
            case ["run", *name]:
                found.uses.setdefault(" ".join(name), set())
            case ["use", *rest]:
                place, _, what = " ".join(rest).rpartition(":")
                run = place.removeprefix("./").removesuffix("/run.json")
                found.uses.setdefault(run, set()).add(what.removeprefix("sha256-").removeprefix("snapshots/"))
            case ["end"]:
                ended = True
    if not ended:
        raise TransportError("the list of images and runs was cut short", hint="run the same command again")
    return found


def _whole(digits: str) -> int:
    number = ordinal(digits)
    if number is None:
        raise TransportError(
            f"the list of images and runs has no readable number: {one_line(digits)[:100]}",
            hint="`clusterkit doctor` checks the site",
        )
    return number


def weigh_snapshots(site: Site, stay: Collection[str]) -> int:
    """Disk space of all snapshots except these; files shared with these do not count."""
    argv = ["sh", "-c", _WEIGH, "sh", site.layout.snapshots]
    stdin = "".join(f"{name}\n" for name in stay).encode()
    return _whole(site.transport.run(argv, stdin=stdin, timeout=None).text.strip()) * 1024


def remove(site: Site, things: Collection[tuple[str, str]]) -> set[str]:
    """Remove things by kind and name; returns the names of those used in the meantime.

    Args:
        site: the cluster.
        things: kinds are `image` and `snapshot`, or with the prefix `left-` the leftovers of their uploads.

    Raises:
        TransportError: something could not be removed.
    """
    argv = ["sh", "-c", _REMOVE, "sh", site.layout.images, site.layout.snapshots, str(YOUNG_MINUTES)]
    stdin = "".join(f"{kind} {name}\n" for kind, name in things).encode()
    answer = site.transport.run(argv, stdin=stdin, timeout=None).text
    return {line.removeprefix("kept ") for line in answer.split("\n") if line.startswith("kept ")}
