"""forward and ssh to a node that prints, lies or never stops: memory stays small, one line says what."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.conftest import Project
from tests.commands.test_inside import forwarded

pytestmark = pytest.mark.slow  # real jobs and commands

MEGABYTES = 100
"""Most memory of a command; it takes about 40 without a relay."""
COMMAND_LINE = 'import runpy; runpy.run_module("clusterkit", run_name="__main__", alter_sys=True)'
MEASURED = f"""
import os, pathlib
try:
    {COMMAND_LINE}
finally:
    pathlib.Path(os.environ["PEAK"]).write_text(pathlib.Path("/proc/self/status").read_text())
"""
NODE = r"""
import os, sys
mark = (sys.argv[1] + "%d\n" % os.getpid()).encode()
def say(data, target=1):
    view = memoryview(data)
    while view: view = view[os.write(target, view):]
def until_opened():
    data = b""
    while b"O1 " not in data:
        more = os.read(0, 1 << 16)
        if not more: sys.exit()
        data += more
def endlessly(data, target=1, most=1 << 27):
    for _ in range(most // len(data)): say(data, target)
"""
FORWARD, SSH = ("forward", ":8080"), ("ssh", "--stdio")
LIES = {
    "a line": ("say(mark + b'cron says hello\\n'); os.read(0, 9)", "cron says hello"),
    "a line for the terminal": (
        "say(mark + b'\\x1b[2J\\x1b]0;pwned\\x07\\xe2\\x80\\xae\\xc2\\x9b31m hello\\n'); os.read(0, 9)",
        "]0;pwned   31m hello",
    ),
    "no mark": ("say(b'closed for maintenance\\n')", "closed for maintenance"),
    "noise without end": ("endlessly(b'y\\n' * 9999)", "y / y / y"),
    "a line without end": ("say(mark); endlessly(b'x' * 65536)", "xxxxxxxxxx"),
    "a frame without end": ("say(mark); until_opened(); endlessly(b'D1 x')", "D1 xD1 xD1 x"),
    "beyond the window": (
        "say(mark); until_opened(); endlessly(b'D1 ' + b'x' * 32768 + b'\\n')",
        "D1 xxxxxxx",
    ),
    "what cannot be shown": ("say(mark + bytes(range(9)) * 99 + b'\\n'); os.read(0, 9)", "cannot be shown"),
    "refused again and again": ("say(mark); until_opened(); endlessly(b'X1 no way\\n', most=1 << 22)", ""),
    "after the end": ("say(mark); until_opened(); endlessly(b'E1 \\nD1 x\\n')", "D1 x"),
    "endless errors": ("endlessly(b'oh no\\n' * 9999, 2)", "oh no / oh no"),
    "errors without a line end": ("endlessly(b'z' * 65536, 2)", "zzzzzzzzzz"),
}


@pytest.fixture
def job(running: tuple[Project, str]) -> Iterator[Path]:
    """The run's job.sh, of which lines are read on the node before a relay starts there."""
    project, run_id = running
    path = project.run_dir(run_id) / "job.sh"
    before = path.read_text()
    yield path
    path.write_text(before)


def plant(job: Path, line: str) -> None:
    """Makes the node run a line of bash before anything else in a step."""
    job.write_text(re.sub(r"(?m)^run_id=.*$", lambda match: f"{match[0]}; {line}", job.read_text(), count=1))


def measured(project: Project, *words: str) -> tuple[int, str, float]:
    """Types a command, and connects to the port that it opens; exit code, what it says, most memory in MB."""
    peak = project.folder.parent / "peak"
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURED, *words],
        cwd=project.folder,
        env={**os.environ, "PEAK": str(peak), "COLUMNS": "200"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    first = process.stdout.readline() if words[0] == "forward" else b""
    if first:
        port = int(first.split()[0].rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", port)) as near:
            _, said = process.communicate(timeout=120)
            near.close()
    else:
        _, said = process.communicate(timeout=120)
    (most,) = re.findall(r"VmHWM:\s+(\d+) kB", peak.read_text())
    return process.returncode, said.decode(), int(most) / 1024


@pytest.mark.parametrize(
    ("command", "lie"),
    [
        *((FORWARD, lie) for lie in LIES),
        *((SSH, lie) for lie in LIES if "end" not in lie and "window" not in lie),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_node_that_lies(
    running: tuple[Project, str], job: Path, tmp_path: Path, command: tuple[str, str], lie: str
) -> None:
    project, run_id = running
    script, quoted = LIES[lie]
    (tmp_path / "node.py").write_text(NODE + script + "\n")
    find = 'for mark in "$@"; do case $mark in clusterkit-*-) break;; esac; done'
    plant(job, f"{find}; exec {sys.executable} {tmp_path}/node.py $mark")
    code, said, megabytes = measured(project, command[0], run_id, command[1])
    *before, cause, hint = said.splitlines()
    assert not [line for line in before if line.startswith(("error:", "next:"))]
    assert code == 8, said
    assert cause.startswith("error: ")
    assert run_id in cause
    assert quoted in cause
    assert cause.isprintable()
    assert hint.startswith("next: ")
    assert megabytes < MEGABYTES


def test_a_node_that_says_nothing_is_left_once_the_client_has_ended(
    running: tuple[Project, str], job: Path
) -> None:
    project, run_id = running
    plant(job, "exec sleep 600")
    script = f"from clusterkit.cli import ssh; ssh._LAST_SECONDS = 1; {COMMAND_LINE}"
    words = [sys.executable, "-c", script, "ssh", run_id, "--stdio"]
    done = subprocess.run(words, cwd=project.folder, input=b"", capture_output=True, timeout=60)
    assert done.returncode == 8
    assert f"ssh cannot enter {run_id}: it printed nothing".encode() in done.stderr


def test_a_node_whose_shell_prints_is_entered_as_any_other(running: tuple[Project, str], job: Path) -> None:
    project, run_id = running
    noise = "echo 'Welcome to node7'; printf 'no end of line '; echo quota exceeded >&2"
    plant(job, f'[ -n "${{SSH_CONNECTION-}}" ] || {{ {noise}; }}')
    done = project.run("ssh", run_id, "--", "echo $((6 * 7))")
    assert done.stdout == "42\n"
    with forwarded(project, run_id) as (near, far):
        near.sendall(b"there\n")
        assert far.recv(100) == b"there\n"
