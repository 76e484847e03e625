"""Uploading: what is there stays, what is new travels, what is wrong is mended, nothing half shows."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterkit.errors import ImageError
from clusterkit.images.image import Image, local_image, present
from clusterkit.images.planning import Way
from clusterkit.images.upload import upload
from tests.images.uploads import HEADER, Store, age, at_work, flip, no_bar, sha256
from tests.waiting import until

pytestmark = pytest.mark.slow

Sif = Callable[..., Path]
MB = 1_000_000


TRAVELS = pytest.mark.parametrize(
    "site", ["local", "ssh", pytest.param("ssh without rsync", marks=pytest.mark.slow)], indirect=True
)
"""Where it matters how the bytes travel, and not only what is to travel."""


def edited(path: Path, name: str = "edited.sif") -> Path:
    """The image with a little put in, a little changed and a little taken out."""
    content = bytearray(path.read_bytes())
    third = len(content) // 3
    content[third:third] = random.Random(9).randbytes(20_000)
    content[2 * third : 2 * third + 100] = bytes(100)
    del content[-third // 2 : -third // 2 + 5_000]
    new = path.with_name(name)
    new.write_bytes(content)
    return new


@TRAVELS
def test_upload_publishes_under_the_digest(store: Store, image: tuple[Path, Image]) -> None:
    path, wanted = image
    assert not present(store.site, wanted)
    assert store.plan(path).way is Way.FULL
    assert store.plan(path).bytes_to_send == wanted.bytes
    sent = store.send(path)
    listed = store.folder / f"sha256-{wanted.digest}.chunks"
    assert (sent.way, sent.bytes) == (Way.FULL, wanted.bytes + listed.stat().st_size)
    assert present(store.site, wanted)
    assert store.names == {wanted.name, listed.name}
    assert all(file.stat().st_mode & 0o777 == 0o400 for file in store.folder.glob("sha*"))
    assert store.folder.stat().st_mode & 0o777 == 0o700
    again = store.send(path)
    assert (again.way, again.bytes) == (Way.PRESENT, 0)
    assert store.plan(path).bytes_to_send == 0


@TRAVELS
def test_a_changed_image_sends_what_changed(store: Store, sif: Sif) -> None:
    old = sif(10 * MB)
    store.send(old)
    new = edited(old)
    todo = store.plan(new)
    assert todo.way is Way.DELTA
    assert todo.bytes_to_send < 0.1 * new.stat().st_size
    sent = store.send(new)
    assert sent.way is Way.DELTA
    assert todo.disk_bytes == todo.bytes_to_send + new.stat().st_size
    assert todo.bytes_to_send <= sent.bytes <= todo.bytes_to_send + 10_000
    assert sha256(old) == sha256(store.folder / f"sha256-{sha256(old)}.sif")
    assert len(list(store.folder.glob("*.chunks"))) == 2
    assert store.uploads == []


def test_any_laptop_can_send_a_delta(store: Store, sif: Sif, tmp_path: Path) -> None:
    old = sif(5 * MB)
    store.send(old)
    another = dataclasses.replace(store, cache=tmp_path / "another laptop" / "chunks")
    assert another.send(edited(old)).way is Way.DELTA
    assert len(list(another.cache.iterdir())) == 2


def test_the_best_of_several_images_is_taken(store: Store, sif: Sif) -> None:
    near, far = sif(3 * MB, seed=1, name="near.sif"), sif(3 * MB, seed=2, name="far.sif")
    store.send(near)
    store.send(far)
    assert store.plan(edited(near)).basis == sha256(near)
    assert store.plan(edited(far)).basis == sha256(far)


def test_an_image_that_is_all_new_travels_whole(store: Store, sif: Sif) -> None:
    store.send(sif(2 * MB, seed=1))
    new = sif(2 * MB, seed=2, name="other.sif")
    assert store.plan(new).way is Way.FULL
    assert store.send(new).way is Way.FULL


@pytest.mark.parametrize("list_content", [b"", b"clusterkit-chunks-1\n" + b"x" * 16, b"garbage"])
def test_a_chunk_list_that_is_wrong_costs_time_only(
    store: Store, sif: Sif, tmp_path: Path, list_content: bytes
) -> None:
    old = sif(2 * MB)
    store.send(old)
    (listed,) = store.folder.glob("*.chunks")
    listed.chmod(0o600)
    listed.write_bytes(list_content)
    another = dataclasses.replace(store, cache=tmp_path / "another" / "chunks")
    another.send(edited(old))


def test_a_list_that_promises_too_much_is_found_out(store: Store, sif: Sif) -> None:
    """The right list beside another image of that size: every step can be followed, the digest is wrong."""
    old = sif(2 * MB)
    store.send(old)
    there = store.folder / f"sha256-{sha256(old)}.sif"
    there.chmod(0o600)
    there.write_bytes(sif(2 * MB, seed=5, name="impostor.sif").read_bytes())
    sent = store.send(edited(old))
    assert sent.way is Way.FULL
    assert sent.damaged == sha256(old)
    assert not there.exists()


@TRAVELS
def test_a_flipped_byte_in_the_basis_is_found_and_mended(store: Store, sif: Sif) -> None:
    old = sif(10 * MB)
    store.send(old)
    there = store.folder / f"sha256-{sha256(old)}.sif"
    flip(there, 1234567)
    new = edited(old)
    sent = store.send(new)
    assert sent.damaged == sha256(old)
    assert f".damaged-{there.name}" in store.names
    assert not there.exists()
    if store.mends:
        assert sent.bytes < 0.1 * new.stat().st_size
    again = store.send(old)
    if store.mends:
        assert again.bytes < 0.1 * old.stat().st_size
    assert f".damaged-{there.name}" not in store.names


@TRAVELS
def test_a_flipped_byte_in_an_image_that_is_there_is_mended_on_request(store: Store, sif: Sif) -> None:
    path = sif(5 * MB)
    store.send(path)
    assert store.send(path, verify=True).way is Way.PRESENT
    there = store.folder / f"sha256-{sha256(path)}.sif"
    flip(there, 3_654_321)
    assert store.plan(path).way is Way.PRESENT, "its size is right"
    sent = store.send(path, verify=True)
    if store.mends:
        assert sent.bytes < 0.1 * MB
    assert store.names == {there.name, f"{there.stem}.chunks"}


def begun(store: Store, path: Path, share: float, seconds: float = 120) -> Path:
    """What an upload that broke off leaves; returns the partial file."""
    folder = store.folder / f".upload-{sha256(path)}.0badcafe"
    folder.mkdir(mode=0o700, exist_ok=True)
    part = folder / "image"
    part.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    age(folder, seconds)
    return part


@TRAVELS
def test_an_upload_goes_on_where_it_was(store: Store, sif: Sif) -> None:
    path = sif(5 * MB)
    begun(store, path, 0.6)
    assert store.plan(path).way is Way.RESUME
    assert store.plan(path).bytes_to_send == 2 * MB
    sent = store.send(path)
    assert sent.way is Way.RESUME
    if store.site.transport.where == "node":
        assert sent.bytes <= 2 * MB + 10_000
    assert store.uploads == []


@TRAVELS
def test_flipped_bytes_in_what_had_arrived_are_mended(store: Store, sif: Sif) -> None:
    path = sif(5 * MB)
    part = begun(store, path, 0.6)
    for offset in (0, 1_333_333, 2_999_999):
        flip(part, offset)
    sent = store.send(path)
    if store.mends:
        assert 2 * MB < sent.bytes < 2.1 * MB


@TRAVELS
def test_a_flipped_byte_in_a_complete_upload_is_mended(store: Store, sif: Sif) -> None:
    """Size and time are those of the image: rsync's quick look finds nothing to do."""
    path = sif(5 * MB)
    minutes_ago = time.time() - 120  # nobody is writing: no pause to find that out
    os.utime(path, (minutes_ago, minutes_ago))
    part = begun(store, path, 1.0)
    flip(part, 3 * MB)
    shutil.copystat(path, part)
    part.chmod(0o600)
    sent = store.send(path)
    if store.mends:
        assert 0 < sent.bytes < 0.1 * MB


