"""The transport over ssh: one login, and every command, file and transfer rides on it."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from clusterkit.errors import TransportError
from clusterkit.transport import faults, rsync, tunnel
from clusterkit.transport.base import Completed, MissingFileError, ProgressCallback, SyncOptions, Transferred
from clusterkit.transport.copying import say_once
from clusterkit.transport.jump import Road, travel
from clusterkit.transport.liveness import Liveness
from clusterkit.transport.questions import Ask, ask_on_terminal
from clusterkit.transport.session import Session, TimeUp
from clusterkit.transport.transfer import Ended, find_rsync, make_folders

_MAX_SESSIONS = 8
"""Commands at the same time; OpenSSH's server allows 10 (MaxSessions), and `end` may need one more."""

_FILE_SECONDS = 300.0
_NOT_A_FOLDER, _ABSENT = 10, 11

_WRITE = """
set -u
umask 077
mkdir -p -- "$2" || exit 1
if [ -d "$1" ]; then echo "Is a directory" >&2; exit 1; fi
cat > "$3" && [ "$(($(wc -c < "$3")))" -eq "$5" ] && chmod "$4" "$3" &&
    { sync "$3" 2>/dev/null || sync; } && mv -f -- "$3" "$1" && exit 0
rm -f -- "$3"
exit 1
"""
"""Arguments: path, folder, temporary path, mode, size; a cut connection ends `cat` early, hence the size."""

_KIND = f'[ -d "$1" ] && exit 0; [ -e "$1" ] && exit {_NOT_A_FOLDER}; exit {_ABSENT}'


