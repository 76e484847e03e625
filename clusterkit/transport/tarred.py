"""A far machine's side of a transfer without rsync, by POSIX sh and the GNU tools that every cluster has.

Whole files travel in one stream of tar, and the rest of a file whose beginning is there already by a command
of its own. All else is a few commands, however many files there are.
"""

from __future__ import annotations

import errno
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from clusterkit.errors import TransportError, last_words
from clusterkit.transport import faults
from clusterkit.transport.base import Completed, Transport
from clusterkit.transport.copy_plan import FILE, FOLDER, LINK, CopyEntry, with_parents
from clusterkit.transport.session import Session
from clusterkit.transport.sides import Arriving, FileChange, Reading

_BLOCK = tarfile.BLOCKSIZE
_LONGEST_NAME = 1 << 16
_MOST_UNREAD = 64 << 20
"""Bytes that a file has grown by since it was listed, and that are passed over."""
_ENCODING = ("utf-8", "surrogateescape")


class There:
    """The files of the machine at the other end of a connection. Faults are TransportErrors too."""

    def __init__(
        self,
        transport: Transport,
        start: Callable[[Sequence[str]], AbstractContextManager[Session]],
        no_tools: TransportError,
    ) -> None:
        """Prepare; no I/O.

        Args:
            transport: runs commands that answer.
            start: runs commands whose input or output is a stream.
            no_tools: raised where the tools are missing there.
        """
        self.where = transport.where
        self._transport, self._start, self._no_tools = transport, start, no_tools

    def listing(self, root: str, *, only: Sequence[str] | None = None) -> dict[str, CopyEntry]:
        """See `ThisMachine.listing`."""
        if only is None:
            entries = self._find(["."], _BELOW, root=root)
            entries.pop("", None)
            return entries
        parents = sorted(set(with_parents(only)) - set(only))
        return self._find(parents, _ITSELF, root=root) | self._find(only, _BELOW, root=root)

    def entry(self, path: str) -> CopyEntry | None:
        """See `ThisMachine.entry`."""
        name = path.strip("/")
        return self._find([name or "."], _ITSELF, root="/").get(name)

    def digests(self, root: str, names: Sequence[str]) -> list[str]:
        """See `ThisMachine.digests`."""
        if not names:
            return []
        answer = self._run('cd -- "$1" && exec xargs -0 sha256sum --', root, words=map(_inside, names))
        # sha256sum puts a backslash before a line whose name it has escaped
        digests = [line.lstrip("\\")[:64] for line in answer.text.split("\n")[:-1]]
        if len(digests) != len(names):
            raise TransportError(
                f"{self.where}: sha256sum gave {len(digests)} answers for {len(names)} files"
            )
        return digests

    def prefix_digest(self, path: str, size: int) -> str:
        """See `ThisMachine.prefix_digest`."""
        return self._run('head -c "$2" < "$1" | sha256sum', path, str(size)).text[:64]

    def read(self, root: str, wanted: Mapping[str, tuple[int, int]]) -> Reading:
        """See `ThisMachine.read`; of a file no more than it had when it was listed."""
        for name, (start, end) in wanted.items():
            if start:
                words = (f"{root}/{name}", str(start + 1), str(end - start))
                yield name, self._transport.stream(["sh", "-c", _TAIL, "sh", *words])
        sizes = {name: end for name, (start, end) in wanted.items() if not start}
        while sizes:
            with self._start(["sh", "-c", _PACK, "sh", root]) as session:
                session.feed(_joined(map(_inside, sizes)))
                archive = _Archive(session.output())
                while (member := archive.member()) is not None:
                    if member.name not in sizes:
                        raise TransportError(f"{self.where}: tar printed a file that was not asked for")
                    size, left = sizes.pop(member.name), member.size
                    if member.type == tarfile.REGTYPE:
                        left -= min(size, left)
                        yield member.name, archive.some(member.size - left)
                    if left > _MOST_UNREAD:
                        break  # it grows faster than it is worth waiting for: another stream has the others
                    archive.skip(left + -member.size % _BLOCK)
                else:
                    sizes.clear()
                    self._finish(session, but=_CHANGED)
                    if not archive.ended:
                        raise TransportError(
                            f"{self.where}: tar broke off before its archive ended",
                            hint="run the same command again: what has arrived is kept",
                        )

    def write(self, root: str, files: Iterable[Arriving]) -> None:
        """See `ThisMachine.write`."""
        with self._start(["sh", "-c", _UNPACK, "sh", root]) as session:
            try:
                for path, start, entry, pieces in files:
                    if start:
                        self._append(f"{root}/{path}", start, entry, pieces)
                        continue
                    member = tarfile.TarInfo(path)
                    member.size, member.mode, member.mtime = entry.size, entry.mode, entry.second
                    session.send(member.tobuf(tarfile.GNU_FORMAT, *_ENCODING))
                    left = entry.size
                    for piece in pieces:
                        session.send(piece)
                        left -= len(piece)
                    if left:
                        raise TransportError(
                            f"{path} became shorter while it was copied", hint="run the same command again"
                        )
                    session.send(bytes(-entry.size % _BLOCK))
                session.send(bytes(2 * _BLOCK))
            except OSError:  # tar has ended, and says why
                pass
            self._finish(session)

    def change(self, root: str, changes: Sequence[FileChange]) -> None:
        """See `ThisMachine.change`."""
        words = (
            word
            for what, name, other, mode, mtime_ns in changes
            for word in (what, name, other, f"{mode:o}", f"{mtime_ns // 1_000_000_000}")
        )
        answer = self._run(_CHANGE, root, words=words, check=False)
        if answer.returncode != 0:
            raise _failed(answer.error_text)

    def _run(self, script: str, *arguments: str, words: Iterable[str] = (), check: bool = True) -> Completed:
        """Runs a script whose standard input is words that end with NUL."""
        answer = self._transport.run(
            ["env", "LC_ALL=C", "sh", "-c", script, "sh", *arguments],
            stdin=_joined(words),
            timeout=None,
            check=False,
        )
        if answer.returncode in (126, faults.NOT_FOUND):
            raise self._no_tools
        if check and answer.returncode != 0:
            raise faults.command_failed(answer, where=self.where)
        return answer

    def _find(self, names: Sequence[str], what: str, *, root: str) -> dict[str, CopyEntry]:
        if not names:
            return {}
        words = ("." if name == "." else _inside(name) for name in names)
        answer = self._run(_FIND, root, what, words=words, check=False)
        self._complain(answer.error_text, but=_ABSENT)
        fields = answer.stdout.decode(*_ENCODING).split("\0")
        entries = {}
        for kind, *numbers, target, path in zip(*[iter(fields)] * 6, strict=False):
            name = path.removeprefix(".").removeprefix("/")
            read = _NUMBERS.fullmatch(" ".join(numbers))
            if read is None or not {"", ".", ".."}.isdisjoint(name.split("/") if name else ()):
                quoted = last_words(" ".join([*numbers, path]))
                raise TransportError(f"{self.where}: what find printed is no listing: {quoted}")
            entries[name] = CopyEntry(
                kind if kind in (FILE, FOLDER, LINK) else "?",
                int(read["mode"], 8),
                int(read["size"]) if kind == FILE else 0,
                int(read["seconds"]) * 1_000_000_000 + int((read["part"] + "0" * 9)[:9]),
                target,
            )
        return entries

    def _complain(self, words: str, *, but: re.Pattern[str]) -> None:
        """Raises TransportError with the first line of a tool's errors that is serious."""
        for line in words.splitlines():
            if not but.search(line):
                cure = self._no_tools.hint if _OTHER_TOOLS.match(line) else None
                raise TransportError(f"{self.where}: {line}", hint=cure)

    def _finish(self, session: Session, *, but: re.Pattern[str] | None = None) -> None:
        """Waits for the end of a command, some of whose errors may be harmless."""
        session.end_input()
        for _ in session.output():
            pass
        status, words = session.wait(), session.error_bytes().decode(*_ENCODING)
        if status in (126, faults.NOT_FOUND):
            raise self._no_tools
        if but is not None:
            self._complain(words, but=but)
        elif status != 0:
            raise _failed(words)

    def _append(self, path: str, start: int, entry: CopyEntry, pieces: Iterator[bytes]) -> None:
        words = (path, str(start), f"{entry.mode:o}", str(entry.second))
        with self._start(["sh", "-c", _APPEND, "sh", *words]) as session:
            try:
                for piece in pieces:
                    session.send(piece)
            except OSError:  # it has ended, and says why
                pass
            self._finish(session)


