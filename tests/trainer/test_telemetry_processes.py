"""Measured in processes of their own, which have no other children: those of a test process come and go."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainer.machine.processors import usable_processors

pytestmark = pytest.mark.slow

MEMORY = """
import subprocess, sys
from trainer.telemetry.usage import resident_bytes
print(resident_bytes())
code = "block = bytearray(b'x' * 100_000_000); print('ready', flush=True); input()"
with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    print(resident_bytes())
    child.communicate(b"\\n")
print(resident_bytes())
"""

BUSY = """
import subprocess, sys, time
if sys.argv[1:]:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], stdin=subprocess.DEVNULL)
while time.process_time() < 0.5:
    pass
print("spent", flush=True)
if sys.argv[1:]:
    child.wait()
sys.stdin.readline()
"""
SPENT = """
import subprocess, sys
from trainer.telemetry.usage import processor_seconds
before = processor_seconds()
busy = [sys.executable, "-c", sys.argv[1], sys.argv[1]]
with subprocess.Popen(busy, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    for _ in range(2):  # the child and its own, in either order
        child.stdout.readline()
    print(processor_seconds() - before)
    child.communicate(b"\\n")
print(processor_seconds() - before)
"""

SHARE = """
import time
from trainer.telemetry import usage
meter = usage.ProcessorMeter()
usage.SHORTEST_SECONDS = 3600.0
assert meter.read() is None  # too soon to tell
usage.SHORTEST_SECONDS = 0.1
begun, own = time.monotonic(), time.process_time()
while time.process_time() - own < 0.5:
    pass
share = meter.read()
print(share)
print(time.monotonic() - begun)
usage.SHORTEST_SECONDS = 3600.0
assert meter.read() == share
usage.SHORTEST_SECONDS = 0.1
time.sleep(0.3)
print(meter.read())
"""


def printed(code: str, *words: str) -> list[float]:
    """The numbers that a program prints."""
    argv = [sys.executable, "-c", code, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return [float(line) for line in done.stdout.split()]


def test_memory_of_children_counts() -> None:
    before, grown, after = printed(MEMORY)
    assert 100_000_000 < grown - before < 200_000_000
    assert after - before < 50_000_000


def test_processor_time_of_children_and_theirs_counts_while_they_live_and_after() -> None:
    alive, ended = printed(SPENT, BUSY)
    assert 0.9 < alive < 3
    assert alive - 0.05 < ended < alive + 1


def test_the_share_of_the_processors_is_that_since_the_last_reading() -> None:
    share, passed, idle = printed(SHARE)
    assert share == pytest.approx(0.5 / passed / usable_processors(), abs=0.1)
    assert idle < 0.1
