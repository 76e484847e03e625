"""Judges a cluster's roots: whether they are writable, private and have space. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit import ownership
from clusterkit.backends.checks import (
    CheckPlace,
    Checks,
    Scope,
    Verdict,
    failed,
    passed,
    shortlist,
    skipped,
    warned,
)
from clusterkit.checkup.login import Login
from clusterkit.images.image import Image
from clusterkit.probes import TIME_UP
from clusterkit.probes.space import Space, parse
from clusterkit.units import format_bytes

_MODE = re.compile(
    r"^(?P<mode>d[-rwxsStT]{9})\S*\s+\d+\s+(?P<uid>\d+)\s+\d+\s.*?\s(?P<path>/.*)$", re.MULTILINE
)
_LISTED = re.compile(
    r"^(?P<mode>[-d][-rwxsStT]{9})(?P<acl>\S?)\s+\d+\s+(?P<owner>\S+)\s+(?P<group>\S.*?)\s+\d+\s.*?\s(?P<path>/.*?)/?$",
    re.MULTILINE,
)
_LITTLE, _SCARCE = 64 << 20, 1 << 30
"""Free bytes of a root below which a run cannot write, or a few runs fill it."""


@dataclass(frozen=True)
class Storage:
    """The answer about the roots."""

    login: Login
    image: Image | None
    uploads: bool
    """Whether the image is on this machine and can be sent."""
    deployed: bool = True
    """Whether this project has ever sent an image there."""

    @property
    def table(self) -> str:
        """The settings' table, for cures."""
        return f"[clusters.{self.login.cluster.name}]"

    @property
    def to_send(self) -> int:
        """Bytes of the image if it must still be sent."""
        missing = self.image is not None and self.login.answer["image"].status != 0
        return self.image.bytes if self.image and missing else 0

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The space of every root."""
        roles = {"work root": "root", "images": "store", "scratch": "scratch"}
        return parse(
            self.login.answer["space"].text, {role: self.login.about(key) for role, key in roles.items()}
        )


CHECKS = Checks[Storage](CheckPlace.STORAGE, "login")


@CHECKS.declare()
def root(storage: Storage) -> Verdict:
    """Judges whether a file can be written to the root."""
    part, path = storage.login.answer["root"], storage.login.about("root")
    there = part.lines[:1] == ["there"]
    if part.status == 0:
        return passed(f"{path} is writable" if there else f"{path} does not exist yet and can be created")
    if there:
        return failed(f"{path}: {part.last}", _cure_of(part.last, storage))
    near = part.value("near")
    return failed(
        f"{path} does not exist, and you may not write to {near}",
        f"set `root` of {storage.table} to a folder of your own",
    )


@CHECKS.declare()
def owners(storage: Storage) -> Verdict:
    """Judges whether nobody else could change a folder on the path, links followed."""
    faults, _, rest = storage.login.answer["owners"].text.rpartition("--")
    dangers, notes = ownership.parse(faults), ownership.parse(rest)
    if dangers:
        text = shortlist([fault.text for fault in dangers], 2)
        return failed(text, ownership.cure(dangers, storage.login.about("user"), storage.table))
    trusted = f"; you trust whoever could: {shortlist([note.text for note in notes], 2)}" if notes else ""
    return passed(f"nobody else can change the work root, scratch or images{trusted}")


@CHECKS.declare("login", "root")
def modes(storage: Storage) -> Verdict:
    """Judges whether the folders are private, but for images and code that a group can reach and read."""
    wide = open_folders(storage)
    if wide:
        text = shortlist([f"{path} ({mode})" for path, mode in wide.items()], 3)
        return warned(f"others may read {text}", f"chmod go= {shlex.join(wide)}")
    group = storage.login.cluster.group
    if group and (closed := _closed(storage, group)):
        text = shortlist([f"{entry['path']} ({entry['mode']} {entry['group']})" for entry in closed], 3)
        return warned(f"group {group} may read images and code, but not {text}", _opening(storage, closed))
    return passed(
        "only you can read them" + (f", and group {group} may read images and code" if group else "")
    )


def _closed(storage: Storage, group: str) -> list[re.Match[str]]:
    """Returns what keeps the group from images and snapshots: folders above them, or themselves.

    An access control list may let the group in without showing it, and so may another group that its members
    are in where the site does not tell who they are.
    """
    text = storage.login.answer["reach"].text
    members = [set(line.split()[1:]) for line in text.split("\n") if line.startswith("member ")]
    theirs = {group, *(line[6:] for line in text.split("\n") if line.startswith("group "))}
    if members:
        theirs |= set.intersection(*members)
    snapshots = f"{storage.login.about('root')}/snapshots"
    closed = {}
    for entry in _LISTED.finditer(text):
        path, mode = entry["path"], entry["mode"]
        unknown = not members and mode[6] in "xs"
        bits = mode[4:7] if entry["group"] in theirs or unknown else mode[7:]
        contents = path in (storage.login.about("store"), snapshots) or f"{snapshots}/" in path
        read = bits[0] == "r" or not (contents or mode[0] == "-")
        if entry["acl"] != "+" and not (read and (mode[0] == "-" or bits[2] in "xst")):
            closed[path] = entry
    return list(closed.values())


def _opening(storage: Storage, closed: Sequence[re.Match[str]]) -> str:
    """Returns how to let the group in."""
    group, user = storage.login.cluster.group or "", storage.login.about("user")
    if other := [entry for entry in closed if entry["owner"] != user]:
        return (
            f"ask {other[0]['owner']} to let group {group} pass {other[0]['path']}, or set `root` and "
            f"`image_store` of {storage.table} to folders that it can pass"
        )
    snapshots, store = f"{storage.login.about('root')}/snapshots", storage.login.about("store")
    paths = [entry["path"] for entry in closed if not f"{entry['path']}/".startswith(f"{snapshots}/")]
    images = [path for path in paths if path == store or path.startswith(f"{store}/sha256-")]
    above = [path for path in paths if path not in images]
    code = [snapshots] if len(paths) < len(closed) else []
    steps = []
    for names, deep, bits in ((above, "", "g+x"), (images, "", "g+rX"), (code, "-R ", "g+rX")):
        if names:
            words = shlex.join(names)
            steps += [f"chgrp {deep}{shlex.quote(group)} {words}", f"chmod {deep}{bits} {words}"]
    return " && ".join(steps)


def open_folders(storage: Storage) -> dict[str, str]:
    """Returns paths and modes of the user's folders that others may enter or read."""
    me = storage.login.about("uid")
    shared = {storage.login.about("root"), storage.login.about("store")}
    shared.add(f"{storage.login.about('root')}/snapshots")
    modes = {}
    for match in _MODE.finditer(storage.login.answer["modes"].text):
        if me not in ("", match["uid"]):
            continue  # nothing that one could change
        group, others = match["mode"][4:7], match["mode"][7:]
        allowed = storage.login.cluster.group is not None and match["path"] in shared and group[1] == "-"
        if others.strip("-tT") or (group.strip("-") and not allowed):
            modes[match["path"]] = match["mode"]
    return modes


