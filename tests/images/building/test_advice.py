"""The last words of failed builds, as recorded, and what is made of them."""

import pytest

from clusterkit.images.building.advice import advice, cause, last_lines

# Apptainer 1.4.5, with its colours; mksquashfs's own help has 200 lines more.
FULL_DISK = """
INFO:    Creating SIF file...
Write failed because No space left on device
SYNTAX:mksquashfs source1 source2 ...  FILESYSTEM [OPTIONS]
Filesystem compression options:
-b <block-size>\t\tset data block to <block-size>
\x1b[31mFATAL:   While performing build: while creating squashfs: create command failed: exit status 1\x1b[0m
"""
HASHES = """
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
FATAL:   While performing build: while running engine: exit status 1
"""


def test_the_page_of_options_is_left_out() -> None:
    assert [line.split()[0] for line in last_lines(FULL_DISK)] == ["INFO:", "Write", "FATAL:"]


def test_the_cause_is_what_was_said_before_the_closing_words() -> None:
    assert cause(FULL_DISK) == "Write failed because No space left on device"
    assert cause(HASHES).startswith("ERROR: THESE PACKAGES")
    assert cause("") == "it printed nothing"
    assert cause("only this") == "only this"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (FULL_DISK, "APPTAINER_TMPDIR"),
        (
            "FATAL: unpack entry: usr/lib/libc.so.6: link: unpack to regular file: no space left on device",
            "disk",
        ),
        (HASHES, "do not trust"),
        ("ERROR: Could not find a version that satisfies the requirement torch==2.13.0", "Python 3.11"),
        ("FATAL: dial tcp: lookup registry-1.docker.io: no such host", "internet"),
        ("W: Failed to fetch http://x  Temporary failure resolving 'deb.debian.org'", "internet"),
        ("FATAL: reading manifest nosuch in docker.io/x: manifest unknown", "registry"),
        ("FATAL: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "docker save"),
        ("chown: changing ownership of '/x': Invalid argument", "/etc/subuid"),
        ("FATAL: could not use fakeroot: no mapping entry found in /etc/subuid for alice", "/etc/subuid"),
        (
            "ERROR  : Requesting capability set 0x1ffffffffff while permitted capability set is 0x1",
            "ordinary",
        ),
    ],
)
def test_known_causes_have_a_next_step(log: str, words: str) -> None:
    assert words in (advice(log) or "")


def test_others_have_none() -> None:
    assert advice("FATAL: something else") is None
