"""Logging in by a master of our own, which ssh itself does.

ssh asks its questions (passwords, codes, host keys) on the terminal, where there is one that is free.
Sources: ssh(1), -M and -N; ssh_config(5), ControlMaster, ControlPath, ControlPersist.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TextIO

from clusterkit.errors import TransportError
from clusterkit.transport.base import Words
from clusterkit.transport.known_hosts import HostKeyVerdict, fingerprint, read
from clusterkit.transport.openssh.errors import explain
from clusterkit.transport.openssh.kept import (
    NotPrivateError,
    note_file,
    private_folder,
    socket_name,
)
from clusterkit.transport.openssh.link import OpensshLink
from clusterkit.transport.questions import Ask, Prompt, Question, TerminalQuestion
from clusterkit.transport.resolve import HostConfig, refuse_circles

BRIEF_SECONDS = 10
"""How long the master of a single command outlives a command that was killed."""
_ALIVE_SECONDS, _ALIVE_COUNT = 10, 2
"""A dead connection is given up after half a minute without an answer."""
_STOP_SECONDS = 5.0
_TERMINAL = 0


class NoMasterError(Exception):
    """This machine has no ssh program, or no private place for a control socket."""


def start(host: HostConfig, *, keep: int | None, ask: Ask) -> OpensshLink:
    """Logs in by a master of ours.

    Args:
        host: where.
        keep: seconds without a command until the master ends, which later commands use; None for a
            master that ends with this connection.
        ask: lends the terminal to ssh; see `TerminalQuestion`.

    Raises:
        TransportError: the host cannot be reached or trusted, or refuses the login.
        NoMasterError: there is no ssh program, or no private place for the socket.
    """
    try:
        folder = private_folder(create=True)
        if keep is None:
            # no longer than the name of a kept one, and never taken for one
            return _log_in(host, folder / os.urandom(7).hex(), None, ask)
        path = folder / socket_name(host)
        with _one_at_a_time(path, host, ask) as note:
            with contextlib.suppress(OSError, EOFError, ValueError):
                return OpensshLink(path)
            path.unlink(missing_ok=True)  # nobody answers there
            link = _log_in(host, path, keep, ask)
            note.truncate(0)
            note.write(f"{host.alias}\n{keep}\n")
            return link
    except (OSError, NotPrivateError) as error:
        raise NoMasterError(str(error)) from error


def end(path: Path) -> bool:
    """Ends the master behind a socket; returns whether there was one. The socket is gone in any case."""
    ended = False
    with contextlib.suppress(OSError, EOFError, ValueError):
        OpensshLink(path).end()
        ended = True
    path.unlink(missing_ok=True)
    return ended


def installed() -> bool:
    """Returns whether this machine has the ssh program."""
    return shutil.which("ssh") is not None


@contextlib.contextmanager
def _one_at_a_time(path: Path, host: HostConfig, ask: Ask) -> Iterator[TextIO]:
    """Of two commands that start together, the second waits for the first one's login, and then uses it."""
    with note_file(path).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ask(Question(host.alias, "", f"Another command is logging in to {host.alias}; waiting.", ()))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _log_in(host: HostConfig, path: Path, keep: int | None, ask: Ask) -> OpensshLink:
    if not installed():
        raise NoMasterError("OpenSSH's ssh program is not installed")
    refuse_circles(host)
    given = ask(TerminalQuestion(host.alias, "", "", (Prompt("the terminal", echo=True),)))
    interactive = TerminalQuestion.TERMINAL in given and _is_ours(_TERMINAL)
    argv = _argv(host, path, keep or BRIEF_SECONDS, batch=not interactive)
    if host.new_host_keys == "accept" or TerminalQuestion.ACCEPT_NEW in given:
        argv += ["-o", "StrictHostKeyChecking=accept-new"]
    status, words = _run([*argv, "--", host.alias], interactive=interactive)
    if status == -signal.SIGINT:
        raise KeyboardInterrupt
    if status != 0:
        raise explain(host, words, asked=interactive)
    if "Permanently added" in words:
        key_line = HostKeyVerdict(host, read(host.known_hosts)).known
        shown = f"{key_line.key_type} {fingerprint(key_line.key)}" if key_line else words.strip()
        ask(Question(host.alias, "", f"Accepted the new host key of {host.alias}: {shown}.", ()))
    elif words.strip() and not interactive:
        ask(Question(host.alias, "", words.strip(), ()))
    try:
        return OpensshLink(path, ends=keep is None)
    except (OSError, EOFError, ValueError) as error:
        raise TransportError(
            f"ssh logged in to {host.alias} and then ended at once",
            hint=f"try it by hand: {host.ssh_command}",
        ) from error


