"""The cluster's side of an exchange: the working copy of a live session, `work/` in its run directory.

What comes from here is untrusted, as results are. What is sent arrives in a folder beside the working copy;
each file is moved into place if the one there is still as it was listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterkit.errors import RunError, TransportError
from clusterkit.results.containment import PARTIAL
from clusterkit.results.listing import NO_SUCH_ROOT, RemoteFile, list_argv, parse_listing
from clusterkit.snapshots.snapshot import ManifestEntry
from clusterkit.transport.base import Transport

WORK = "work"
"""The working copy's folder in the run directory."""
_LIST_SECONDS = 300.0
_HARMLESS = re.compile(r"(?i)no such file|permission denied")
_DIGEST_LINE = re.compile(r"\\?([0-9a-f]{64}) ")

_SHA256 = 'command -v sha256sum >/dev/null || sha256sum() { shasum -a 256 "$@"; }'

# Standard input: names that begin with "./". Prints, for some names at a time, a line with a mark for each,
# `x` for an executable file, and then their digests. $1 the working copy, $2 the script for some names.
_DIGESTS = 'cd -- "$1" && exec xargs -0 sh -c "$2" sh'
_SOME_DIGESTS = f"""
{_SHA256}
marks=
for name do if [ -x "$name" ]; then marks=${{marks}}x; else marks=${{marks}}-; fi; done
echo "$marks"
sha256sum "$@"
"""

# Standard input: for each file its digests before and after, - for no file, and its name. Prints a line for
# each. $1 the working copy, $2 the folder with what has arrived, $3 the script for some files.
_PLACE = """
cd -- "$1" || exit 1
umask 077
LC_ALL=C xargs -0 -x -n 30 sh -c "$3" sh "$2"
code=$?
rm -rf -- "$2"
exit "$code"
"""
_PLACE_SOME = f"""
{_SHA256}
linked() {{
    way=$1
    while [ "$way" != . ]; do
        [ ! -h "$way" ] || return 0
        way=${{way%/*}}
    done
    return 1
}}
digest() {{
    found=$(sha256sum <"$1")
    printf '%s' "${{found%% *}}"
}}
arrived=$1
shift
while [ $# -gt 2 ]; do
    before=$1 after=$2 name=$3 now=-
    shift 3
    if linked "$name"; then echo linked; continue; fi
    [ ! -e "$name" ] || now=other
    [ ! -f "$name" ] || now=$(digest "$name")
    if [ "$now" != "$before" ]; then
        [ "$now" = other ] && echo other || echo changed
    elif [ "$after" = - ]; then
        rm -f -- "$name" && echo done || echo failed
    elif [ "$(digest "$arrived/$name")" != "$after" ]; then
        echo unlike
    else
        mkdir -p -- "${{name%/*}}" && mv -f -- "$arrived/$name" "$name" && echo done || echo failed
    fi
done
"""
_WHY_NOT = {
    "linked": "a link is in its place there, and clusterkit does not write through links",
    "other": "a folder or something else is in its place there",
    "unlike": "it changed while it was being sent",
    "changed": "it was changed there in the meantime",
    "failed": "it cannot be written there",
}


@dataclass(frozen=True)
class WorkListing:
    """The files of a working copy, not yet read."""

    files: tuple[RemoteFile, ...]
    refused: dict[str, str]
    """Path -> why it is not exchanged; of a folder, for all below it."""


@dataclass(frozen=True)
class WorkChange:
    """A change to one file of a working copy."""

    name: str
    before: ManifestEntry | None
    """What is there; None for nothing."""
    after: ManifestEntry | None
    """What was sent; None for a file to remove."""


def list_work(transport: Transport, run_dir: str) -> WorkListing:
    """Lists the working copy of a run.

    Raises:
        RunError: the run has none.
        TransportError: the connection failed, or the answer is incomplete or cannot be trusted.
    """
    done = transport.run(list_argv(run_dir, [WORK]), check=False, timeout=_LIST_SECONDS)
    try:
        listing = parse_listing(done.stdout, {WORK})
    except ValueError as error:
        raise TransportError(
            f"{transport.where} lists files it was not asked about: {error}",
            hint="nothing was copied; find out what is run there in place of `find`",
        ) from error
    if done.returncode == NO_SUCH_ROOT or WORK not in listing.run_ids:
        raise RunError(
            f"{transport.where}: there is no {run_dir}/{WORK}",
            hint="it is made once the job runs, and goes with the run directory",
        )
    serious = [line for line in done.error_text.splitlines() if not _HARMLESS.search(line)]
    if done.returncode != 0 and serious:
        raise TransportError(f"{transport.where}: the working copy cannot be listed: {serious[-1]}")
    refused = {one.path.removeprefix(f"{WORK}/"): one.why for one in listing.refused}
    return WorkListing(listing.files, refused)


def read_work(transport: Transport, run_dir: str, files: Iterable[RemoteFile]) -> dict[str, ManifestEntry]:
    """Hashes files of the working copy where they are.

    Raises:
        TransportError: the connection failed, or a file changed while it was read.
    """
    wanted = list(files)
    if not wanted:
        return {}
    done = transport.run(
        ["env", "LC_ALL=C", "sh", "-c", _DIGESTS, "sh", f"{run_dir}/{WORK}", _SOME_DIGESTS],
        stdin=b"".join(_raw(f"./{file.inside}") for file in wanted),
        check=False,
        timeout=None,
    )
    marks, digests = "", list[str]()
    for line in done.text.splitlines():
        if found := _DIGEST_LINE.match(line):
            digests.append(found[1])
        elif not line.strip("x-"):
            marks += line
    if done.returncode != 0 or not len(marks) == len(digests) == len(wanted):
        raise TransportError(
            f"{transport.where}: the working copy cannot be read: {done.reason}",
            hint="if it changed while it was read, run the same command again",
        )
    return {
        file.inside: ManifestEntry("exec" if mark == "x" else "file", digest, file.size)
        for file, mark, digest in zip(wanted, marks, digests, strict=True)
    }


def arrived_folder(run_dir: str) -> str:
    """The folder to which files are sent before `change_work` moves them into place."""
    return f"{run_dir}/{PARTIAL}/{WORK}"  # never synced


def change_work(transport: Transport, run_dir: str, changes: Sequence[WorkChange]) -> dict[str, str]:
    """Moves what has arrived into place, and removes files.

    Returns:
        Path -> why it was left, for what was not done.

    Raises:
        TransportError: the connection failed; what was not done can be done again.
    """
    if not changes:
        return {}
    words = ((_digest(one.before), _digest(one.after), f"./{one.name}") for one in changes)
    done = transport.run(
        ["sh", "-c", _PLACE, "sh", f"{run_dir}/{WORK}", arrived_folder(run_dir), _PLACE_SOME],
        stdin=b"".join(map(_raw, (word for three in words for word in three))),
        check=False,
        timeout=None,
    )
    said = done.text.splitlines()
    if len(said) != len(changes):
        raise TransportError(
            f"{transport.where}: the working copy cannot be changed: {done.reason}",
            hint="run the same command again",
        )
    left = {one.name: _WHY_NOT[word] for one, word in zip(changes, said, strict=True) if word in _WHY_NOT}
    if any(word == "failed" for word in said) and done.stderr:
        left = {
            name: f"{why}: {done.reason}" if why == _WHY_NOT["failed"] else why for name, why in left.items()
        }
    return left


def _digest(entry: ManifestEntry | None) -> str:
    return entry.digest if entry else "-"


def _raw(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape") + b"\0"
