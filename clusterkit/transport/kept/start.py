"""Bringing up a keeper from a command: the person at this terminal answers its login's questions."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from clusterkit.errors import TransportError
from clusterkit.transport.kept import messages
from clusterkit.transport.kept.client import KeptLink, find
from clusterkit.transport.kept.folder import NotPrivateError, private_folder
from clusterkit.transport.kept.questions import from_message
from clusterkit.transport.questions import Ask, Question

_KEEPER = "clusterkit.transport.kept.keeper"


class NotKeptError(Exception):
    """A login cannot be kept on this machine; one of the command's own still may work."""


def start(name: str, *, host: str, ssh_config: Path | None, keep: float, ask: Ask) -> KeptLink:
    """Log in in a background process, or use the one that another command has started meanwhile.

    Args:
        name: of the socket.
        host: what one would type after `ssh`.
        ssh_config: instead of the user's own.
        keep: seconds without a command until the process ends.
        ask: answers the login's questions, in this thread.

    Raises:
        TransportError: the host cannot be reached or trusted, or refuses the login.
        NotKeptError: there is no private place for the socket, or the process cannot run.
    """
    try:
        path = private_folder(create=True) / name
        with _one_at_a_time(path, host, ask):
            link = find(path, keep=keep)
            if link is not None:
                return link
            order = {
                "host": host,
                "ssh_config": str(ssh_config) if ssh_config else None,
                "keep": keep,
                "path": str(path),
            }
            _bring_up(order, ask)
    except (OSError, EOFError, ValueError, NotPrivateError) as error:
        raise NotKeptError(str(error) or type(error).__name__) from error
    link = find(path)
    if link is None:
        raise NotKeptError("the background session ended at once")
    return link


@contextlib.contextmanager
def _one_at_a_time(path: Path, host: str, ask: Ask) -> Iterator[None]:
    """Of two commands that start together, the second waits for the first one's login, and then uses it."""
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ask(Question(host, "", f"Another command is logging in to {host}; waiting for it.", ()))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bring_up(order: messages.Message, ask: Ask) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                # -P: no module of the current folder may stand in for one of ours
                [sys.executable, "-P", "-m", _KEEPER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # no Ctrl-C and no closed terminal reaches it
            )
            if process.wait() != 0:  # it goes on as a child of nobody's
                raise ValueError("the background session cannot start")
        messages.send(ours, order)
        while "ready" not in (answer := messages.receive(ours)):
            if "question" in answer:
                messages.send(ours, {"answers": list(ask(from_message(answer["question"])))})
            elif "failed" in answer:
                raise TransportError(str(answer["failed"]), hint=answer.get("hint"))
            else:
                raise ValueError(str(answer.get("broken", "the background session cannot start")))
