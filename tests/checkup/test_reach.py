"""What `group` promises: its members can read images and code, as they find out themselves."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.checks import Outcome, Verdict, parse_answer
from clusterkit.checkup import storage
from clusterkit.checkup.login import Login, login_probe
from clusterkit.checkup.storage import Storage
from clusterkit.probes import script
from tests.checkup.test_storage import judged
from tests.doubles.lab import ALICE, BOB, LAB, AsUser, Lab, Person, new_lab

needs_users = pytest.mark.needs("root")
lab = pytest.fixture(new_lab)


def verdict(person: Person) -> Verdict:
    """What doctor says to her."""
    probe = login_probe(person.cluster, image=None, requests={})
    said = person.transport.run(["sh"], stdin=script([probe]).encode())
    return storage.modes(Storage(Login(person.cluster, parse_answer(said.text), 0.0), None, uploads=False))


def reads(lab: Lab, path: Path, *groups: int) -> bool:
    done = AsUser(BOB, lab.disk, groups).run(["cat", str(path)], check=False)
    return done.returncode == 0


def sends(person: Person) -> tuple[Path, Path]:
    """An image and a file of code, as they are published."""
    image, code = person.image(), Path(person.cluster.root) / "snapshots/c0de/project/train.py"
    text = f"umask 077; cd {person.cluster.root}/snapshots && mkdir -p c0de/project && echo x >{code}"
    sharing = person.site().sharing
    if sharing.group:
        text += f" && chgrp -R {sharing.group} c0de && chmod -R g=rX c0de"
    person.transport.run(["sh", "-c", text])
    return image, code


@needs_users
@pytest.mark.parametrize("store", [None, "alice/far/away/images"])
def test_the_group_passes_what_is_made_for_it_and_nobody_else_does(lab: Lab, store: str | None) -> None:
    alice = lab.person(ALICE, "alice/deep/down/ck", store=store, group=True)
    for path in sends(alice):
        assert reads(lab, path, LAB)
        assert not reads(lab, path)
    assert verdict(alice).outcome is Outcome.PASS, verdict(alice)
    assert not reads(lab, Path(alice.cluster.root) / "runs", LAB)
    for made in ("alice/deep", "alice/deep/down"):
        assert (lab.disk / made).stat().st_mode & 0o777 == 0o710


@needs_users
@pytest.mark.parametrize("case", ["home", "made before", "sent before", "store", "behind a link"])
def test_what_keeps_the_group_out_is_said_with_what_to_type(lab: Lab, case: str) -> None:
    store = {"store": "alice/pool/images", "behind a link": "alice/link/images"}.get(case)
    alice = lab.person(ALICE, "alice/ck", store=store, group=True)
    before = replace(alice, cluster=alice.cluster.model_copy(update={"group": None}))
    if case == "behind a link":
        (lab.disk / "alice/private/pool").mkdir(parents=True)
        for made in ("private", "private/pool"):
            os.chown(lab.disk / "alice" / made, ALICE, ALICE)
        (lab.disk / "alice/private").chmod(0o700)
        (lab.disk / "alice/link").symlink_to("private/pool")
        os.lchown(lab.disk / "alice/link", ALICE, ALICE)
    paths = sends(before if case in ("made before", "sent before", "store") else alice)
    if case == "sent before":
        alice.site(create=True)
    if case == "home":
        (lab.disk / "alice").chmod(0o700)
    assert not all(reads(lab, path, LAB) for path in paths)
    said = verdict(alice)
    assert said.outcome is Outcome.WARN
    assert f"group {LAB} may read images and code, but not " in said.evidence
    alice.transport.run(["sh", "-c", said.cure])
    assert verdict(alice).outcome is Outcome.PASS, verdict(alice)
    assert all(reads(lab, path, LAB) for path in paths)
    assert not any(reads(lab, path) for path in paths)


@needs_users
@pytest.mark.parametrize("group", [False, True])
def test_what_is_made_is_private_below_a_default_access_control_list(lab: Lab, group: bool) -> None:
    """Such a list takes the place of the umask."""
    alice = lab.person(ALICE, "alice/deep/ck", group=group)
    all_of_it = ((0x01, 7), (0x04, 7), (0x20, 5))  # the user, the group, others
    entries = b"".join(struct.pack("<HHI", tag, bits, 2**32 - 1) for tag, bits in all_of_it)
    try:
        os.setxattr(lab.disk / "alice", "system.posix_acl_default", struct.pack("<I", 2) + entries)
    except OSError:
        pytest.skip("this file system has no access control lists")
    alice.site(create=True)
    made = [path for path in (lab.disk / "alice").rglob("*") if path.is_dir() and not path.is_symlink()]
    shared = {"ck": 0o750, "deep": 0o710, "images": 0o750, "snapshots": 0o750} if group else {}
    assert {path.name for path in made} >= {"runs", "cache", "scratch", "ck"}
    assert [f"{path}" for path in made if path.stat().st_mode & 0o777 != shared.get(path.name, 0o700)] == []


MINE = "drwx------ 5 1 1 4096 Jan  1 00:00 /share/me"
LISTED = "drwxr-x---{acl} 5 {owner} {group} 4096 Jan  1 00:00 /share\n"


@pytest.mark.parametrize(
    ("told", "outcome", "cure"),
    [
        (LISTED.format(acl="", owner="root", group="staff"), Outcome.PASS, ""),  # who knows who is in it
        (
            "group lab\nmember bob lab\n" + LISTED.format(acl="", owner="root", group="staff"),
            Outcome.WARN,
            "ask root to let group lab pass /share",
        ),
        (
            "group lab\nmember bob lab domain staff\nmember eve staff lab\n"
            + LISTED.format(acl="", owner="root", group="staff"),
            Outcome.PASS,
            "",
        ),
        ("member bob lab\n" + LISTED.format(acl="+", owner="root", group="staff"), Outcome.PASS, ""),
        ("member bob lab\n" + LISTED.format(acl="", owner="root", group="lab"), Outcome.PASS, ""),
    ],
)
def test_a_folder_of_another_group(told: str, outcome: Outcome, cure: str) -> None:
    said = judged("modes", modes=(0, MINE), reach=(0, told), group="lab")
    assert said.outcome is outcome, said
    assert cure in (said.cure or "")