class SshTransport:
    """A machine reached by ssh. Safe to use from several threads."""

    def __init__(self, road: Road, *, where: str, login_shell: bool = False) -> None:
        self._road, self._where, self._login_shell = road, where, login_shell
        self._liveness = Liveness(road.wire)
        self._slots = threading.BoundedSemaphore(_MAX_SESSIONS)
        self._no_rsync: rsync.NoRsyncError | None = None

    @classmethod
    def open(
        cls, host: str, *, ask: Ask | None = None, ssh_config: Path | None = None, login_shell: bool = False
    ) -> SshTransport:
        """Log in; see `factory.connect`."""
        road = travel(host, ask=ask or ask_on_terminal, config=ssh_config)
        return cls(road, where=host, login_shell=login_shell)

    @property
    def where(self) -> str:
        """The host as the user named it."""
        return self._where

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float | None = 60.0,
        check: bool = True,
    ) -> Completed:
        """See `Transport.run`; a timeout ends the remote process group."""
        with self._session(argv, timeout=timeout) as session:
            try:
                session.feed(stdin)
                stdout = b"".join(session.output())
                status = session.wait()
            except TimeUp:
                session.end()
                raise faults.timed_out(argv, timeout or 0.0, where=self._where) from None
            except KeyboardInterrupt:
                session.end()
                raise
            completed = Completed(tuple(argv), status, stdout, session.error_bytes())
        if check and status != 0:
            raise faults.command_failed(completed, where=self._where)
        return completed

    def stream(self, argv: Sequence[str]) -> Iterator[bytes]:
        """See `Transport.stream`."""
        with self._session(argv) as session:
            try:
                session.end_input()
                yield from session.output()
                status = session.wait()
            except (GeneratorExit, KeyboardInterrupt):
                session.end()
                raise
            completed = Completed(tuple(argv), status, b"", session.error_bytes())
        if status != 0:
            raise faults.command_failed(completed, where=self._where)

    def read(self, path: str) -> bytes:
        """See `Transport.read`."""
        done = self.run(["env", "LC_ALL=C", "cat", "--", path], timeout=_FILE_SECONDS, check=False)
        if done.returncode != 0:
            raise faults.unreadable(path, done.error_text, where=self._where)
        return done.stdout

    def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """See `Transport.write`."""
        folder, name = posixpath.split(path)
        temporary = posixpath.join(folder, f".{name[:64]}.{secrets.token_hex(8)}")
        script = ["env", "LC_ALL=C", "sh", "-c", _WRITE, "sh"]
        arguments = [path, folder or "/", temporary, f"{mode:o}", str(len(data))]
        done = self.run(script + arguments, stdin=data, timeout=_FILE_SECONDS, check=False)
        if done.returncode != 0:
            raise faults.unwritable(path, done.error_text, where=self._where)

    def push(
        self,
        source: Path,
        target: str,
        *,
        options: SyncOptions = SyncOptions(),  # noqa: B008 - frozen
        progress: ProgressCallback | None = None,
    ) -> Transferred:
        """See `Transport.push`."""
        if not source.exists():
            raise MissingFileError(f"{source} does not exist on this machine")
        try:
            return self._push_with_rsync(source, target, options, progress)
        except rsync.NoRsyncError as missing:
            here = str(source.absolute())
            return self._without_rsync(here, target, options, progress, missing, pulling=False)

    def _push_with_rsync(
        self, source: Path, target: str, options: SyncOptions, progress: ProgressCallback | None
    ) -> Transferred:
        self._need_rsync()
        folder = source.is_dir()
        prepare, name = tunnel.prepare_target(target, folder=folder)
        if not rsync.safe_as_target(name):
            raise TransportError(
                f"rsync cannot create a single file named {name.removeprefix('./')} on {self._where}",
                hint="Rename it (no * ? or [), or copy the folder that holds it.",
            )

        def build(rsh: Sequence[str]) -> list[str]:
            here = str(source.absolute())
            return rsync.build_argv(here, name, options, folder=folder, pulling=False, rsh=rsh)

        way = tunnel.Tunnel(partial(self._session, prepare=prepare))
        ended = way.run(build, stdin=rsync.files_from_input(options), progress=progress)
        self._judge(way, ended, target, pulling=False)
        return ended.transferred

    def pull(
        self,
        source: str,
        target: Path,
        *,
        options: SyncOptions = SyncOptions(),  # noqa: B008 - frozen
        progress: ProgressCallback | None = None,
    ) -> Transferred:
        """See `Transport.pull`."""
        target = target.absolute()
        try:
            return self._pull_with_rsync(source, target, options, progress)
        except rsync.NoRsyncError as missing:
            return self._without_rsync(source, str(target), options, progress, missing, pulling=True)

    def _pull_with_rsync(
        self, source: str, target: Path, options: SyncOptions, progress: ProgressCallback | None
    ) -> Transferred:
        self._need_rsync()
        folder = source.endswith("/") or self._is_folder(source)
        if not folder and target.is_dir():
            raise TransportError(f"{target} on this machine is a folder, and {source} is a file")
        try:
            make_folders(target.parent)
        except OSError as error:
            raise faults.unwritable(
                str(target), error.strerror or str(error), where="this machine"
            ) from error

        def build(rsh: Sequence[str]) -> list[str]:
            return rsync.build_argv(source, str(target), options, folder=folder, pulling=True, rsh=rsh)

        way = tunnel.Tunnel(self._session)
        ended = way.run(build, stdin=rsync.files_from_input(options), progress=progress)
        self._judge(way, ended, source, pulling=True)
        return ended.transferred

    def _need_rsync(self) -> None:
        """Raise what was found missing before; the far side is not asked again."""
        if self._no_rsync is not None:
            raise self._no_rsync
        find_rsync()

    def _without_rsync(
        self,
        source: str,
        target: str,
        options: SyncOptions,
        progress: ProgressCallback | None,
        missing: rsync.NoRsyncError,
        *,
        pulling: bool,
    ) -> Transferred:
        from clusterkit.transport import sftp  # paramiko's part of it is seldom needed

        if missing.where == self._where:
            self._no_rsync = missing
        say_once(missing.where)
        ends = (source, target, options, progress)
        with self._session(sftp.SERVER) as session:
            try:
                return sftp.move(session, self.run, *ends, where=self._where, pulling=pulling)
            except sftp.NoToolsError as error:
                raise missing from error

    def close(self) -> None:
        """See `Transport.close`."""
        self._liveness.stop()
        self._road.close()

    @contextlib.contextmanager
    def _session(
        self, argv: Sequence[str], *, timeout: float | None = None, prepare: str = ""
    ) -> Iterator[Session]:
        with self._slots:
            session = Session(
                self._road.wire,
                self._liveness,
                argv,
                where=self._where,
                login_shell=self._login_shell,
                timeout=timeout,
                prepare=prepare,
            )
            with contextlib.closing(session):
                yield session

    def _is_folder(self, path: str) -> bool:
        kind = self.run(["sh", "-c", _KIND, "sh", path], check=False)
        if kind.returncode == _ABSENT:
            raise MissingFileError(f"{path} does not exist on {self._where}")
        return kind.returncode == 0

    def _judge(self, way: tunnel.Tunnel, ended: Ended, path: str, *, pulling: bool) -> None:
        """Raise what explains a failed transfer best."""
        if ended.code in (0, rsync.VANISHED):
            return
        if way.error is not None:
            raise way.error
        if way.status == tunnel.IS_FOLDER:
            raise TransportError(f"{path} on {self._where} is a folder, and the source is a file")
        if way.status == tunnel.NO_PARENT:
            raise faults.unwritable(path, way.words, where=self._where)
        raise rsync.failure(ended.code, way.words + ended.stderr, pulling=pulling, where=self._where)
