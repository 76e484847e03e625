"""Full disks, broken disks and SIGKILL, at every moment of a save: what was saved before stays, exactly."""

import ctypes
import errno
import os
import shutil
import signal
import traceback
from pathlib import Path

import pytest

from tests.trainer.ring import Ring
from tests.trainer.test_checkpoint import parts_of, steps, store
from trainer import checkpoint

CALLS = ("open", "write", "fsync", "mkdir", "rename", "unlink", "rmdir")
"""The system calls of a save that change anything; opening counts where it makes a file."""

ROWS = 7
"""Rows added between two steps."""


def ring_at(step):
    ring = Ring()
    ring.fill(ROWS * step)
    return ring


def prepared(run_dir, *, keep=2):
    """A run with three steps saved, of which two are kept."""
    saving, ring = store(run_dir, keep=keep), Ring()
    for step in (1, 2, 3):
        ring.fill(ROWS)
        saving.save(step, parts_of(step), ring)
    return run_dir


def resumed(run_dir, *, keep=2):
    """A store and a ring that go on from the newest checkpoint; none may be refused."""
    going_on, ring = store(run_dir, keep=keep), Ring()
    found = going_on.newest(pytest.fail)
    parts = going_on.load(found)
    going_on.restore_replay(found, ring)
    assert ring.content == ring_at(parts["state"]["step"]).content
    return going_on, ring, parts["state"]["step"]


def content(run_dir):
    """All files of the run."""
    return {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}


def rubbish(run_dir):
    """What is in the folder and belongs to no checkpoint."""
    home = checkpoint.directory(run_dir)
    hidden = list(home.rglob(".*"))
    stored = [checkpoint.verify(path, replay=True).replay for path in home.glob("step-*")]
    listed = {segment.file for each in stored for segment in each.segments}
    return hidden + [path for path in (home / "replay").iterdir() if path.name not in listed]


def go_on_to(run_dir, last):
    """Resumes and saves every step to the last, and finds all as it must be."""
    going_on, ring, step = resumed(run_dir)
    while step < last:
        step += 1
        ring.fill(ROWS)
        going_on.save(step, parts_of(step), ring)
    assert steps(run_dir) == [last - 1, last]
    assert rubbish(run_dir) == []
    for path in checkpoint.directory(run_dir).glob("step-*"):
        copy = Ring()
        store(run_dir).restore_replay(path, copy)
        assert copy.content == ring_at(int(path.name[5:])).content


class Trap:
    """Does something in the place of the n-th system call, once."""

    def __init__(self, number, spring):
        self.left, self.spring, self.sprung = number, spring, ""
        self.writes = 0

    def set(self, patch, calls=CALLS):
        for name in calls:
            patch.setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name, call):
        def called(*arguments, **options):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return call(*arguments, **options)
            # of the many writes to a file the first counts, and every sixth after it
            self.writes = self.writes + 1 if name == "write" else 0
            self.left -= self.writes % 6 in (0, 1)
            if self.left == 0 and not self.sprung:
                self.sprung = name
                if name == "write":
                    call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                self.spring()
            return call(*arguments, **options)

        return called


def fail():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.slow
def test_a_fault_at_any_system_call_costs_nothing_that_was_saved(tmp_path, monkeypatch):
    template = prepared(tmp_path / "template")
    failed = []
    for number in range(1, 1000):
        run_dir = shutil.copytree(template, tmp_path / str(number))
        saving, ring, _ = resumed(run_dir)
        before = content(run_dir)
        ring.fill(ROWS)
        trap = Trap(number, fail)
        with monkeypatch.context() as patch:
            trap.set(patch)
            try:
                saving.save(4, parts_of(4), ring)
            except OSError as error:
                failed.append((trap.sprung, error.errno))
                after = content(run_dir)
                assert after.items() >= before.items()
                # either nothing of it is left, or it was complete and only the last fsync failed
                assert after == before or steps(run_dir) == [2, 3, 4]
        assert rubbish(run_dir) == [] or trap.sprung in (
            "rename",
            "open",
            "unlink",
            "rmdir",
            "fsync",
            "close",
        )
        # the same store goes on, and writes what it could not
        ring.fill(ROWS)
        saving.save(5, parts_of(5), ring)
        copy = Ring()
        store(run_dir).restore_replay(saving.newest(pytest.fail), copy)
        assert copy.content == ring.content
        go_on_to(run_dir, 6)
        shutil.rmtree(run_dir)
        if not trap.sprung:
            break
    assert {name for name, _ in failed} >= {"open", "write", "fsync", "mkdir", "rename"}
    assert {number for _, number in failed} == {errno.ENOSPC}
    assert len(failed) > 15


def in_a_child(work):
    """Runs work in a process that ends without any clean-up; returns its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


@pytest.mark.slow
def test_a_death_at_any_system_call_costs_nothing_that_was_saved(tmp_path, monkeypatch):
    telling = [name for name in CALLS if name != "fsync"]  # a death there leaves what one at the next leaves
    template = prepared(tmp_path / "template")
    found = set()
    for number in range(1, 1000):
        run_dir = shutil.copytree(template, tmp_path / str(number))

        def save(run_dir=run_dir, number=number):
            saving, ring, _ = resumed(run_dir)
            ring.fill(ROWS)
            Trap(number, lambda: os.kill(os.getpid(), signal.SIGKILL)).set(monkeypatch, telling)
            saving.save(4, parts_of(4), ring)
            os._exit(0)

        status = in_a_child(save)
        assert status in (0, signal.SIGKILL)
        before = content(run_dir)
        found.add(resumed(run_dir)[2])
        assert content(run_dir) == before  # looking changes nothing
        go_on_to(run_dir, 5)
        shutil.rmtree(run_dir)
        if status == 0:
            break
    assert number > 20
    assert found == {3, 4}


def alone_on(disk):
    """Shows a small empty disk there to this process alone; ends it where that may not be."""
    system, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    new_user, new_mounts = 0x10000000, 0x00020000
    if not hasattr(system, "unshare") or system.unshare(new_user | new_mounts):
        os._exit(NO_DISK)
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(line)
    if system.mount(b"none", os.fsencode(disk), b"tmpfs", 0, b"size=256k"):
        os._exit(NO_DISK)


NO_DISK = 3


def test_a_disk_that_is_full(tmp_path):
    def save():
        alone_on(tmp_path)
        run_dir, filler = prepared(tmp_path / "run"), tmp_path / "filler"
        before = content(run_dir)
        refused = []
        for pages in range(40):
            saving, ring, _ = resumed(run_dir)
            ring.fill(ROWS)
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError as error:
                    refused.append(error.errno)
                file.truncate(file.tell() // 4096 * 4096 - pages * 4096)
            try:
                saving.save(4, parts_of(4), ring)
            except OSError as error:
                refused.append(error.errno)
                assert content(run_dir) == before
            else:
                break
            filler.unlink()
        assert set(refused) == {errno.ENOSPC}
        assert len(refused) >= 7, "each filler, and three saves"
        filler.unlink()
        assert rubbish(run_dir) == []
        go_on_to(run_dir, 6)
        os._exit(0)

    status = os.waitstatus_to_exitcode(in_a_child(save))
    if status == NO_DISK:
        pytest.skip("no file system of our own can be mounted here")
    assert status == 0
