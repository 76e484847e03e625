"""Removes images, snapshots and environments from a cluster's stores, unless a run has begun to use them.

A hand-over touches what its run needs, shows the run, and then looks whether all is there
(backends/submission.py). Here a thing is first put out of sight, then what runs use is read, and then it goes
or comes back. So one of the two sees the other, whatever the clocks say. What an interrupted removal leaves
is like a damaged image, or like an upload that broke off: the next upload or removal takes it.
"""

from __future__ import annotations

from collections.abc import Collection

from clusterkit.images.inventory import COMMON, USES
from clusterkit.site import Site

_REMOVE = (
    COMMON
    + USES
    + r"""
# $1 images, $2 snapshots, $3 runs, $4 environments; standard input: `ended RUN` for each run that counts as
# ended (for one of another root its directory), then `KIND MTIME NAME` for each thing. Prints `kept NAME`.
trap '' HUP PIPE
orders=$(cat) line='
' gone='' status=0
images=$1 snapshots=$2 runs=$3 environments=$4
held() {
  { printf '%s\n' "$orders"; echo uses; uses "$images" "$runs" || echo 'lost - -'; } | awk '
    { rest = substr($0, index($0, " ") + 1) }
    !begun { if ($0 == "uses") begun = 1; else if ($1 == "ended") ended[rest] = 1; next }
    $1 == "in" { folder = $2 == "" ? "" : rest "/" }
    $1 == "lost" { print "images"; if ($2 == "-") print "snapshots\nenvironments" }
    $1 == "build" { print rest }
    $1 == "run" && !((folder rest) in ended) { silent[folder rest] = 1 }
    $1 == "use" {
      what = rest; sub(/.*:/, "", what)
      run = substr(rest, 3, length(rest) - length(what) - length(".//run.json:"))
      delete silent[folder run]
      if (!((folder run) in ended) && (folder == "" || what ~ /^sha256-/)) print what
    }
    END { for (run in silent) print "images\nsnapshots\nenvironments"; print "whole" }'
}
stays() { # WHAT: whether a run holds it, or all of its kind, or the answer is not whole
  case $1 in sha256-*) all=images ;; *) all=${1%%/*} ;; esac
  case $line$held$line in
    *"$line$1$line"* | *"$line$all$line"*) return 0 ;;
    *"${line}whole$line"*) return 1 ;;
  esac
}
erase() {
  if [ -d "$1" ]; then find "$1" -type d -exec chmod u+rwx {} +; fi
  rm -rf "$1" || status=1
}
place() { case $1 in *image) cd "$images" ;; *snapshot) cd "$snapshots" ;; *) cd "$environments" ;; esac; }
for round in hide remove; do
  held=$(held)
  while read -r kind moment name; do
    case $round$kind in
      hideimage | removeimage) what=${name#.damaged-} hidden=.damaged-$what what=${what%.sif} ;;
      hidesnapshot | removesnapshot) what=snapshots/$name hidden=.$name.gc.part ;;
      hideenvironment | removeenvironment) what=environments/$name hidden=.$name.gc.part ;;
      hideleft-*) ! place "$kind" || erase "$name"; continue ;;
      *) continue ;;
    esac
    place "$kind" || { status=1; continue; }
    if [ "$round" = hide ]; then
      if stays "$what" || [ "$(modified "$name")" != "$moment" ]; then
        echo "kept $name"
        continue
      fi
      [ "$kind" = image ] || [ ! -e "$hidden" ] || erase "$hidden"
      if [ "$name" = "$hidden" ] || mv -f "$name" "$hidden"; then
        gone=$gone$name$line
      elif [ -e "$name" ]; then # not removed by another at the same time
        status=1
      fi
      continue
    fi
    case $line$gone in *"$line$name$line"*) ;; *) continue ;; esac
    if stays "$what" || [ "$(modified "$hidden")" != "$moment" ]; then
      echo "kept $name"
      [ -e "$name" ] || [ ! -e "$hidden" ] || mv "$hidden" "$name" || status=1
    else
      erase "$hidden"
      [ "$kind" != image ] || [ -e "$name" ] || rm -f "${what}.chunks"
    fi
  done <<END
$orders
END
done
exit $status
"""
)


def remove(site: Site, things: Collection[tuple[str, int, str]], ended: Collection[str]) -> set[str]:
    """Remove things; returns the names of those that were used since they were listed, or that a run uses.

    Args:
        site: the cluster.
        things: kind, time of the last use and name. Kinds are `image`, `snapshot` and `environment`, or with
            the prefix `left-` the leftovers of their uploads and builds.
        ended: the runs, as in `Inventory.uses`, whose use does not count.

    Raises:
        TransportError: something could not be removed.
    """
    layout = site.layout
    argv = ["sh", "-c", _REMOVE, "sh", layout.images, layout.snapshots, layout.runs, layout.environments]
    orders = [*(f"ended {run}" for run in ended), *(f"{kind} {used} {name}" for kind, used, name in things)]
    answer = site.transport.run(argv, stdin="\n".join(orders).encode(), timeout=None).text
    return {line.removeprefix("kept ") for line in answer.split("\n") if line.startswith("kept ")}
