"""The environments on a cluster: puts there what they are built from, and looks whether they are built."""

from __future__ import annotations

import hashlib
import io
import secrets
import tarfile
from dataclasses import dataclass

from clusterkit.environments.environment import Environment
from clusterkit.errors import ConfigError
from clusterkit.resources import TEMPLATES
from clusterkit.site import Layout, Site
from clusterkit.transport import faults
from clusterkit.untrusted import ordinal

# $1 the store, $2 the digest, $3 the program's name, $4 the group that may read it, $5 the mode of its
# folders, $6 that of its files, $7 a new name, $8 whether it is only looked at. Standard input is an
# archive of what may be missing. Prints whether the inputs and the wheels are there, and the bytes for
# each Python that it is built for. When two write it, the second moves its folder into the first, or fails
# to, and removes it.
_PUBLISH = r"""
umask 077
export LC_ALL=C
part=$1/.$7.part group=$4 folder=$5
share() { test -z "$group" || { chgrp -R "$group" "$1" && chmod "$folder" "$1"; }; }
if test -z "$8" && { test ! -f "$1/$2/about" || test ! -f "$1/$3"; }; then
    test -d "$1" || { mkdir -p "$1" && share "$1"; } || exit 1
    mkdir "$part" && tar -xof - -C "$part" && chmod "$6" "$part/$3" && share "$part" || exit 1
    mv -f "$part/$3" "$1/$3" || exit 1
    if test -d "$part/$2"; then
        chmod "$6" "$part/$2"/* && share "$part/$2" || exit 1
        test -d "$1/$2" || mv "$part/$2" "$1/$2" 2>/dev/null || test -d "$1/$2" || exit 1
        rm -rf "$1/$2/$2"
    fi
    rm -rf "$part"
else
    cat >/dev/null
fi
cd "$1/$2" 2>/dev/null && test -f about || exit 0
test -n "$8" || touch -c . 2>/dev/null
echo there
test ! -d wheels || echo wheels
for link in */current; do
    test ! -e "$link" || cat "${link%/current}.bytes"
done
exit 0
"""


@dataclass(frozen=True)
class StoredEnvironment:
    """What of an environment a cluster has."""

    there: bool
    """Whether it can be built."""
    wheels: bool
    """Whether its packages were fetched."""
    built: tuple[int, ...]
    """Its bytes for each Python that it is built for."""


def program_path(layout: Layout) -> str:
    """Returns the path of the program that builds and enters environments, named by its content."""
    text = (TEMPLATES / "environment.sh").read_bytes()
    return f"{layout.environments}/.program-{hashlib.sha256(text).hexdigest()[:12]}.sh"


def look(site: Site, environment: Environment) -> StoredEnvironment:
    """Looks what a cluster has; nothing there changes.

    Raises:
        TransportError: the cluster did not answer.
    """
    return _ask(site, environment, b"", "yes")


def publish(site: Site, environment: Environment) -> StoredEnvironment:
    """Puts what an environment is built from on the cluster, and keeps `storage prune` off it for a while.

    Raises:
        ConfigError: it is not there, and only the record of a run tells of it.
        TransportError: the cluster cannot be written to.
    """
    files = {f"{environment.digest}/{name}": text.encode() for name, text in environment.inputs.items()}
    program = (TEMPLATES / "environment.sh").read_bytes()
    files[program_path(site.layout).rpartition("/")[2]] = program
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    stored = _ask(site, environment, buffer.getvalue(), "")
    if not stored.there:
        raise ConfigError(
            f"{site.transport.where}: the environment {environment.digest} of {environment.file} is missing",
            hint="`clusterkit deploy`, with that file in the project as it was, sends it again",
        )
    return stored


def _ask(site: Site, environment: Environment, stdin: bytes, only_look: str) -> StoredEnvironment:
    layout, sharing = site.layout, site.sharing
    arguments = [layout.environments, environment.digest, program_path(layout).rpartition("/")[2]]
    arguments += [sharing.group or "", sharing.folder, sharing.file, secrets.token_hex(6), only_look]
    argv = ["sh", "-c", _PUBLISH, "sh", *arguments]
    answer = site.transport.run(argv, stdin=stdin, check=False, timeout=None)
    if answer.returncode != 0:
        raise faults.unwritable(layout.environments, answer.error_text, where=site.transport.where)
    lines = answer.text.split()
    sizes = (ordinal(line) for line in lines)
    return StoredEnvironment(
        "there" in lines, "wheels" in lines, tuple(size for size in sizes if size is not None)
    )
