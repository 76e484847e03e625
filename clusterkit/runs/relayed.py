"""The laptop's side of a relay (clusterkit/relay.py) in a running run's job."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from clusterkit import relay
from clusterkit.runs.inside import Inside
from clusterkit.transport.base import Conversation


def node_text() -> str:
    """The relay's program text, for the node's Python."""
    return inspect.getsource(relay)


@dataclass(frozen=True)
class Relayed:
    """A relay that was started in a job, which may not be ready yet."""

    relay: relay.Relay
    talking: Conversation

    def connect(self, number: int, peer: socket.socket, wanted: bytes = b"") -> None:
        """Connects a socket here to a new stream.

        Args:
            number: of the stream; each one once.
            peer: the socket, which is closed at the end.
            wanted: the port, for a relay of ports.
        """

        def opened() -> socket.socket:
            self.relay.write(relay.frame(relay.OPEN, number, wanted))
            return peer

        self.relay.open(number, opened)

    def frames(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Serves the streams until the relay ends; yields each frame that is more than a stream's data.

        Raises:
            TransportError: the connection failed.
        """
        lines = relay.LineSplitter()
        for data in self.talking.output():
            for line in lines.feed(data):
                kind, number, content = relay.read_frame(line)
                self.relay.take(kind, number, content)
                if kind in (relay.READY, relay.REFUSED):
                    yield kind, number, content


@contextmanager
def relayed(
    place: Inside, argv: Sequence[str], *, prelude: bytes = b"", on_error: Callable[[bytes], object]
) -> Iterator[Relayed]:
    """Starts a relay inside a job, and ends it.

    Args:
        place: the running run.
        argv: starts the relay on the node.
        prelude: what it reads first.
        on_error: given its standard error as it comes.

    Raises:
        TransportError: the connection failed.
    """
    with place.transport.talk(place.argv(argv, reads=True), on_error=on_error) as talking:
        if prelude:
            talking.send(prelude)
        relaying = Relayed(relay.Relay(talking.send), talking)
        try:
            yield relaying
        finally:
            relaying.relay.close()