@CHECKS.declare()
def room(storage: Storage) -> Verdict:
    """Judges whether every root has space, by df and quota."""
    if not any(space.left is not None for space in storage.spaces):
        return warned("neither df nor quota reports it", "df -h")
    texts, scarce = [], None
    for space in storage.spaces:
        if space.left is None:
            continue
        quota = " by quota" if space.left == space.quota_left else ""
        text = f"{space.role} {format_bytes(space.left)}{quota}"
        texts.append(text)
        if space.left < _LITTLE and space.role != "home":
            return failed(f"{text} left in {space.path}", _MAKE_ROOM)
        if space.role == "images" and space.left < (needed := storage.to_send):
            return failed(f"{text} left in {space.path}, the image needs {format_bytes(needed)}", _MAKE_ROOM)
        if space.left < _SCARCE and scarce is None:
            scarce = warned(f"{text} left in {space.path}", _MAKE_ROOM)
    return scarce or passed(", ".join(texts))


@CHECKS.declare("login", "image-here", applies=Scope.stores_image)
def image_there(storage: Storage) -> Verdict:
    """Judges it by name and size: it was verified when it was sent."""
    assert storage.image is not None
    cluster, image = storage.login.cluster.name, storage.image
    part = storage.login.answer["image"]
    size = part.text.split()[4:5]
    send = f"clusterkit deploy --cluster {cluster}"
    cure = send if storage.uploads else f"clusterkit build --cluster {cluster}"
    if part.status != 0 or not size:
        if not storage.deployed:
            return skipped(f"not deployed yet: `{cure}`; then doctor checks the rest")
        return failed(f"{image.name[:19]}... is not in {storage.login.about('store')}", cure)
    if size[0] != str(image.bytes):
        return failed(f"{image.name[:19]}... has {size[0]} bytes there, not {image.bytes}", cure)
    return passed(f"{image.name[:19]}..., {format_bytes(image.bytes)}")


@CHECKS.declare("image-there", applies=Scope.stores_image)
def image_whole(storage: Storage) -> Verdict:
    """Judges its content: all of it is read there."""
    assert storage.image is not None
    part = storage.login.answer["digest"]
    if part.status == TIME_UP or "digest" not in storage.login.answer:
        return passed("its size is right; it is too large to verify in a minute (deploy --verify-image does)")
    if part.status != 0:
        return failed(f"it cannot be read: {part.last}", _verify(storage))
    if part.text.split()[:1] != [storage.image.digest]:
        return failed("its content is not what was deployed: its SHA-256 differs", _verify(storage))
    return passed("SHA-256 is right")


def _verify(storage: Storage) -> str:
    return f"clusterkit deploy --cluster {storage.login.cluster.name} --verify-image"


def _cure_of(words: str, storage: Storage) -> str:
    if re.search(r"no space left|quota", words, re.IGNORECASE):
        return _MAKE_ROOM
    return f"set `root` of {storage.table} to a folder of your own"


_MAKE_ROOM = (
    "clusterkit storage prune, clusterkit storage clean; "
    "or set `root`, `scratch` or `image_store` to a larger disk"
)
