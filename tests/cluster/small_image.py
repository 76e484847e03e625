"""A small image, for jobs that need a container but not the trainer: a shell, a few tools and Python."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.cache import cached
from tests.cluster.cluster import Cluster

NAME = "small"
"""What /etc/os-release inside says."""
_BUILD = """
set -eu
top=$(mktemp -d /share/small-image.XXXXXX)
trap 'rm -rf "$top"' EXIT
mkdir "$top/root"
cd "$top/root"
mkdir -p usr/bin usr/lib etc proc sys dev tmp var/tmp root home share opt/venv/bin
for name in bin lib lib64 sbin; do ln -s "usr/$name" "$name"; done
mkdir usr/lib64 usr/sbin
tools="bash cat chmod cp cut dash date dirname du echo env find grep head hostname id ln ls mkdir mkfifo mv"
tools="$tools od python3 readlink rm sed sh sleep stty tail tee touch tr true tty uname wc"
for tool in $tools; do cp -L "/usr/bin/$tool" usr/bin; done
for python in usr/bin/python opt/venv/bin/python; do ln -s /usr/bin/python3 "$python"; done
cp -r /usr/lib/python3* usr/lib
rm -rf usr/lib/python3 $(find usr/lib -name __pycache__)
find usr/bin usr/lib -type f \\( -perm -1 -o -name '*.so' \\) -exec ldd {} + 2>/dev/null |
    grep -o '/[^ :]*\\.so[^ :]*' | sort -u | grep -v "$PWD" | xargs cp -L --parents -t "$PWD"
echo ID=NAME >etc/os-release
touch etc/passwd etc/group
apptainer -q build --mksquashfs-args "-comp zstd -Xcompression-level 1" "$top/image.sif" .
mv "$top/image.sif" "$1"
""".replace("NAME", NAME)


def small_image(cluster: Cluster) -> Path:
    """The image, from the cache or built in some seconds."""

    def build(target: Path) -> None:
        built = cluster.share / "small-image.sif"
        cluster.run("login", ["sh", "-c", _BUILD, "sh", f"/share/{built.name}"], user=cluster.user)
        shutil.move(built, target)

    return cached("small", [_BUILD], build, suffix=".sif")
