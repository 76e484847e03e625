"""The program that starts another one with secrets in its environment and masks its output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.resources import launcher
from clusterkit.runs.sealing import seal
from clusterkit.runs.secret_values import SecretValues
from clusterkit.with_secrets import Masker

TOKEN = "hf_abcdefghijklmnop"
KEY_FILE = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n}\n"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory whose secrets lie beside it, as on a cluster."""
    sealed = seal(SecretValues({"TOKEN": TOKEN, "KEY_FILE": KEY_FILE}), "r-1", alone=True)
    assert sealed is not None
    for path, content in sealed.files.items():
        assert isinstance(content, bytes)
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    run = tmp_path / "run"
    (run / "submissions" / "0").mkdir(parents=True)
    (run / "work").mkdir()
    (run / "submissions" / "0" / "request.json").write_text(json.dumps({"seal": sealed.key}))
    (run / "launch.py").write_bytes(launcher())
    return run


def argv_of(run_dir: Path, program: str, *arguments: str) -> list[str]:
    """The command line of job.sh for a program in Python."""
    argv = ["python", "-c", program, *arguments]
    (run_dir / "run.json").write_text(json.dumps({"argv": argv, "env": {}}))
    (starter,) = run_dir.parent.glob("secrets/*/with_secrets.py")
    return [
        sys.executable,
        str(starter),
        str(run_dir),
        sys.executable,
        str(run_dir / "launch.py"),
        str(run_dir),
    ]


def start(run_dir: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    argv = argv_of(run_dir, program, *arguments)
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def test_program_has_the_values_and_its_output_is_masked(run_dir: Path) -> None:
    program = f"""
import os, sys
assert os.environ["TOKEN"] == {TOKEN!r} and os.environ["KEY_FILE"] == {KEY_FILE!r}
print("token", os.environ["TOKEN"], "end")
print(os.environ["KEY_FILE"], file=sys.stderr)
sys.exit(7)
"""
    child = start(run_dir, program)
    out, error = child.communicate(timeout=60)
    assert (out, error, child.returncode) == ("token *** end\n", "***\n", 7)


def test_value_written_in_pieces_is_masked(run_dir: Path) -> None:
    program = """
import os, time
for letter in "a" + os.environ["TOKEN"] + "b" + os.environ["TOKEN"][:5]:
    os.write(1, letter.encode())
    time.sleep(0.002)
"""
    assert start(run_dir, program).communicate(timeout=60)[0] == f"a***b{TOKEN[:5]}"


def test_line_of_a_value_is_masked(run_dir: Path) -> None:
    program = "import os; print(os.environ['KEY_FILE'].splitlines()[1], '}')"
    assert start(run_dir, program).communicate(timeout=60)[0] == "*** }\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signal_reaches_the_program_once(run_dir: Path, number: signal.Signals) -> None:
    program = """
import signal, sys, time
caught = []
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, lambda number, _: caught.append(number))
print("ready", flush=True)
while not caught:
    time.sleep(0.01)
time.sleep(0.1)
print(*map(int, caught))
"""
    child = start(run_dir, program)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    assert child.communicate(timeout=60)[0] == f"{int(number)}\n"
    assert child.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_exit_code_tells_the_signal_that_ended_the_program(run_dir: Path, number: signal.Signals) -> None:
    child = start(run_dir, f"import os; print('last', flush=True); os.kill(os.getpid(), {int(number)})")
    assert child.communicate(timeout=60)[0] == "last\n"
    assert child.returncode == 128 + number


def test_all_output_of_a_program_that_ends_at_once_arrives(run_dir: Path) -> None:
    child = start(run_dir, "import sys; sys.stdout.write('x' * 5_000_000); sys.stderr.write('y' * 300_000)")
    out, error = child.communicate(timeout=60)
    assert (len(out), len(error)) == (5_000_000, 300_000)


def test_what_outlives_the_program_is_not_waited_for(run_dir: Path) -> None:
    program = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid)"
    child = start(run_dir, program)
    began = time.monotonic()
    child.wait(timeout=30)
    assert time.monotonic() - began < 20
    assert child.stdout is not None
    os.kill(int(child.stdout.read()), signal.SIGKILL)


def test_full_disk_does_not_end_the_program(run_dir: Path) -> None:
    argv = argv_of(run_dir, "print('x' * 100_000); raise SystemExit(3)")
    with Path("/dev/full").open("wb") as full:
        assert subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=full, timeout=60).returncode == 3


def test_another_program_writes_for_itself(run_dir: Path) -> None:
    argv = [*argv_of(run_dir, "pass"), "sh", "-c", "printf %s $TOKEN"]
    assert subprocess.check_output(argv, text=True, timeout=60) == TOKEN


def test_wrong_key_is_refused_without_quoting_anything(run_dir: Path) -> None:
    request = run_dir / "submissions" / "0" / "request.json"
    request.write_text(json.dumps({"seal": "00" * 32}))
    child = start(run_dir, "print('started')")
    out, error = child.communicate(timeout=60)
    assert (out, child.returncode) == ("", 2)
    assert re.fullmatch(r"\[clusterkit\] its secrets cannot be read: \w+\n", error)


@given(
    st.lists(st.text("ab\n", min_size=1, max_size=12), min_size=1, max_size=4),
    st.lists(st.text("ab\n", max_size=20), max_size=8),
    st.integers(1, 7),
)
def test_masked_text_is_that_of_one_piece(values: list[str], words: list[str], size: int) -> None:
    encoded = [value.encode() for value in values]
    text = "".join(word + value for word, value in zip(words, values * 8, strict=False)).encode()
    whole = Masker(encoded)
    expected = whole.add(text) + whole.end()
    pieces = Masker(encoded)
    found = b"".join(pieces.add(text[at : at + size]) for at in range(0, len(text), size)) + pieces.end()
    assert found == expected
    assert not any(value.encode() in found.replace(b"***", b"*") for value in values)
