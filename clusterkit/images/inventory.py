"""The contents of a cluster's stores of images, snapshots and environments, and the runs that use them.

A run uses whatever its run.json mentions anywhere: `sha256-<digest>` of an image, `snapshots/<id>`,
`environments/<digest>`. Several
work roots of one person may use an image store: each leaves a link `.root-<name>` in it (`open_site`).
Another person's work roots are private: nobody can tell whether images that others may read are still in use.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from clusterkit.errors import TransportError
from clusterkit.site import Site
from clusterkit.untrusted import one_line, ordinal

YOUNG_MINUTES = 60
"""Things sent or used so recently may be about to be used."""

COMMON = r"""
about() { stat -c "$1 %A %u %s %Y $2" "$2" 2>/dev/null || stat -f "$1 %Sp %u %z %m $2" "$2"; }
modified() { stat -c %Y "$1" 2>/dev/null || stat -f %m "$1" 2>/dev/null; }
young() { [ -n "$(find "$1" -mmin "-$2" 2>/dev/null | head -n 1)" ]; }
mine() { [ -n "$(find "$1" -prune -user "$me")" ]; }
kilobytes() {
  if [ $# -eq 0 ]; then echo 0; return; fi
  du -sk "$@" | { sum=0; while read -r one _; do sum=$((sum + one)); done; echo "$sum"; }
}
me=$(id -u)
"""

# A work root that cannot be looked into may use everything, and so may a run directory: it names nothing.
USES = r"""
# Prints what the runs of this user's work roots use, $1 images, $2 runs: `in FOLDER` (nothing for this root),
# then `run RUN` for each in it, `use ./RUN/run.json:WHAT` for what it names, `build WHAT` for what a build
# starts from, and `lost LINK ROOT` for a root that cannot be read.
uses() {
  used "$2" '' || { [ ! -e "$2" ] && [ ! -L "$2" ]; } || return 1
  ours=$(cd "$2" 2>/dev/null && pwd -P)
  for link in "$1"/.root-*; do
    if [ ! -L "$link" ] || ! mine "$link"; then continue; fi
    root=$(cd -P "$link/.." 2>/dev/null && pwd -P)
    [ -z "$ours" ] || [ "$(cd "$root/runs" 2>/dev/null && pwd -P)" != "$ours" ] || continue
    [ -z "$root" ] || ! used "$root/runs" "$root/runs" || continue
    root=$(ls -ld "$link") root=${root##* -> } # gone for good, or its disk is not mounted now or here
    echo "lost ${link##*/} ${root%/.root-*}"
  done
}
used() ( # $1 a folder of run directories, $2 its name
  cd "$1" 2>/dev/null && [ -r . ] || exit 1
  echo "in $2"
  what='sha256-[0-9a-f]{64}'
  for name in *; do
    if [ -e "$name/run.json" ] || { [ -d "$name" ] && [ ! -x "$name" ]; }; then echo "run $name"; fi
  done
  find . -maxdepth 2 -name run.json -exec \
    grep -oE "$what|snapshots/[0-9A-Za-z]+|environments/[0-9a-f]+" /dev/null {} + | sort -u | sed 's/^/use /'
  # nobody removes the folder of a job that has built an environment but `storage prune`, after a week
  find "${1%/*}/builds" -maxdepth 2 -type f -size -256 \
    \( ! -path '*/builds/environment-*' -o -mtime -7 \) -exec \
    grep -ohE "$what|environments/[0-9a-f]+" {} + 2>/dev/null | sort -u |
    sed 's/^/build /'
)
"""

_LIST = (
    COMMON
    + USES
    + """
# $1 images, $2 snapshots, $3 runs, $4 environments. Prints a line a thing, then what runs use.
date '+now %s'
echo "me $me"
if [ ! -d "$1" ]; then echo end; exit 0; fi
cd "$1" || exit 1
about store .
for name in sha256-*.sif .damaged-sha256-*.sif; do
  [ ! -f "$name" ] || about image "$name"
done
for name in .upload-*; do
  if [ -d "$name" ] && mine "$name" && ! young "$name" 1440; then
    echo "left $(kilobytes "$name") image $name"
  fi
done
if cd "$2" 2>/dev/null; then
  for name in *; do
    [ ! -d "$name" ] || about snapshot "$name"
  done
  for name in .*.part; do
    if [ -d "$name" ] && ! young "$name" 1440; then echo "left $(kilobytes "$name") snapshot $name"; fi
  done
elif [ -e "$2" ]; then exit 1
fi
if cd "$4" 2>/dev/null; then
  for name in *; do
    [ ! -d "$name" ] || about environment "$name"
  done
  for file in */*.bytes; do
    [ ! -f "$file" ] || echo "weighs $(cat "$file") ${file%%/*}"
  done
  for name in ../builds/environment-*; do
    if [ ! -d "$name" ] || young "$name" 10080; then continue; fi
    echo "left $(kilobytes "$name") environment $name"
  done
  for name in .*.part */.*.part */*/t-*; do
    if [ ! -d "$name" ] || young "$name" 1440; then continue; fi
    link=$(ls -ld "${name%/*}/current" 2>/dev/null)
    [ "${link##* }" = "${name##*/}" ] || echo "left $(kilobytes "$name") environment $name"
  done
elif [ -e "$4" ]; then exit 1
fi
uses "$1" "$3" || exit 1
echo end
"""
)

_WEIGH = (
    COMMON
    + """
# $1 snapshots; standard input: the ones that stay. Equal files of several snapshots are one file on disk.
cd "$1" || exit 1
all=$(kilobytes ./*)
set --
while read -r name; do set -- "$@" "./$name"; done
echo "$((all - $(kilobytes "$@")))"
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
    shared: bool = False
    """Whether it is another user's, or others may read it."""

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
    environments: dict[str, int] = field(default_factory=dict)
    """The same of environments, by digest."""
    weights: dict[str, int] = field(default_factory=dict)
    """Bytes of environments that are built, with their fetched packages."""
    left_over: dict[tuple[str, str], int] = field(default_factory=dict)
    """Uploads and builds interrupted more than a day ago: bytes by kind and name."""
    uses: dict[str, set[str]] = field(default_factory=dict)
    """Run, or in another work root its directory -> digests and ids of snapshots that it names."""
    building: set[str] = field(default_factory=set)
    """Digests of images that builds start from, and of environments that are built."""
    lost: dict[str, str] = field(default_factory=dict)
    """Links in the image store -> other work roots that use it and cannot be read."""

    def users(self, what: str) -> list[str]:
        """The runs that mention a digest or a snapshot's id."""
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
    argv = ["sh", "-c", _LIST, "sh", layout.images, layout.snapshots, layout.runs, layout.environments]
    return parse_inventory(site.transport.run(argv, timeout=None).text)


def parse_inventory(text: str) -> Inventory:
    """Parse the inventory in the script's output.

    Raises:
        TransportError: the output was cut short.
    """
    inventory, ended, me, open_to_others, folder = Inventory(), False, "", True, ""
    for line in text.split("\n"):
        match line.split(" ", 5):
            case ["now", clock]:
                inventory.now = _whole(clock)
            case ["me", uid]:
                me = uid
            case ["store", mode, *_]:
                open_to_others = len(mode) < 10 or mode[6] in "xs" or mode[9] in "xt"
            case ["image", mode, uid, size, used, name]:
                digest = name.removeprefix(".damaged-").removeprefix("sha256-").removesuffix(".sif")
                unread = len(mode) >= 10 and "r" not in (mode[4], mode[7])
                shared = uid != me or (open_to_others and not unread)
                inventory.images.append(
                    StoredImage(digest, _whole(size), _whole(used), name.startswith("."), shared)
                )
            case ["snapshot", _, _, _, made, name]:
                inventory.snapshots[name] = _whole(made)
            case ["environment", _, _, _, made, name]:
                inventory.environments[name] = _whole(made)
            case ["weighs", size, name]:
                inventory.weights[name] = inventory.weights.get(name, 0) + _whole(size)
            case ["left", kilobytes, kind, name]:
                inventory.left_over[kind, name] = _whole(kilobytes) * 1024
            case ["in", *name]:
                folder = " ".join(name)
            case ["run", *name]:
                inventory.uses.setdefault(_run(folder, " ".join(name)), set())
            case ["use", *rest]:
                place, _, what = " ".join(rest).rpartition(":")
                run = _run(folder, place.removeprefix("./").removesuffix("/run.json"))
                inventory.uses.setdefault(run, set()).add(_bare(what))
            case ["build", what]:
                inventory.building.add(_bare(what))
            case ["lost", link, *root]:
                inventory.lost[link] = " ".join(root)
            case ["end"]:
                ended = True
    if not ended:
        raise TransportError("the list of images and runs was cut short", hint="run the same command again")
    return inventory


def _bare(what: str) -> str:
    return what.removeprefix("sha256-").rpartition("/")[2]


def _run(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


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
