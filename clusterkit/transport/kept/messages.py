"""What a command and the keeper say to each other: length, then JSON, with descriptors attached.

The frame and the requests `lease` and `end` stay as they are for ever, so that every version can tell
that another one answers, and end it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

VERSION = 2
"""Of everything but the frame, `lease` and `end`."""

_LENGTH = struct.Struct(">I")
_MAX_BYTES = 1 << 20
_MAX_DESCRIPTORS = 2

Message = dict[str, Any]


def send(to: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message. Raises OSError when the other side is gone."""
    body = json.dumps(message).encode()
    data = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(to, [data], list(descriptors)) if descriptors else 0
    if sent < len(data):  # even an empty send fails once the other side has answered and left
        to.sendall(data[sent:])


def receive(source: socket.socket) -> Message:
    """Receive a message that has no descriptors.

    Raises:
        EOFError: the other side is gone.
        ValueError: this is no message.
    """
    message, descriptors = receive_with_descriptors(source)
    for one in descriptors:
        os.close(one)
    return message


def receive_with_descriptors(source: socket.socket) -> tuple[Message, list[int]]:
    """Receive a message; see `receive`. The caller closes the descriptors."""
    head, descriptors, _, _ = socket.recv_fds(source, _LENGTH.size, _MAX_DESCRIPTORS)
    try:
        head += _exactly(source, _LENGTH.size - len(head)) if head else b""
        if not head:
            raise EOFError("the other side is gone")
        (size,) = _LENGTH.unpack(head)
        if size > _MAX_BYTES:
            raise ValueError(f"a message of {size} bytes")
        message = json.loads(_exactly(source, size))
        if not isinstance(message, dict):
            raise ValueError("not a message")
    except BaseException:
        for one in descriptors:
            os.close(one)
        raise
    return message, descriptors


def _exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            raise EOFError("the other side is gone")
        data += piece
    return bytes(data)


def peer_is_me(peer: socket.socket) -> bool:
    """Whether the other side runs as this user; where the system does not tell, the folder is the guard."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    answer = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", answer)
    return bool(uid == os.getuid())