def test_an_unfinished_upload_may_be_worth_less_than_a_delta(store: Store, sif: Sif) -> None:
    old = sif(3 * MB)
    store.send(old)
    new = edited(old)
    begun(store, new, 0.5)
    assert store.plan(new).way is Way.DELTA
    begun(store, new, 0.5).write_bytes(new.read_bytes()[:-1000])
    assert store.plan(new).way is Way.RESUME


@TRAVELS
def test_a_pack_that_had_arrived_in_part_is_continued(store: Store, sif: Sif) -> None:
    old = sif(10 * MB)
    store.send(old)
    content = old.read_bytes()
    new = old.with_name("new.sif")
    new.write_bytes(content[: 4 * MB] + random.Random(4).randbytes(3 * MB) + content[7 * MB :])
    whole = store.plan(new)
    folder = store.folder / f".upload-{sha256(new)}.0badcafe"
    folder.mkdir()
    start = whole.delta.stretches[0][0] if whole.delta else -1
    (folder / f"pack-{sha256(old)[:16]}").write_bytes(new.read_bytes()[start : start + 2 * MB])
    (folder / "image").write_bytes(content[: 6 * MB])  # the disk filled up while it was put together
    age(folder, 120)
    rest = store.plan(new)
    assert whole.bytes_to_send - rest.bytes_to_send == 2 * MB
    assert whole.disk_bytes - rest.disk_bytes == 8 * MB
    assert store.send(new).bytes < 1.3 * MB or store.site.transport.where != "node"


