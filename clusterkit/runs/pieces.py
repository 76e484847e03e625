"""Reads parts of many files on a cluster in one round trip, by offsets that survive a dropped connection."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from clusterkit.errors import TransportError, last_words
from clusterkit.transport.base import Transport
from clusterkit.transport.faults import LostError

RELOGINS = 8
"""Maximum number of consecutive connections lost without delivering a byte."""
_WINDOW = 8 << 20
"""Bytes at the end of a file that are searched for its last lines."""

# $1: a word that no file contains. $2: number of lines of standard input, one a file: offset (`-`: where its
# last lines begin), number of last lines (`-`: all), most bytes (`-`: all), path. A line with $1, the file's
# number and its offset precedes each file.
_PIECES = rf"""
number=0
head -n "$2" | while IFS=' ' read -r offset lines most file; do
  size=0
  test ! -f "$file" || size=$(($(wc -c <"$file")))
  if test "$offset" = - && test "$lines" != -; then
    window={_WINDOW >> 3}
    while :; do
      test "$window" -lt "$size" || window=$size
      # a log may have no line ends: then its last bytes are shown
      last=$(($(tail -c +$((size - window + 1)) "$file" | head -c "$window" | tail -n "$lines" | wc -c)))
      if test "$last" -lt "$window" || test "$window" -ge "$size"; then break; fi
      test "$window" -lt {_WINDOW} || break
      window=$((window * 8))
    done
    offset=$((size - last))
  fi
  test "$offset" != - || offset=0
  printf '\n%s %s %s\n' "$1" "$number" "$offset"
  number=$((number + 1))
  test "$offset" -lt "$size" || continue
  if test "$most" = -; then tail -c "+$((offset + 1))" "$file"
  else tail -c "+$((offset + 1))" "$file" | head -c "$most"; fi
done
printf '\n%s end\n' "$1"
"""


@dataclass(frozen=True)
class Piece:
    """A part of a file on the cluster."""

    path: str
    offset: int | None = None
    """Its first byte; None means that of the last lines, or 0."""
    lines: int | None = None
    """Number of last lines; None means all."""
    most: int | None = None
    """Bytes that are read at most; None means all."""


class PieceBytes(NamedTuple):
    """Bytes of a piece, none if it begins."""

    number: int
    """Index of the piece."""
    offset: int
    """Offset of the byte behind them in the file."""
    data: bytes


def read_pieces(transport: Transport, pieces: Sequence[Piece]) -> Iterator[PieceBytes]:
    """Yields the bytes of many files in order, in one round trip; a file that does not exist is empty.

    After a lost connection it continues at the same offset.

    Raises:
        TransportError: the connection was lost and could not be replaced, or the answer was cut short.
    """
    at, left, losses = 0, list(pieces), 0
    while left:
        first = at
        try:
            for chunk in _pieces(transport, left):
                at = first + chunk.number
                sent = len(chunk.data)
                rest = left[chunk.number]
                most = None if rest.most is None else rest.most - sent
                left[chunk.number] = replace(rest, offset=chunk.offset, most=most)
                losses = 0 if sent else losses
                yield chunk._replace(number=at)
            return
        except LostError:
            losses += 1
            if losses > RELOGINS:
                raise
            left = left[at - first :]


def _pieces(transport: Transport, pieces: Sequence[Piece]) -> Iterator[PieceBytes]:
    words = ((piece.offset, piece.lines, piece.most) for piece in pieces)
    numbers = (" ".join("-" if word is None else str(word) for word in three) for three in words)
    asked = "".join(f"{three} {piece.path}\n" for three, piece in zip(numbers, pieces, strict=True))
    token = secrets.token_hex(16)
    mark, said, errors = f"\n{token} ".encode(), b"", bytearray()
    number = offset = -1
    argv = ["sh", "-c", _PIECES, "sh", token, str(len(pieces))]
    with transport.talk(argv, on_error=errors.extend) as talking:
        talking.send(asked.encode("utf-8", "surrogateescape"))
        for data in talking.output():
            said += data
            while True:
                text, found, rest = said.partition(mark)
                head, ended, behind = rest.partition(b"\n")
                if not found:  # the last bytes may be the beginning of a mark
                    text, said = said[: -len(mark)], said[-len(mark) :]
                if text and number >= 0:
                    offset += len(text)
                    yield PieceBytes(number, offset, text)
                if not found or not ended:
                    said = mark + rest if found else said
                    break
                if head == b"end":
                    return
                number, offset = map(int, head.split())
                said = behind
                yield PieceBytes(number, offset, b"")
    raise TransportError(
        f"{transport.where}: the files could not be read: {last_words(errors.decode(errors='replace'))}"
    )
