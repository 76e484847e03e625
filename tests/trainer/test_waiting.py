"""How PyTorch's threads wait for one another, alone and beside other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.needs("procfs"),
    pytest.mark.needs("two processors"),
]

LULLS = 200
BEGIN = """
import os, subprocess, sys, threading, time
from pathlib import Path
own = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, own)
import torch
from trainer.machine import waiting
torch.set_num_threads(2)

def idle_teams():
    return sum(thread.name == "idle team" for thread in threading.enumerate())

def threads():
    return {path.name for path in Path("/proc/self/task").iterdir()}
"""
SLEEPS = f"""
before = threads()
numbers = torch.zeros(2**17).add_(1.0)
(partner,) = threads() - before

def sleeps():
    lines = Path(f"/proc/self/task/{{partner}}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("voluntary_ctxt")).split()[1])

def in_lulls(teams, wanted):
    teams.hold(wanted)
    teams.hold(wanted)
    time.sleep(0.2)
    first = sleeps()
    for _ in range({LULLS}):
        numbers.add_(1.0)
        begun = time.perf_counter()
        while time.perf_counter() - begun < 2e-4:
            pass
    return sleeps() - first

teams, looping, asleep = waiting.IdleTeams(), [], []
for _ in range(3):
    looping.append(in_lulls(teams, False))
    assert not idle_teams()
    asleep.append(in_lulls(teams, True))
    assert idle_teams()
print(min(looping), max(asleep))
"""
CROWD = """
waiting.sleep_when_crowded()
waiting.sleep_when_crowded()
assert sum(thread.name == "crowding" for thread in threading.enumerate()) == 1
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
numbers, begun = torch.zeros(2**17), time.monotonic()
while not idle_teams() and time.monotonic() - begun < 60:
    numbers.add_(1.0)
for other in others:
    other.kill()
    other.wait()
print(idle_teams())
"""

READS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

char *getenv(const char *name) {
    static char *(*libc)(const char *);
    int (*locked)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    if (!libc)
        libc = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
    if (syscall(SYS_gettid) != getpid() && locked)
        dprintf(2, "%s %s\n", locked() ? "locked" : "unlocked", name);
    return libc(name);
}

char *secure_getenv(const char *name) { return getenv(name); }
"""
"""Says what threads read of the environment, and whether with the interpreter's lock, on standard error."""


def ran(program: str, **more: str) -> list[int]:
    """Runs a program without what the environment says about OpenMP; returns the numbers it prints."""
    return [int(word) for word in told(program, **more).stdout.split()]


def told(program: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environ |= more
    argv = [sys.executable, "-c", BEGIN + program]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_idle_teams_let_a_waiting_thread_sleep() -> None:
    looping, asleep = ran(SLEEPS)
    assert asleep > LULLS, "it slept in hardly each lull"
    assert looping < asleep / 1.2, "it slept as often without"


@pytest.mark.slow
def test_busy_programs_beside_it_are_noticed() -> None:
    (teams,) = ran(CROWD)
    assert teams


@pytest.mark.slow
def test_teams_of_many_threads_are_whole() -> None:
    program = """
torch.set_num_threads(8)
before, teams = threads(), waiting.IdleTeams()
teams.hold(True)
until = time.monotonic() + 30
while len(threads() - before) < 8 and time.monotonic() < until:
    time.sleep(0.01)
print(idle_teams(), len(threads() - before))
teams.hold(False)
"""
    assert ran(program) == [1, 8]


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_a_team_may_begin_while_the_environment_changes(tmp_path: Path) -> None:
    """glibc's getenv may crash beside another thread's setenv; Python's hold the interpreter's lock."""
    (tmp_path / "reads.c").write_text(READS)
    library = tmp_path / "reads.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "reads.c", "-ldl"], check=True)
    program = """
waiting.sleep_when_crowded()
teams = waiting.IdleTeams()
teams.hold(True)
time.sleep(0.5)
teams.hold(False)
"""
    reads = told(program, LD_PRELOAD=str(library)).stderr.split("\n")
    assert not [line for line in reads if line.startswith("unlocked")]
    assert "locked LRU_CACHE_CAPACITY" in reads, "nothing was read: the test proves nothing"


@pytest.mark.slow
def test_no_teams_are_held_once_there_is_one_thread() -> None:
    program = "torch.set_num_threads(1); waiting.IdleTeams().hold(True); print(idle_teams())"
    assert ran(program) == [0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "before", ["torch.set_num_threads(1)", "os.environ['GOMP_SPINCOUNT'] = '9'"], ids=["one-thread", "told"]
)
def test_nobody_watches_without_need(before: str) -> None:
    assert ran(f"{before}; waiting.sleep_when_crowded(); print(threading.active_count())") == [1]
