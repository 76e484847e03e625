"""One command of a client on one channel of the kept connection: bytes both ways, and its exit status."""

from __future__ import annotations

import contextlib
import socket
import threading

from clusterkit.transport.kept import messages
from clusterkit.transport.link import CHUNK, Channel, ChannelRefusedError, DownError, Link, Screen

UNKNOWN = "the server or the network ended it"


def relay(
    link: Link,
    command: bytes,
    control: socket.socket,
    stream: socket.socket,
    errors: socket.socket,
    *,
    screen: Screen | None = None,
) -> None:
    """Run a command line for a client until it has ended, or the client has hung up.

    Args:
        link: the connection.
        command: from the client.
        control: told how it began and how it ended; tells new sizes of the terminal; its end is the client's.
        stream: standard input and output.
        errors: standard error.
        screen: the client's terminal, where the command shall have one.
    """
    try:
        channel = link.open(command, screen)
    except ChannelRefusedError as error:
        messages.send(control, {"refused": str(error)})
        return
    except DownError as error:
        messages.send(control, {"lost": str(error) or UNKNOWN, "started": error.started})
        return
    helpers = [
        threading.Thread(target=_pump_in, args=(stream, channel), daemon=True),
        threading.Thread(target=_watch, args=(control, channel), daemon=True),
    ]
    listener = threading.Thread(target=_pump_errors, args=(channel, errors), daemon=True)
    try:
        messages.send(control, {"opened": True})
        for helper in (*helpers, listener):
            helper.start()
        while data := channel.receive(None):
            stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
        listener.join()
        status = channel.wait(None)
        if status is None and not link.alive:
            messages.send(control, {"lost": link.why or UNKNOWN})
        else:
            messages.send(control, {"status": status})
    except OSError:
        return  # the client is gone; closing the channel hangs up for it
    finally:
        channel.close()
        for one in (stream, control):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the helpers; what was sent still arrives
        for helper in helpers:
            if helper.ident is not None:
                helper.join()


def _pump_in(stream: socket.socket, channel: Channel) -> None:
    with contextlib.suppress(OSError):
        while data := stream.recv(CHUNK):
            channel.send(data)
        channel.end_input()


def _pump_errors(channel: Channel, errors: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := channel.receive_error():
            errors.sendall(data)
    with contextlib.suppress(OSError):
        errors.shutdown(socket.SHUT_WR)


def _watch(control: socket.socket, channel: Channel) -> None:
    """A client tells nothing but sizes of its terminal; the end of its connection is its Ctrl-C."""
    with contextlib.suppress(OSError, EOFError, ValueError, KeyError, TypeError):
        while True:
            channel.resize(Screen(*messages.receive(control)["screen"]))
    channel.close()
