"""`clusterkit forward`."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.ui.console import note, say, warn
from clusterkit.errors import ConfigError, RunError, last_words
from clusterkit.interactive.entering import enter_argv
from clusterkit.project import load, open_ledger
from clusterkit.resources import NODE_PROGRAMS
from clusterkit.transport.faults import LostError

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.interactive.inside import Inside
    from clusterkit.interactive.relayed import Relayed
    from clusterkit.runs.ledger import LedgerRun
    from clusterkit.runs.state import RunState


def forward(
    name: options.Run,
    ports: Annotated[
        list[str],
        typer.Argument(
            metavar="PORT",
            help="A port of the program; LOCAL:PORT for another one here, :PORT for a free one.",
        ),
    ],
    config: options.Config = None,
) -> None:
    """Reach ports of a running program on this machine.

    They are those of the node's loopback, and open on this machine's loopback only, until Ctrl-C or the job's
    end.

    Examples:
      clusterkit forward last 8888             # http://127.0.0.1:8888 here
      clusterkit forward last 9000:8888 :6006  # port 9000 here, and a free one

    See also: clusterkit shell, clusterkit dev, interactive.md
    """
    settings = load(config)
    wanted = [parse_ports(text) for text in ports]
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        run = ledger.find_one(name)
    with listening(wanted) as listeners:
        state = forward_ports(settings, run, listeners)
    note(
        f"{run.run_id} {'has ended as' if state.final else 'is'} {state.state}: nothing is forwarded any more"
    )


_HIGHEST = 65535
_LOOK_SECONDS = 0.5
"""How often an acceptor looks whether the command has ended."""


@dataclass(frozen=True)
class Ports:
    """A port here and one on the node."""

    local: int
    """0 for a free one."""
    remote: int


@dataclass(frozen=True)
class Listener:
    """A port of this machine's loopback that is open."""

    ports: Ports
    listening: socket.socket

    @property
    def local(self) -> int:
        """The port's number."""
        number: int = self.listening.getsockname()[1]
        return number


def parse_ports(text: str) -> Ports:
    """Parses `PORT` and `LOCAL:PORT`, where LOCAL may be 0 or left out.

    Raises:
        ConfigError: it is neither.
    """
    local, colon, remote = text.rpartition(":")
    here = local or "0" if colon else remote
    numbers = [int(each) if each.isdecimal() else -1 for each in (here, remote)]
    if not (0 <= numbers[0] <= _HIGHEST and 0 < numbers[1] <= _HIGHEST):
        raise ConfigError(
            f"{text!r} is no port of the form PORT or LOCAL:PORT",
            hint="8888 for the same port here, 9000:8888 for another one, :8888 for a free one",
        )
    return Ports(*numbers)


@contextmanager
def listening(ports: Sequence[Ports]) -> Iterator[list[Listener]]:
    """Opens the ports here, on the loopback only.

    Raises:
        ConfigError: one cannot be opened.
    """
    with ExitStack() as stack:
        opened = []
        for one in ports:
            try:
                here = stack.enter_context(socket.create_server(("127.0.0.1", one.local)))
            except OSError as error:
                raise ConfigError(
                    f"port {one.local} of this machine cannot be opened: {os.strerror(error.errno or 0)}",
                    hint=f"choose another one, e.g. :{one.remote} for any that is free",
                ) from None
            opened.append(Listener(one, here))
        yield opened


def forward_ports(settings: Settings, run: LedgerRun, listeners: Sequence[Listener]) -> RunState:
    """Carries connections to a run's node until its job ends; a lost connection to the cluster is made anew.

    One job step carries all of them: a step for each would add the start of a container.

    Args:
        settings: of the project.
        run: the running run.
        listeners: the ports.

    Returns:
        The run's state at the end.

    Raises:
        RunError: the run is not running, or nothing can be started in its job.
        TransportError: the cluster cannot be reached.
    """
    from clusterkit.interactive.inside import inside

    with _Acceptor(listeners) as acceptor:
        while True:
            try:
                with inside(settings, run) as place:
                    return _serve(place, acceptor)
            except LostError:
                if not acceptor.served:
                    raise


def _show_ready(place: Inside, listeners: Sequence[Listener], *, again: bool) -> None:
    if again:
        note("the connection was lost; logged in again")
        return
    node = place.state.node or "the node"
    for listener in listeners:
        there = f"port {listener.ports.remote} of {node}, {place.run.run_id}"
        say(f"http://127.0.0.1:{listener.local}  is {there}")
    note("Ctrl-C ends it")


def _serve(place: Inside, acceptor: _Acceptor) -> RunState:
    """Carries connections over one relay until it ends; returns the run's state then."""
    from clusterkit.interactive.relayed import relayed
    from clusterkit.runs.observe import query

    def build(mark: str) -> list[str]:
        return enter_argv(
            place,
            ["python", "-I", "-S", "-c", (NODE_PROGRAMS / "relay.py").read_bytes().decode(), mark, "ports"],
        )

    with relayed(place, build, on_refused=acceptor.show_refusal) as relaying, acceptor.lost_at_end():

        def begin() -> None:
            again = acceptor.served
            acceptor.pass_to(relaying)
            _show_ready(place, acceptor.listeners, again=again)

        relaying.serve(begin)
        relaying.talking.wait()
    (state,) = query(place.cluster, place.transport, [place.run])
    if state.state is JobState.RUNNING and state.attempt == place.attempt:
        raise RunError(
            f"{place.run.run_id} runs, but no port can be forwarded: {last_words(relaying.said)}",
            hint="run the same command again",
        )
    return state


class _Acceptor:
    """Accepts connections, and keeps each until there is a relay."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = listeners
        self._refusals: set[str] = set()
        self._numbers = itertools.count(1)
        self._news = threading.Condition()
        self._relaying: Relayed | None = None
        self._over = False
        self.served = False
        """Whether there ever was a relay."""

    def __enter__(self) -> _Acceptor:
        for one in self.listeners:
            threading.Thread(target=self._accept, args=(one,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._over = True
            self._news.notify_all()

    def show_refusal(self, why: str) -> None:
        if why not in self._refusals:  # browsers try again and again
            self._refusals.add(why)
            warn("a connection was refused:", f" {why}")

    def pass_to(self, relaying: Relayed) -> None:
        with self._news:
            self._relaying, self.served = relaying, True
            self._news.notify_all()

    @contextmanager
    def lost_at_end(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._news:
                self._relaying = None

    def _accept(self, one: Listener) -> None:
        one.listening.settimeout(_LOOK_SECONDS)
        while not self._over:
            try:
                peer, _ = one.listening.accept()
            except TimeoutError:
                continue
            except OSError:  # closed
                return
            peer.settimeout(None)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._news:
                self._news.wait_for(lambda: self._relaying or self._over)
                relaying = self._relaying
            if relaying is not None:
                relaying.connect(next(self._numbers), peer, b"%d" % one.ports.remote)