class _Archive:
    """An archive that comes in pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""
        self.ended = False
        """Whether its end has come, and nothing is missing."""

    def member(self) -> tarfile.TarInfo | None:
        """Returns what comes next; None at the end, also where that is too early.

        Raises:
            TransportError: it is no archive.
        """
        name = None
        while len(header := b"".join(self.some(_BLOCK))) == _BLOCK:
            if not header.strip(b"\0"):
                self.ended = True
                break
            try:
                member = tarfile.TarInfo.frombuf(header, *_ENCODING)
            except tarfile.HeaderError as error:
                raise TransportError(f"what tar printed is no archive: {error}") from None
            if member.size < 0:
                raise TransportError("what tar printed is no archive: negative size")
            if member.type != tarfile.GNUTYPE_LONGNAME or member.size > _LONGEST_NAME:
                member.name = (name or member.name).removeprefix("./")
                return member
            name = b"".join(self.some(member.size)).rstrip(b"\0").decode(*_ENCODING)
            self.skip(-member.size % _BLOCK)
        return None

    def some(self, size: int) -> Iterator[bytes]:
        """Yields so many bytes; fewer where the archive ends."""
        while size and (self._rest or (rest := next(self._pieces, b""))):
            self._rest = self._rest or rest
            data, self._rest = self._rest[:size], self._rest[size:]
            size -= len(data)
            yield data

    def skip(self, size: int) -> None:
        """Passes over so many bytes."""
        for _ in self.some(size):
            pass


def _inside(name: str) -> str:
    return f"./{name}"


def _joined(words: Iterable[str]) -> bytes:
    return b"".join(word.encode(*_ENCODING) + b"\0" for word in words)


def _failed(words: str) -> OSError:
    """Returns the error that a tool's words tell of."""
    lines = [line for line in words.splitlines() if not _CLOSING.search(line)]
    line = faults.telling("\n".join(lines)) or "no reason given"
    return OSError(errno.EIO, line + (" (is the disk or the quota full?)" if "Wrote only" in line else ""))


