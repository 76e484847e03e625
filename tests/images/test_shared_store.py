"""A store of images that several work roots or several people use: what a run may need is never removed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.backends.submission import bundle, hand_over_argv, parse_hand_over
from clusterkit.commands import storage
from clusterkit.errors import ImageError, TransportError
from clusterkit.images.image import Image, must_be_writable, sha256_of
from clusterkit.images.planning import plan
from clusterkit.images.removal import remove
from clusterkit.images.upload import upload
from clusterkit.runs.state import RunState, to_text
from tests.doubles.lab import ALICE, BOB, LAB, OLD, Lab, new_lab
from tests.doubles.slurm_site import Member
from tests.images.uploads import HEADER, no_bar

pytestmark = [pytest.mark.slow, pytest.mark.needs("root")]

lab = pytest.fixture(new_lab)


WAITS = Member(1, JobState.PENDING)
RUNS = Member(2, JobState.RUNNING)
DEFERRED = Member(3, JobState.DEFERRED, group="a40-2m-20260101-000003")
TASK = Member(4, JobState.PENDING, group="a40-2m-20260101-000004")
LIVE = [WAITS, RUNS, DEFERRED, TASK]
STORES = {
    # the image's owner, her store, whether the group may read it; the run's owner and his root
    "another's run, a store of its own": (ALICE, "alice/images", True, BOB, "bob/ck"),
    "another's run, the root's own store": (ALICE, None, True, BOB, "bob/ck"),
    "one's own other root, a store of its own": (ALICE, "alice/images", False, ALICE, "alice/second"),
    "one's own other root, the first root's store": (ALICE, None, False, ALICE, "alice/second"),
    "one's own other root, a group's store": (ALICE, "alice/images", True, ALICE, "alice/second"),
    "another project in the same root": (ALICE, "alice/images", False, ALICE, "alice/ck"),
}


@pytest.mark.parametrize("run", LIVE, ids=["pending", "running", "deferred", "array"])
@pytest.mark.parametrize("case", STORES)
@pytest.mark.parametrize("same_scheduler", [True, False])
def test_an_image_that_a_live_run_names_stays(lab: Lab, case: str, run: Member, same_scheduler: bool) -> None:
    owner, store, group, user, root = STORES[case]
    alice = lab.person(owner, "alice/ck", store=store, group=group)
    image = alice.image()
    other = lab.person(user, root, store=str(image.parent.relative_to(lab.disk)), group=group)
    other.has_run(run, image)
    lab.answers([run] if same_scheduler and run.state is not JobState.DEFERRED else [])
    for ended in (False, True):
        done = alice.prunes(ended=ended)
        assert image.exists(), done
        assert not done.rubbish.images


CANCEL = {"attempts/0/cancel.json": "{}"}
REFUSED = {"submissions/0/status": "1\n", "submissions/0/error": "sbatch: error: Invalid account\n"}
ENDED = {
    # as it lies there, its state for the scheduler, more of its files
    "completed": (replace(RUNS, state=JobState.COMPLETED), JobState.COMPLETED, {}),
    "completed, and forgotten by the scheduler": (replace(RUNS, state=JobState.COMPLETED), None, {}),
    "cancelled while it waited, as the scheduler knows": (WAITS, JobState.CANCELLED, {}),
    "cancelled while it waited, as its files say": (WAITS, None, CANCEL),
    "withdrawn before it was submitted": (DEFERRED, None, CANCEL),
    "refused when a job of its group submitted it": (DEFERRED, None, REFUSED),
}


@pytest.mark.parametrize("case", ENDED)
@pytest.mark.parametrize("root", ["alice/ck", "alice/second"])
def test_an_image_that_only_ended_runs_name_goes(lab: Lab, case: str, root: str) -> None:
    """Runs of another project, which this ledger does not know, or of another work root."""
    member, known, more = ENDED[case]
    alice = lab.person(ALICE, "alice/ck", store="alice/images")
    image = alice.image()
    lab.person(ALICE, root, store="alice/images").has_run(member, image, more)
    lab.answers([replace(member, state=known)] if known else [])
    alice.prunes(ended=False)
    assert image.exists(), "it is named"
    done = alice.prunes()
    assert not image.exists(), done


def test_a_run_resumed_on_another_cluster_is_not_taken_for_ended(lab: Lab) -> None:
    alice = lab.person(ALICE, "alice/ck", store="alice/images")
    image = alice.image()
    failed = replace(RUNS, state=JobState.FAILED)
    run_dir = lab.person(ALICE, "alice/second", store="alice/images").has_run(failed, image)
    again = run_dir / "submissions/1"
    again.mkdir()
    request = {"schema": 1, "number": 1, "kind": "resume", "options": []}
    texts = {"request.json": json.dumps(request), "asked": "1\n", "answer": "99\n", "status": "0\n"}
    for name, text in texts.items():
        (again / name).write_text(text)
        os.chown(again / name, ALICE, ALICE)
    lab.answers([failed])
    alice.prunes()
    assert image.exists()


def test_images_that_others_may_read_stay_and_the_way_to_remove_them_is_said(lab: Lab) -> None:
    alice = lab.person(ALICE, "alice/ck", store="alice/images", group=True)
    image = alice.image()
    damaged = alice.image("b", ".damaged-")
    done = alice.prunes()
    assert {kept.name for kept in done.rubbish.kept_images} == {image.name, damaged.name}
    assert all(kept.shared for kept in done.rubbish.kept_images)
    image.parent.chmod(0o700)  # nobody else reaches them now
    alice.prunes()
    assert list(alice.store.glob("*.sif")) == []


def test_in_a_store_that_all_write_to_only_ones_own_private_images_go(lab: Lab) -> None:
    store = lab.disk / "lab"
    store.mkdir()
    os.chown(store, 0, LAB)
    store.chmod(0o2770)
    alice, bob = (lab.person(uid, f"{uid}/ck", store="lab") for uid in (ALICE, BOB))
    mine, his = alice.image("a"), bob.image("b")
    alice.prunes()
    assert (mine.exists(), his.exists()) == (False, True)


def test_a_work_root_that_is_out_of_sight_holds_all_images(lab: Lab) -> None:
    """Its disk may not be mounted on this login node."""
    alice = lab.person(ALICE, "alice/ck", store="alice/the  images")
    image = alice.image()
    second = lab.person(ALICE, "alice/a  second", store="alice/the  images")
    second.has_run(WAITS, image)
    root, away = Path(second.cluster.root), lab.disk / "alice/away"
    root.rename(away)
    done = alice.prunes()
    assert image.exists()
    ((link, lost),) = done.rubbish.lost.items()
    assert lost == str(root)
    (away / "runs").rename(lab.disk / "alice/runs")
    away.rename(root)
    alice.prunes()
    assert image.exists(), "a root without runs is one that is not all there"
    (alice.store / link).unlink()
    alice.prunes()
    assert not image.exists()


def test_a_root_of_the_same_path_on_another_disk_is_another_root(lab: Lab) -> None:
    """Two clusters share the disk with the images, and each has a /scratch of its own."""
    alice = lab.person(ALICE, "alice/scratch/ck", store="alice/images")
    image = alice.image()
    alice.has_run(WAITS, image)
    (lab.disk / "alice/scratch").rename(lab.disk / "alice/elsewhere")
    for _ in range(2):
        alice.site(create=True)
        done = alice.prunes()
        assert image.exists()
        assert list(done.rubbish.lost.values()) == [alice.cluster.root]


@pytest.mark.parametrize("ours", [True, False])
def test_a_run_that_waits_again_while_the_scheduler_is_silent_is_not_taken_for_ended(
    lab: Lab, ours: bool
) -> None:
    alice = lab.person(ALICE, "alice/ck")
    image = alice.image()
    ended = {"attempts/0/exit.json": json.dumps({"why": "signalled", "signal": "TERM"})}
    run_dir = alice.has_run(replace(RUNS, state=JobState.FAILED), image, ended)
    for tool in ("squeue", "sacct"):
        (lab.disk / tool).write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
    row = replace(storage._stranger(alice.site(), str(run_dir)), state=JobState.RUNNING, job_id=RUNS.job_id)
    alice.prunes(known=[row] if ours else [])
    assert image.exists()


def test_a_store_that_cannot_take_a_roots_link_is_refused_with_what_to_type(lab: Lab) -> None:
    alice = lab.person(ALICE, "alice/ck", store="alice/images")
    alice.image()
    alice.store.chmod(0o500)
    alice.site(create=True)
    second = lab.person(ALICE, "alice/second", store="alice/images")
    with pytest.raises(TransportError) as caught:
        second.site(create=True)
    cause = caught.value.cause
    alice.store.chmod(0o700)
    alice.transport.run(["sh", "-c", cause[cause.index("ln -s") :]])
    alice.store.chmod(0o500)
    second.site(create=True)


@pytest.mark.parametrize("until_done", ["requeue", None])
@pytest.mark.parametrize(
    "ended", [{"why": "signalled", "signal": "TERM"}, {"why": "timeout"}, {"why": "failed"}]
)
def test_a_run_that_another_cluster_may_start_again_is_not_taken_for_ended(
    lab: Lab, ended: dict[str, str], until_done: str | None
) -> None:
    alice = lab.person(ALICE, "alice/ck", store="alice/images")
    image = alice.image()
    failed = replace(RUNS, state=JobState.FAILED)
    request = json.dumps({"schema": 1, "number": 0, "kind": "first", "options": [], "until_done": until_done})
    more = {"attempts/0/exit.json": json.dumps(ended), "submissions/0/request.json": request}
    run_dir = lab.person(ALICE, "alice/second", store="alice/images").has_run(failed, image, more)
    alice.prunes()
    assert image.exists() == (ended["why"] == "signalled" or (ended["why"] == "timeout" and bool(until_done)))
    if image.exists():
        (run_dir / "stopped.json").write_text(json.dumps({"why": "it made no progress"}))
        alice.prunes()
        assert not image.exists()


def test_a_root_that_was_renamed_with_its_store_loses_sight_of_nothing(lab: Lab) -> None:
    alice = lab.person(ALICE, "alice/ck")
    used, unused = alice.image("a"), alice.image("b")
    alice.has_run(WAITS, used)
    Path(alice.cluster.root).rename(lab.disk / "alice/new")
    renamed = lab.person(ALICE, "alice/new")
    done = renamed.prunes()
    assert (done.rubbish.lost, [path.name for path in renamed.store.glob("*.sif")]) == ({}, [used.name])
    assert not (renamed.store / unused.name).exists()


def test_an_answer_that_is_not_whole_removes_nothing(lab: Lab) -> None:
    alice = lab.person(ALICE, "alice/ck")
    image = alice.image()
    (lab.disk / "awk").write_text("#!/bin/sh\nexit 1\n")
    (lab.disk / "awk").chmod(0o755)
    site = alice.site()
    assert remove(site, [("image", OLD, image.name)], []) == {image.name}
    assert image.exists()


def test_a_run_that_checkpointed_and_may_be_resumed_keeps_its_image(lab: Lab) -> None:
    """Its ledger knows that its job has ended for good."""
    alice = lab.person(ALICE, "alice/ck")
    image = alice.image()
    ended = json.dumps({"why": "requeue", "code": 0, "ended": OLD})
    run_dir = alice.has_run(RUNS, image, {"attempts/0/exit.json": ended})
    row = storage._stranger(alice.site(), str(run_dir))
    state = RunState(JobState.PREEMPTED, final=True, job_id=RUNS.job_id)
    row = replace(row, state=state.state, last=to_text(state), job_id=RUNS.job_id)
    alice.prunes(known=[row])
    assert image.exists()


def test_ones_own_root_out_of_sight_holds_all_images(lab: Lab) -> None:
    alice = lab.person(ALICE, "alice/ck", store="alice/images")
    image = alice.image()
    Path(alice.cluster.root).rename(lab.disk / "alice/away")
    alice.prunes()
    assert image.exists()


def test_a_shared_root_with_a_run_that_cannot_be_read_loses_nothing(lab: Lab) -> None:
    """Bob's run directory in Alice's folder of runs: 0700, so that nothing shows what it needs."""
    alice = lab.person(ALICE, "alice/ck")
    image = alice.image()
    run_dir = alice.has_run(WAITS, image)
    os.chown(run_dir, BOB, BOB)
    with pytest.raises(storage.RunError, match=f"run.json of {WAITS.run_id} does not say"):
        alice.prunes()
    assert image.exists()


def test_the_image_that_a_build_starts_from_stays(lab: Lab) -> None:
    alice = lab.person(ALICE, "alice/ck")
    image = alice.image()
    build = Path(alice.cluster.root) / "builds/0123"
    build.mkdir(parents=True)
    (build / "mine.def").write_text(f"Bootstrap: localimage\nFrom: {image}\n")
    alice.prunes()
    assert image.exists()


def test_a_run_that_appears_while_a_person_thinks_keeps_its_image(lab: Lab) -> None:
    alice = lab.person(ALICE, "alice/ck", store="alice/images")
    second = lab.person(ALICE, "alice/second", store="alice/images")
    image, touched, unused = (alice.image(letter) for letter in "abc")

    def agrees(*_: object) -> bool:
        second.has_run(WAITS, image)
        os.utime(touched, (OLD + 1, OLD + 1))
        return True

    done = alice.prunes(agrees=agrees)
    assert done.kept == {image.name, touched.name}
    assert [path.exists() for path in (image, touched, unused)] == [True, True, False]
    assert {path.name for path in alice.store.glob(".damaged*")} == set()


def test_a_member_who_may_not_write_to_the_store_is_told_whose_it_is(lab: Lab, tmp_path: Path) -> None:
    alice = lab.person(ALICE, "alice/ck", store="alice/images", group=True)
    damaged = alice.image()
    bob = lab.person(BOB, "bob/ck", store="alice/images", group=True).site(create=True)
    mine = tmp_path / "my.sif"
    mine.write_bytes(HEADER)
    image = Image(sha256_of(mine), len(HEADER))
    attempts: list[Callable[[], object]] = [
        lambda: upload(bob, mine, image, plan(bob, mine, image, cache=tmp_path), cache=tmp_path, bar=no_bar),
        lambda: plan(bob, mine, Image("a" * 64, damaged.stat().st_size), cache=tmp_path, verify=True),
        lambda: must_be_writable(bob),
    ]
    for attempt in attempts:
        with pytest.raises(ImageError) as caught:
            attempt()
        assert f"{alice.store} belongs to {ALICE} (drwxr-s---), and " in caught.value.cause
        assert f"ask {ALICE} to `clusterkit deploy` the image" in str(caught.value.hint)
    must_be_writable(alice.site())


def test_of_a_removal_and_a_hand_over_that_meet_one_gives_way(lab: Lab) -> None:
    """At every distance between them: a run that the scheduler was asked for has its image."""
    alice = lab.person(ALICE, "alice/ck", store="alice/images")
    site, root = alice.site(create=True), alice.cluster.root
    turns = 30
    for turn in range(turns):
        image = alice.image()
        run_id = f"{WAITS.run_id[:-1]}{turn:02}"
        spec = json.dumps({"run_id": run_id, "image": {"path": str(image)}}).encode()
        files = {f"runs/{run_id}/run.json": spec, f"runs/{run_id}/submissions/0/": ""}
        argv = hand_over_argv(
            root, f"t{turn}", f"runs/{run_id}", 0, ["echo", "12"], new=True, needs=[str(image)]
        )
        with ThreadPoolExecutor() as both:
            removal = both.submit(remove, site, [("image", OLD, image.name)], [])
            time.sleep(turn * 0.004)
            if turn == turns - 1:
                removal.result()
            done = site.transport.run(argv, stdin=bundle(files), check=False)
            kept = removal.result()
        answer = parse_hand_over(done.text, done.error_text)
        accepted = answer.asked is not None
        assert image.exists() or not accepted, turn
        assert image.exists() == (kept == {image.name})
        shutil.rmtree(Path(root) / "runs" / run_id, ignore_errors=True)
        image.unlink(missing_ok=True)
    assert not accepted, "the last came too late"
