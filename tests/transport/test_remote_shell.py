"""Argv through login shells, and noise out of the answer: with the real shells of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterkit.errors import TransportError
from clusterkit.transport import remote_shell
from tests.needs import param

SHELLS = [param(shell) for shell in ("bash", "dash", "zsh", "fish", "tcsh", "csh", "ksh", "busybox")]
WORDS = st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), max_size=4)


def through(shell: str, argv: list[str], **options: object) -> tuple[subprocess.CompletedProcess[bytes], str]:
    """What sshd does: the user's shell, -c, the command line."""
    marker = remote_shell.new_marker()
    command = remote_shell.wrap(argv, marker, **options)  # type: ignore[arg-type]
    prefix = ["busybox", "sh"] if shell == "busybox" else [shell]
    return subprocess.run([*prefix, "-c", command], capture_output=True, check=False), marker


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS)
def test_arguments_survive_every_shell(shell: str, words: list[str]) -> None:
    done, marker = through(shell, ["printf", r"%s\0", *words, "end"])
    guard = remote_shell.Guard(marker)
    assert guard.feed(done.stdout) == "".join(f"{word}\0" for word in [*words, "end"]).encode()


@given(words=WORDS)
def test_only_characters_every_shell_takes_literally(words: list[str]) -> None:
    command = remote_shell.wrap(["x", *words], "marker").decode("ascii")
    inner = command.removeprefix("exec /bin/sh -c '").removesuffix("'")
    assert not set(inner) & set("'!\n`^~*?[]{}#")  # csh: ! ^; fish: backslash only beside ' and \
    assert "\\\\" not in inner


def test_the_marker_carries_the_process_id() -> None:
    done, marker = through("sh", ["sh", "-c", "echo $$"])
    guard = remote_shell.Guard(marker)
    assert int(guard.feed(done.stdout)) == guard.pid
    assert done.stderr == f"{marker}{guard.pid}\n".encode()


def test_prepare_runs_before_and_can_refuse() -> None:
    done, _ = through("sh", ["pwd"], prepare="cd /")
    assert done.stdout.endswith(b"\n/\n")
    done, _ = through("sh", ["pwd"], prepare="exit 9")
    assert done.returncode == 9


def test_a_login_shell_reads_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".bash_profile").write_text("echo noise\nexport ONLY_THERE='it works'\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    done, marker = through("sh", ["printenv", "ONLY_THERE"], login_shell=True)
    assert remote_shell.Guard(marker).feed(done.stdout) == b"it works\n"
    assert done.stdout.startswith(b"noise\n")


def test_impossible_commands() -> None:
    with pytest.raises(ValueError, match="empty"):
        remote_shell.wrap([], "m")
    with pytest.raises(ValueError, match="NUL"):
        remote_shell.wrap(["a\0"], "m")
    with pytest.raises(TransportError, match="at most 120000 can be sent"):
        remote_shell.wrap(["echo", "x" * 120_000], "m")


@given(noise=st.binary(max_size=200), payload=st.binary(max_size=200), size=st.integers(1, 50))
def test_the_guard_removes_exactly_the_noise(noise: bytes, payload: bytes, size: int) -> None:
    marker = remote_shell.new_marker()
    guard = remote_shell.Guard(marker)
    data = noise + marker.encode() + b"4711\n" + payload
    assert b"".join(guard.feed(data[i : i + size]) for i in range(0, len(data), size)) == payload
    assert guard.pid == 4711


def test_without_a_marker_everything_is_noise() -> None:
    guard = remote_shell.Guard(remote_shell.new_marker())
    assert guard.feed(b"This account is currently not available.\n") == b""
    assert (guard.pid, guard.noise) == (None, "This account is currently not available.")


def test_noise_without_end_does_not_fill_the_memory() -> None:
    guard = remote_shell.Guard(remote_shell.new_marker())
    for _ in range(40):
        guard.feed(os.urandom(1 << 16))
    assert len(guard.noise) <= 1 << 20
    assert not guard.endless
    for _ in range(40):
        guard.feed(os.urandom(1 << 16))
    assert guard.endless


def test_a_marker_with_a_number_that_is_no_process_id_is_noise() -> None:
    marker = remote_shell.new_marker()
    guard = remote_shell.Guard(marker)
    assert guard.feed(f"{marker}{'9' * 5000}\n{marker}x\n{marker}\n{marker}7\nhere".encode()) == b"here"
    assert guard.pid == 7
