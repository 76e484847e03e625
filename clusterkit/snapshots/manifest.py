r"""The manifest of a snapshot: kind, sha256, size and name of every file, and with them its address. Pure.

One record a file, ended by a NUL: `KIND SHA256 SIZE NAME`, sorted by name. KIND is `file`, `exec`
(its owner may execute it) or `link` (hashed is where it points to). The first 16 hexadecimal digits
of the manifest's own sha256 are the snapshot's id: `zcat manifest.gz | sha256sum` proves a snapshot there.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Mapping
from typing import NamedTuple

_LARGEST = 128 << 20
"""Bytes: a million files with long names. One that comes in an archive is not trusted to be small."""
Manifest = bytes
"""A rendered manifest."""


class ManifestEntry(NamedTuple):
    """One file."""

    kind: str
    digest: str
    """sha256, hexadecimal."""
    bytes: int


def render(entries: Mapping[str, ManifestEntry]) -> Manifest:
    """The manifest of files by name."""
    records = (f"{e.kind} {e.digest} {e.bytes} {name}\0" for name, e in sorted(entries.items()))
    return "".join(records).encode("utf-8", "surrogateescape")


def parse(data: Manifest) -> dict[str, ManifestEntry]:
    """Files by name; records that are none are left out, which only makes more be sent."""
    entries = {}
    for record in data.decode("utf-8", "surrogateescape").split("\0"):
        kind, _, rest = record.partition(" ")
        digest, _, rest = rest.partition(" ")
        size, _, name = rest.partition(" ")
        if name and size.isdigit():
            entries[name] = ManifestEntry(kind, digest, int(size))
    return entries


def pack(data: Manifest) -> bytes:
    """The manifest as it is stored: gzip, the same bytes every time."""
    return gzip.compress(data, mtime=0)


def unpack(packed: bytes) -> Manifest:
    """A stored manifest; a damaged or far too large one is empty, so that more is sent than needed."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            data = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error):
        return b""
    return data if len(data) <= _LARGEST else b""


def address(data: Manifest) -> str:
    """The id of the snapshot with this manifest."""
    return hashlib.sha256(data).hexdigest()[:16]


def missing(
    wanted: Mapping[str, ManifestEntry], there: Mapping[str, ManifestEntry]
) -> dict[str, ManifestEntry]:
    """The files whose content is not there under the same name."""
    return {
        name: entry
        for name, entry in wanted.items()
        if (old := there.get(name)) is None or (old.digest, old.bytes) != (entry.digest, entry.bytes)
    }
