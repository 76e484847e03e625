from __future__ import annotations

import subprocess
import sys
import time

import pytest

from trainer.processors import usable_processors
from trainer.telemetry.processes import ProcessorMeter, processor_seconds

pytestmark = pytest.mark.slow

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

MEMORY = """
import subprocess, sys
from trainer.telemetry.processes import resident_bytes
print(resident_bytes())
code = "block = bytearray(b'x' * 100_000_000); print('ready', flush=True); input()"
with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    print(resident_bytes())
    child.communicate(b"\\n")
print(resident_bytes())
"""
"""In a process that has no other children: theirs come and go."""


def test_memory_of_children_counts() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=60
    )
    before, grown, after = map(int, done.stdout.split())
    assert 100_000_000 < grown - before < 200_000_000
    assert after - before < 50_000_000


def test_processor_time_of_children_and_theirs_counts_while_they_live_and_after() -> None:
    before = processor_seconds()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BUSY, BUSY], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        for _ in range(2):  # the child and its own, in either order
            child.stdout.readline()
        alive = processor_seconds() - before
        child.communicate(b"\n")
    ended = processor_seconds() - before
    assert 0.9 < alive < 3
    assert alive - 0.05 < ended < alive + 1


def test_the_share_of_the_processors_is_that_since_the_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    shortest = "trainer.telemetry.processes.SHORTEST_SECONDS"
    meter = ProcessorMeter()
    monkeypatch.setattr(shortest, 3600.0)
    assert meter.read() is None  # too soon to tell
    monkeypatch.setattr(shortest, 0.1)
    begun, own = time.monotonic(), time.process_time()
    while time.process_time() - own < 0.5:
        pass
    share, passed = meter.read(), time.monotonic() - begun
    assert share == pytest.approx(0.5 / passed / usable_processors(), abs=0.1)
    monkeypatch.setattr(shortest, 3600.0)
    assert meter.read() == share
    monkeypatch.setattr(shortest, 0.1)
    time.sleep(0.3)
    idle = meter.read()
    assert idle is not None
    assert idle < share