def test_what_somebody_is_writing_is_left_alone_and_not_sent_again(store: Store, sif: Sif) -> None:
    path = sif(2 * MB)
    part = begun(store, path, 0.5, seconds=0)
    with at_work(part):
        sent = store.send(path)
    if store.site.transport.where == "node":
        assert sent.bytes <= MB + 10_000
    assert store.uploads == [part.parent]
    assert part.read_bytes() == path.read_bytes()[:MB]


def test_the_last_bytes_of_a_client_that_died_are_waited_for(store: Store, sif: Sif) -> None:
    path = sif(2 * MB)
    with at_work(begun(store, path, 0.5, seconds=0), seconds=1.5):
        sent = store.send(path)
    if store.site.transport.where == "node":
        assert sent.bytes <= MB + 10_000
    assert store.uploads == []


def test_an_upload_that_ends_while_another_waits_is_enough(store: Store, sif: Sif) -> None:
    path = sif(2 * MB)
    part = begun(store, path, 0.5, seconds=0)

    def publish() -> None:
        until(lambda: list(store.folder.glob("*.clock")) != [])
        shutil.copy(path, store.folder / f"sha256-{sha256(path)}.sif")
        shutil.rmtree(part.parent)

    other = threading.Thread(target=publish)
    plan = store.plan(path)
    other.start()
    sent = upload(store.site, path, local_image(path, store.ledger), plan, cache=store.cache, bar=no_bar)
    other.join()
    assert (sent.way, sent.bytes) == (Way.PRESENT, 0)
    assert store.uploads == []


def test_old_unfinished_uploads_go_and_young_ones_stay(store: Store, sif: Sif) -> None:
    day = 86_400
    old = begun(store, sif(MB, seed=3, name="a.sif"), 0.5, 2 * day).parent
    young = begun(store, sif(MB, seed=4, name="b.sif"), 0.5, day / 2).parent
    store.send(sif(MB))
    assert not old.exists()
    assert young.exists()


def test_an_old_upload_of_this_image_is_used_before_it_goes(store: Store, sif: Sif) -> None:
    path = sif(4 * MB)
    begun(store, path, 0.5, 3 * 86_400)
    assert store.send(path).way is Way.RESUME
    assert store.uploads == []


@TRAVELS
def test_a_file_that_changes_meanwhile_is_not_published(store: Store, image: tuple[Path, Image]) -> None:
    path, wanted = image
    flip(path, 500_000)
    with pytest.raises(ImageError, match="does not match"):
        upload(store.site, path, wanted, store.plan(path), cache=store.cache, bar=no_bar)
    assert store.names == set()


def test_a_file_that_grows_meanwhile_is_not_sent(store: Store, image: tuple[Path, Image]) -> None:
    path, wanted = image
    todo = store.plan(path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ImageError, match="has changed"):
        upload(store.site, path, wanted, todo, cache=store.cache, bar=no_bar)
    assert store.names == set()


def test_a_torn_image_on_the_cluster_is_replaced(store: Store, image: tuple[Path, Image]) -> None:
    path, wanted = image
    store.send(path)
    there = store.folder / wanted.name
    there.chmod(0o600)
    there.write_bytes(b"torn")
    assert not present(store.site, wanted)
    store.send(path)


def test_too_little_room_is_said_before_anything_is_sent(store: Store, image: tuple[Path, Image]) -> None:
    path, wanted = image
    full = dataclasses.replace(store.site, free_bytes=1000)
    with pytest.raises(ImageError, match="no space left"):
        upload(full, path, wanted, store.plan(path), cache=store.cache, bar=no_bar)
    assert store.names == set()


def test_what_has_arrived_counts_when_room_is_short(store: Store, sif: Sif) -> None:
    path = sif(2 * MB)
    begun(store, path, 0.9)
    tight = dataclasses.replace(store, site=dataclasses.replace(store.site, free_bytes=MB))
    assert tight.send(path).way is Way.RESUME


def test_empty_files_in_the_store_are_no_images(store: Store, image: tuple[Path, Image]) -> None:
    (store.folder / f"sha256-{'0' * 64}.sif").touch()
    (store.folder / "notes.txt").write_bytes(HEADER)
    assert store.send(image[0]).way is Way.FULL