def _run(argv: Sequence[str], *, interactive: bool) -> tuple[int, str]:
    """Runs ssh until it goes to the background or gives up; returns its exit status and its words so far."""
    process = subprocess.Popen(
        argv,
        stdin=None if interactive else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert process.stderr is not None
    words = Words()
    listener = threading.Thread(target=_listen, args=(process.stderr, words, interactive), daemon=True)
    listener.start()
    try:  # ssh leaves its first process once it is logged in
        status = _wait_in_foreground(process, _TERMINAL) if interactive else process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(_STOP_SECONDS)
        raise
    # the ssh of a jump host holds the pipe for as long as it runs
    listener.join(0.0 if status == 0 else _STOP_SECONDS)
    return status, words.text


def _argv(host: HostConfig, path: Path, persist: float, *, batch: bool) -> list[str]:
    """Returns the command line of a master that goes to the background once it is logged in."""
    options = {
        "ControlMaster": "yes",
        "ControlPath": str(path).replace("%", "%%"),
        "ControlPersist": str(max(1, round(persist))),
        "ServerAliveInterval": str(_ALIVE_SECONDS),
        "ServerAliveCountMax": str(_ALIVE_COUNT),
        "ConnectTimeout": f"{host.connect_timeout:.0f}",
        "LogLevel": "INFO",  # its words are needed when it fails, and a server's instructions come as such
        "RemoteCommand": "none",
        "RequestTTY": "no",
        "PermitLocalCommand": "no",
        "ClearAllForwardings": "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        **({"BatchMode": "yes"} if batch else {}),
    }
    config = ["-F", str(host.config)] if host.config else []
    return ["ssh", *config, "-M", "-N", "-f", *(f"-o{key}={value}" for key, value in options.items())]


def _listen(pipe: IO[bytes], words: Words, aloud: bool) -> None:
    """Keeps what ssh says, and passes it on at once where a person waits for it."""
    while data := os.read(pipe.fileno(), 4096):
        words.add(data)
        if aloud:
            sys.stderr.write(data.decode("utf-8", "replace"))
            sys.stderr.flush()


def _is_ours(terminal: int) -> bool:
    """Returns whether this process is in the foreground of its terminal."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # it is none, or that of other processes
        return False


def _wait_in_foreground(process: subprocess.Popen[bytes], terminal: int) -> int:
    """Waits for a program that leads a process group and owns the terminal meanwhile; returns its status.

    ssh must not stay in our process group: it lets the ssh of a jump host run on there, and a Ctrl-C for one
    of our commands would end the connection of all others. Source: glibc manual, Implementing a Shell.
    Ctrl-C reaches only the program. Ctrl-Z stops both it and us, until the shell goes on with both.

    Args:
        process: started with `process_group=0`.
        terminal: a descriptor of our terminal, of which we are in the foreground.
    """
    # whoever is not in the foreground is stopped when it changes that, unless this is blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        while True:
            os.tcsetpgrp(terminal, process.pid)
            os.killpg(process.pid, signal.SIGCONT)  # it may have asked before the terminal was its own
            try:
                _, status = os.waitpid(process.pid, os.WUNTRACED)
            finally:
                os.tcsetpgrp(terminal, os.getpgrp())
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode
            os.killpg(0, signal.SIGTSTP)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
