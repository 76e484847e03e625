"""The laptop's side of a relay (clusterkit/node/relay.py) in a running run's job.

The node is not trusted: what it prints before the mark is noise; what no relay sends after it ends it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from clusterkit.errors import RunError, last_words
from clusterkit.interactive.inside import Inside
from clusterkit.node import relay
from clusterkit.transport.base import Conversation, Words
from clusterkit.transport.remote_shell import Guard, new_marker

_QUOTED = 200
"""Bytes of a stray line that are shown."""
_KEPT = 1 << 14
"""Bytes kept of the beginning and of the end of standard error."""


@dataclass(frozen=True)
class Relayed:
    """A relay that was started in a job, which may not be ready yet."""

    place: Inside
    relay: relay.Relay
    talking: Conversation
    guard: Guard
    errors: Words
    """What the node has printed on standard error."""
    on_refused: Callable[[str], object]

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

        def refused(why: bytes) -> None:
            self.on_refused(last_words(why.decode("utf-8", "replace")))

        self.relay.open(number, opened, refused)

    def serve(self, on_ready: Callable[[], object] = bool) -> None:
        """Serves the streams until the relay ends.

        Args:
            on_ready: called once the relay runs.

        Raises:
            RunError: the node sent something that no relay sends.
            TransportError: the connection failed.
        """
        frames, ready = relay.FrameReader(), False
        try:
            for data in self.talking.output():
                clean = self.guard.feed(data)
                if self.guard.endless:
                    raise self._stray(self.guard.noise)
                if not ready and self.guard.pid is not None:
                    ready = True
                    on_ready()
                for kind, number, content in frames.feed(clean):
                    self.relay.take(kind, number, content)
        except relay.StrayLineError as error:
            raise self._stray(error.said[:_QUOTED].decode("utf-8", "replace")) from None

    @property
    def said(self) -> str:
        """What the node has printed beside frames."""
        return f"{self.guard.noise}\n{self.errors.text}"

    def _stray(self, said: str) -> RunError:
        run_id, node = self.place.run.run_id, self.place.state.node or "the node"
        plain = any(char.isprintable() and char != " " for char in said)
        quoted = last_words(said) if plain else "characters that cannot be shown"
        return RunError(
            f"{node} of {run_id} printed where only the connection's data belongs: {quoted}",
            hint=f"look what a start-up file (~/.bashrc, BASH_ENV) or a program prints there: "
            f"`clusterkit shell {run_id} -- true`",
        )


@contextmanager
def relayed(
    place: Inside,
    build: Callable[[str], Sequence[str]],
    *,
    prelude: bytes = b"",
    on_refused: Callable[[str], object],
) -> Iterator[Relayed]:
    """Starts a relay inside a job, and ends it.

    Args:
        place: the running run.
        build: returns the argv that starts the relay on the node, for the relay's mark.
        prelude: what it reads first.
        on_refused: called with why a stream was not connected, in the node's words.

    Raises:
        TransportError: the connection failed.
    """
    mark, errors = new_marker(), Words(_KEPT)
    with place.transport.talk(place.argv(build(mark), reads=True), on_error=errors.add) as talking:
        if prelude:
            talking.send(prelude)
        relaying = Relayed(place, relay.Relay(talking.send), talking, Guard(mark), errors, on_refused)
        try:
            yield relaying
        finally:
            relaying.relay.close()
