"""rsync over a connection that is already open: its remote half runs on a channel of ours, one login for all.

rsync starts `rsh.py` as its remote shell, which passes rsync's pipes to this process; here bytes
are pumped between them and the channel. The socket in between has no name that others could open.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from clusterkit.errors import TransportError
from clusterkit.transport import faults, rsync
from clusterkit.transport.base import Move, Transferred
from clusterkit.transport.link import CHUNK
from clusterkit.transport.session import Session

_MESSAGE_BYTES = 1 << 16
_END_SECONDS = 10.0

_IS_FOLDER = 91
"""Exit status of `prepare_target`: the target of a file is a folder."""
_NO_PARENT = 92
"""Exit status of `prepare_target`: the parent folder cannot be made."""


def prepare_target(target: str, *, folder: bool) -> tuple[str, str]:
    """Returns what makes a remote target ready, in the same round trip as rsync itself.

    Returns:
        The sh commands to run before rsync, and the target's name relative to where they end.
    """
    parent, name = (target, ".") if folder else posixpath.split(target)
    refuse_folder = "" if folder else f"[ ! -d {shlex.quote(target)} ] || exit {_IS_FOLDER}\n"
    enter = f"(umask 077; mkdir -p -- {shlex.quote(parent)}) && cd -- {shlex.quote(parent)}"
    return f"{refuse_folder}{enter} || exit {_NO_PARENT}", name if folder else f"./{name}"


def transfer(
    start: Callable[..., contextlib.AbstractContextManager[Session]], move: Move, *, folder: bool, where: str
) -> Transferred:
    """Runs rsync through a tunnel.

    Args:
        start: runs a command on the connection, after the commands `prepare`.
        move: from where to where.
        folder: the source is one.
        where: the remote machine's name.

    Raises:
        NoRsyncError: one of the machines has no rsync.
        TransportError: the transfer failed; the error is the one that explains it best.
    """
    prepare, name = "", move.target
    if move.pulling:
        rsync.prepare_target(Path(move.target), move.source, folder=folder)
    else:
        prepare, name = prepare_target(move.target, folder=folder)
        if not rsync.safe_as_target(name):
            raise TransportError(
                f"rsync cannot create a single file named {name.removeprefix('./')} on {where}",
                hint="rename it (no * ? or [), or copy the folder that holds it",
            )
    return Tunnel(partial(start, prepare=prepare)).run(move, name, folder=folder, where=where)


class Tunnel:
    """Our end of one rsync: waits for its remote shell, runs the remote half, pumps both ways."""

    def __init__(self, start: Callable[[Sequence[str]], contextlib.AbstractContextManager[Session]]) -> None:
        """Makes a tunnel for one transfer.

        Args:
            start: runs a command on the connection.
        """
        self._start = start
        self._session: Session | None = None
        self._status: int | None = None
        """Exit status of the remote half, once it has ended."""
        self._words = ""
        """Standard error of the remote half."""
        self._error: TransportError | None = None
        """Why the remote half could not be run to its end."""

    def run(self, move: Move, target: str, *, folder: bool, where: str) -> Transferred:
        """Runs rsync onto a target where the remote half begins. Errors as for `transfer`."""
        ours, theirs = socket.socketpair()
        helper = str(Path(__file__).with_name("rsh.py"))
        argv = rsync.build_argv(
            move.source,
            target,
            move.options,
            folder=folder,
            pulling=move.pulling,
            rsh=[sys.executable, "-I", "-S", helper, str(theirs.fileno())],
        )
        stdin = rsync.files_from_input(move.options)
        pump = threading.Thread(target=self._serve, args=(ours,), daemon=True)
        pump.start()
        try:
            ended = rsync.run_rsync(
                argv, stdin=stdin, progress=move.progress, pass_fds=[theirs.fileno()], on_start=theirs.close
            )
        finally:
            theirs.close()
            pump.join(_END_SECONDS)  # rsync has ended, so the remote half sees the end of its input
            if pump.is_alive() and self._session is not None:
                self._session.close()
                pump.join()
            ours.close()
        if ended.code in (0, rsync.VANISHED):
            return ended.transferred
        if self._error is not None:
            raise self._error
        path = move.source if move.pulling else move.target
        if self._status == _IS_FOLDER:
            raise TransportError(f"{path} on {where} is a folder, and the source is a file")
        if self._status == _NO_PARENT:
            raise faults.unwritable(path, self._words, where=where)
        raise faults.rsync_failed(ended.code, self._words + ended.stderr, pulling=move.pulling, where=where)

    def _serve(self, ours: socket.socket) -> None:
        message, pipes = _receive(ours)
        if len(pipes) != 2:  # rsync ended before it started its remote shell, or too many files are open here
            for pipe in pipes:
                os.close(pipe)
            return
        source, sink = pipes
        for pipe in pipes:
            os.set_blocking(pipe, True)  # rsync hands them over non-blocking
        upward: threading.Thread | None = None
        try:
            with self._start(os.fsdecode(message).split("\0")) as session:
                self._session = session
                upward = threading.Thread(target=_pump_up, args=(source, session), daemon=True)
                upward.start()
                with contextlib.suppress(BrokenPipeError):  # rsync has ended first, and says why itself
                    _pump_down(session, sink)
                    self._status = session.wait()
                self._words = session.error_bytes().decode("utf-8", "replace")
        except TransportError as error:
            self._error = error
        finally:
            os.close(sink)
            with contextlib.suppress(OSError):  # rsync may have ended its remote shell
                ours.send(str(255 if self._status is None else self._status & 255).encode())
            if upward is not None:
                upward.join()
            os.close(source)


def _receive(ours: socket.socket) -> tuple[bytes, list[int]]:
    message, pipes, _, _ = socket.recv_fds(ours, _MESSAGE_BYTES, 2)
    while more := ours.recv(_MESSAGE_BYTES):
        message += more
    return message, pipes


def _pump_up(source: int, session: Session) -> None:
    try:
        while data := os.read(source, CHUNK):
            session.send(data)
    except OSError:
        return  # the remote half has ended; its status says why
    session.end_input()


def _pump_down(session: Session, sink: int) -> None:
    for data in session.output():
        view = memoryview(data)
        while view:
            view = view[os.write(sink, view) :]
