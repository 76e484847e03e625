"""The program that starts another one with secrets in its environment and masks its output."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import unicodedata
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.node.with_secrets import Masker
from clusterkit.resources import NODE_PROGRAMS
from clusterkit.runs.secret_values import SecretValues, seal

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
    (run / "launch.py").write_bytes((NODE_PROGRAMS / "launch.py").read_bytes())
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


@pytest.mark.slow
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


def masked(text: bytes, *values: bytes, size: int = 1 << 16) -> bytes:
    """A text as the masker passes it on, given in chunks of a size."""
    masker = Masker(list(values))
    return b"".join(masker.add(text[at : at + size]) for at in range(0, len(text), size)) + masker.end()


ODD = "pa\"s's wörd/<&%+$x\\`!"
AS_BYTES = ODD.encode()
LETTERS = "".join(f"\\{byte:03o}" if byte > 126 else chr(byte) for byte in AS_BYTES)


def said(*argv: str, **variables: str) -> bytes:
    """What a program prints that has the value in its environment."""
    environment = {**os.environ, "VALUE": ODD, "PYTHONCOERCECLOCALE": "0", **variables}
    done = subprocess.run(argv, env=environment, capture_output=True, timeout=60)
    return done.stdout + done.stderr


PRINT = (
    "import os, sys; print(os.environ['VALUE'], file=sys.stderr)",
    "import os; raise KeyError(os.environ['VALUE'])",
)


@pytest.mark.parametrize(
    "text",
    [
        AS_BYTES,
        ODD.encode("latin-1"),
        unicodedata.normalize("NFD", ODD).encode(),
        AS_BYTES.decode("latin-1").encode(),
        json.dumps(ODD).encode(),
        json.dumps(ODD).replace("\\u00f6", "\\u00F6").encode(),
        json.dumps(ODD, ensure_ascii=False).encode(),
        json.dumps(ODD).replace("/", "\\/").encode(),
        json.dumps(ODD, ensure_ascii=False).replace("<", "\\u003c").replace("&", "\\u0026").encode(),
        json.dumps(json.dumps(ODD)).encode(),
        json.dumps(json.dumps(ODD, ensure_ascii=False), ensure_ascii=False).encode(),
        json.dumps(unicodedata.normalize("NFD", ODD)).encode(),
        repr(ODD).encode(),
        ascii(ODD).encode(),
        repr(AS_BYTES).encode(),
        repr([json.dumps(ODD)]).encode(),
        shlex.quote(ODD).encode(),
        shlex.join(["sh", "-c", shlex.join(["echo", ODD])]).encode(),
        quote(ODD).encode(),
        quote(ODD, safe="").lower().encode(),
        quote_plus(ODD).encode(),
        quote(quote(ODD, safe=""), safe="").encode(),
        html.escape(ODD).encode(),
        html.escape(ODD, quote=False).encode(),
        ODD.replace('"', '""').encode(),
        ODD.replace("'", "''").encode(),
        LETTERS.replace("\\`", "\\\\`").replace('"', '\\"').encode(),
        said(sys.executable, "-c", PRINT[0]),
        said(sys.executable, "-c", PRINT[0], LC_ALL="C", PYTHONUTF8="0"),
        said(sys.executable, "-c", PRINT[1]),
        *(
            said("bash", "-c", line, LC_ALL=locale)
            for line in ('printf %q "$VALUE"', 'set -x; : "$VALUE"', "declare -p VALUE", 'echo "${VALUE@Q}"')
            for locale in ("C", "C.UTF-8")
        ),
    ],
)
def test_value_is_masked_however_it_is_written(text: bytes) -> None:
    for size in (1, 7, 1 << 16):
        found = masked(b"begin " + text + b" end", AS_BYTES, size=size)
        assert b"***" in found
        assert b"pa" not in found
        assert b"rd" not in found.removeprefix(b"declare")
        assert found.endswith(b" end")


def test_name_that_no_text_is_in_utf_8_is_masked() -> None:
    value = b"latin \xe9 1 token"
    assert masked(value, value) == b"***"
    assert masked(json.dumps(os.fsdecode(value)).encode(), value) == b'"***"'
    assert masked(value.decode("latin-1").encode(), value) == b"***"


@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_values_that_overlap_leave_nothing_of_each_other(size: int) -> None:
    first, second, inner = b"abcdefgh1234", b"1234ijklmnop", b"fgh1234i"
    assert masked(b"x abcdefgh1234ijklmnop y", first, second, inner, size=size) == b"x *** y"
    assert masked(b"abcdefgh1234abcdefgh1234", first, second, size=size) == b"******"
    assert masked(b"abcdefgh12345 abcdefgh1234", first, first + b"5", size=size) == b"*** ***"
    assert masked(b"abcdefgh" * 3 + b"!", b"abcdefghabcdefgh", size=size) == b"***!"


@pytest.mark.parametrize("size", [1, 5, 1 << 16])
def test_short_line_of_a_value_is_masked_where_it_is_no_part_of_a_word(size: int) -> None:
    value = b"a1b2c3\nd4e5f6\n}\nthe longest line\n"
    text = b"[0] a1b2c3\nxa1b2c3 d4e5f6, d4e5f67 {} the longest lines\nd4e5f6"
    assert masked(text, value, size=size) == b"[0] ***\nxa1b2c3 ***, d4e5f67 {} ***s\n***"


def test_line_of_a_key_within_json_is_masked() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----\n"
    value = json.dumps({"type": "account", "key": key}, indent=2).encode()
    assert masked(b"read\n  MIIEvQIBADANBgkq\n", value) == b"read\n  ***\n"
    assert masked(b"a " + value.replace(b"\n", b"\r\n"), value).count(b"MII") == 0


def test_masker_keeps_back_less_than_the_longest_form() -> None:
    masker, most = Masker([b"ab" * 2048]), 0
    written = b""
    for _ in range(64):
        written += masker.add(b"ab" * 2047)
        most = max(most, len(masker._held))
    assert most < 4096
    assert written + masker.end() == b"***"


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