_NUMBERS = re.compile(
    r"(?P<mode>[0-7]{1,5}) (?P<size>[0-9]{1,18}) (?P<seconds>-?[0-9]{1,11})\.?(?P<part>[0-9]*)"
)
_ABSENT = re.compile(r"No such file or directory|Not a directory|File system loop detected")
_OTHER_TOOLS = re.compile(
    r"find: (?:unrecognized: |unknown predicate |-printf: unknown)|tar: (?:unrecognized option|Option -)"
)
"""What find and tar of BSD and BusyBox say of options of GNU's."""
_CLOSING = re.compile(r"^xargs: |Exiting with failure|not recoverable")
_CHANGED = re.compile(rf"{_ABSENT.pattern}|{_CLOSING.pattern}|changed as we read|before we read")
"""What tar says of files that change while it reads them, as they do below a live run. One that shrinks just
then is not among them: tar makes up for it with zeros."""

_FIND = 'cd -- "$1" 2>/dev/null || exit 0; exec xargs -0 sh -c "$2" sh'
_PRINT = r"-printf '%y\0%m\0%s\0%T@\0%l\0%p\0'"
_BELOW = f'exec find -P "$@" {_PRINT}'
_ITSELF = f'exec find -L "$@" -maxdepth 0 {_PRINT}'

_PACK = """
cd -- "$1" || exit
exec env LC_ALL=C tar -c -h -f - --format=gnu --hard-dereference --no-recursion --null -T -
"""
_UNPACK = 'umask 077; cd -- "$1" && exec env LC_ALL=C tar -x -p -o -f -'
_TAIL = 'exec <"$1" && tail -c "+$2" | head -c "$3"'
_APPEND = """
LC_ALL=C; export LC_ALL
chmod u+rw -- "$1" && truncate -s "$2" -- "$1" && cat >>"$1" && chmod "$3" -- "$1" && touch -d "@$4" -- "$1"
"""

# $1 is the folder. Standard input has the five fields of each change; xargs ends when its command says 255.
# It would also pass fewer words, and so a part of a change, where they are longer than 128 KiB: 50 words with
# the longest paths are not, and -x fails rather.
_CHANGE = """
umask 077
mkdir -p -- "$1" && cd -- "$1" && exec xargs -0 -x -n 50 sh -c '
while test "$#" -gt 0; do
  case $1 in
    remove) rm -f -- "./$2" ;;
    "remove folder") rmdir -- "./$2" 2>/dev/null || : ;;
    folder) mkdir -p -- "./$2" ;;
    link) ln -s -- "$3" "./$2" ;;
    "hard link") ln -- "$3" "./$2" ;;
    move) mv -f -T -- "./$2" "./$3" ;;
    settle) chmod "$4" "./$2" && touch -d "@$5" "./$2" ;;
  esac || exit 255
  shift 5
done' sh
"""
