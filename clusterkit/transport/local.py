"""The transport to this machine: the same methods as over ssh, with no connection in between."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from clusterkit import folders
from clusterkit.errors import TransportError
from clusterkit.folders import make_private, replace_file
from clusterkit.transport import faults, rsync
from clusterkit.transport.base import Completed, MissingFileError, Move, Transferred, TreeMover, Words

_WHERE = "this machine"
_CHUNK = 1 << 16
_STOP_SECONDS = 2.0


class LocalTransport(TreeMover):
    """Runs commands and moves files on this machine, as the current user, from the home folder."""

    @property
    def where(self) -> str:
        """The machine's name for messages."""
        return _WHERE

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float | None = 60.0,
        check: bool = True,
    ) -> Completed:
        """See `Transport.run`; a timeout ends the whole process group."""
        try:
            with _start(argv) as process:
                try:
                    stdout, stderr = process.communicate(stdin, timeout)
                except subprocess.TimeoutExpired as error:
                    raise faults.timed_out(argv, error.timeout, where=_WHERE) from None
                finally:
                    _stop(process)
            completed = Completed(tuple(argv), process.returncode, stdout, stderr)
        except FileNotFoundError as error:
            completed = Completed(tuple(argv), faults.NOT_FOUND, b"", str(error).encode())
        except OSError as error:  # not executable, too long: a shell would say 126
            completed = Completed(tuple(argv), 126, b"", str(error).encode())
        if check and completed.returncode != 0:
            raise faults.command_failed(completed, where=_WHERE)
        return completed

    def stream(self, argv: Sequence[str], *, hold_input: bool = False) -> Iterator[bytes]:
        """See `Transport.stream`."""
        words = Words()
        with self.talk(argv, on_error=words.add) as talking:
            if not hold_input:
                talking.end_input()
            yield from talking.output()
            status = talking.wait()
            talking.errors.join()
        if status != 0:
            raise faults.command_failed(Completed(tuple(argv), status, b"", words.data), where=_WHERE)

    @contextlib.contextmanager
    def talk(
        self, argv: Sequence[str], *, on_error: Callable[[bytes], object]
    ) -> Iterator[_LocalConversation]:
        """See `Transport.talk`."""
        try:
            process = _start(argv)
        except OSError as error:
            raise _not_started(argv, error) from None
        talking = _LocalConversation(process, on_error)
        with process:
            try:
                yield talking
            finally:
                talking.over = True
                _stop(process)
                talking.errors.join(_STOP_SECONDS)  # what the command left behind may keep it open

    def attach(self, argv: Sequence[str], *, terminal: bool, hold_input: bool = False) -> int:
        """See `Transport.attach`; on a terminal the command shares ours, and Ctrl-C is its own."""
        from clusterkit.transport import terminal as streams  # deferred: most commands only run something

        if terminal:
            streams.require_terminal()
        stdin = None if terminal else subprocess.PIPE if hold_input else subprocess.DEVNULL
        try:
            process = subprocess.Popen(argv, stdin=stdin, cwd=folders.home_or_root())
        except OSError as error:
            raise _not_started(argv, error) from None
        with process, streams.ignoring_interrupts() if terminal else contextlib.nullcontext():
            try:
                return process.wait()
            except BaseException:
                process.terminate()
                raise

    def read(self, path: str) -> bytes:
        """See `Transport.read`."""
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise faults.unreadable(path, error.strerror or str(error), where=_WHERE) from error

    def write(self, path: str, data: bytes) -> None:
        """See `Transport.write`."""
        target = Path(path)
        try:
            make_private(target.parent)
            replace_file(target, data, mode=0o600)
        except OSError as error:
            raise faults.unwritable(path, error.strerror or str(error), where=_WHERE) from error

    def _move(self, move: Move) -> Transferred:
        """Copies with rsync, or by itself where there is none."""
        if not Path(move.source).exists():
            raise MissingFileError(f"{move.source} does not exist on {_WHERE}")
        try:
            rsync.find_rsync()
            return _with_rsync(move)
        except faults.NoRsyncError as missing:
            from clusterkit.transport.copying import copy, say_once
            from clusterkit.transport.sides import ThisMachine

            say_once(missing.cause)
            return copy(ThisMachine(), ThisMachine(), move)

    def close(self) -> None:
        """Nothing is held open."""


class _LocalConversation:
    """Implements `Conversation` over a process's pipes."""

    def __init__(self, process: subprocess.Popen[bytes], on_error: Callable[[bytes], object]) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process = process
        self.over = False
        """Whether its descriptors may be others' by now."""
        self._input, self._output, words = (
            stream.fileno() for stream in (process.stdin, process.stdout, process.stderr)
        )

        def listen() -> None:
            while data := os.read(words, _CHUNK):
                on_error(data)

        self.errors = threading.Thread(target=listen, daemon=True)
        self.errors.start()

    def send(self, data: bytes) -> None:
        """See `Conversation.send`."""
        left = memoryview(data)
        while left:
            if self.over:
                raise BrokenPipeError
            left = left[os.write(self._input, left) :]

    def end_input(self) -> None:
        """Lets the command see the end of its standard input."""
        assert self._process.stdin
        self._process.stdin.close()

    def output(self) -> Iterator[bytes]:
        """See `Conversation.output`."""
        while not self.over:
            try:
                data = os.read(self._output, _CHUNK)
            except OSError:
                if self.over:  # it was closed meanwhile, in another thread
                    return
                raise
            if not data:
                return
            yield data

    def wait(self) -> int:
        """See `Conversation.wait`."""
        return self._process.wait()


def _with_rsync(move: Move) -> Transferred:
    folder = Path(move.source).is_dir()
    rsync.prepare_target(Path(move.target), move.source, folder=folder)
    argv = rsync.build_argv(move.source, move.target, move.options, folder=folder, pulling=move.pulling)
    ended = rsync.run_rsync(argv, stdin=rsync.files_from_input(move.options), progress=move.progress)
    if ended.code not in (0, rsync.VANISHED):
        raise faults.rsync_failed(ended.code, ended.stderr, pulling=move.pulling, where=_WHERE)
    return ended.transferred


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    if not argv:
        raise ValueError("an empty command")
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folders.home_or_root(),
        start_new_session=True,  # one process group to end, and no Ctrl-C behind our back
    )


def _not_started(argv: Sequence[str], error: OSError) -> TransportError:
    missing = Completed(tuple(argv), faults.NOT_FOUND, b"", str(error).encode())
    return faults.command_failed(missing, where=_WHERE)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the process group, first politely."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
