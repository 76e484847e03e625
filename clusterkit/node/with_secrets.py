"""Starts a program with a run's secrets in its environment: `python with_secrets.py RUN_DIR PROGRAM...`.

The values lie encrypted beside it; their key is in the request of the run's submission (docs/secrets.md). The
decrypted values exist only in the memory of this process and of the program. The run's own program writes
through this process, which replaces each value with `***`; other programs, such as a shell, do not.

It is copied to the cluster with the values and run by the image's interpreter, so it uses only the standard
library of Python 3.8 and nothing of clusterkit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import signal
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from re import Pattern
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

MASK = b"***"
_SHORTEST = 8
"""Bytes; a shorter line of a value is masked only where no letter or digit adjoins."""
_SHORTEST_LINE = 4
"""Bytes; a line that is shorter still, such as the last brace of a JSON key file, is not masked by itself."""
_WORD = re.compile(rb"[A-Za-z0-9_\x80-\xff]")
_KEPT_IN_URLS = "!$&'()*+,;=:@/?#[]"
_DRAIN_SECONDS = 2.0
"""How long the output of processes that outlive the program is still copied."""
_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
)


def crypt(key: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt with the key stream of SHAKE256 (FIPS 202); a key must encrypt only once."""
    stream = hashlib.shake_256(key).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream))


def fail(message: str) -> NoReturn:
    """Print one line for the log and exit."""
    print("[clusterkit] " + message, file=sys.stderr, flush=True)
    raise SystemExit(2)


def read(run_dir: str) -> dict[str, Any]:
    """What is encrypted: `environment`, values by name, and `webhook`. Exits with 2 if it cannot be read."""
    number = os.environ.get("CLUSTERKIT_SUBMISSION", "0")
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        with open(os.path.join(run_dir, "submissions", number, "request.json"), encoding="utf-8") as file:
            key = bytes.fromhex(json.load(file)["seal"])
        with open(os.path.join(folder, "values"), "rb") as sealed:
            found: dict[str, Any] = json.loads(crypt(key, sealed.read()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"its secrets cannot be read: {type(error).__name__}")  # the message could quote them
    return found


def forms(value: bytes) -> set[bytes]:
    """A value as programs and shells write it: as it is, quoted, escaped, in a URL, in other encodings."""
    text, found = value.decode("utf-8", "surrogateescape"), {value}
    normal = {unicodedata.normalize(form, text) for form in ("NFC", "NFD")}
    for same in {text, *normal, value.decode("ascii", "surrogateescape")}:
        raw = same.encode("utf-8", "surrogateescape")
        found.add(raw)
        if not raw.isalnum():
            found.update(each.encode("utf-8", "surrogateescape") for each in _in_text(same))
            found.update(each.encode() for each in _in_url(raw))
            found.update(_in_other_encodings(same, raw))
    return found


def _in_text(text: str) -> Iterator[str]:
    """A text within JSON, Python, a shell, HTML, CSV and YAML; also JSON within JSON or Python."""
    lower = json.dumps(text)[1:-1]
    upper = re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match.group()[2:].upper(), lower)
    escaped = [text, json.dumps(text, ensure_ascii=False)[1:-1], lower, upper]
    escaped += [re.sub("[<>&]", lambda match: f"\\u{ord(match.group()):04x}", each) for each in escaped]
    escaped += [each.replace("/", "\\/") for each in escaped]
    for each in escaped:
        yield from (
            each,
            repr(each)[1:-1],
            json.dumps(each)[1:-1],
            json.dumps(each, ensure_ascii=False)[1:-1],
        )
    quoted = text.replace("'", "'\"'\"'")
    yield from (quoted, quoted.replace("'", "'\"'\"'"), text.replace("'", "'\\''"), text.replace("'", "\\'"))
    yield from (re.sub(r"([\"$`\\])", r"\\\1", text), re.sub(r"([^\w@%+=:,./-])", r"\\\1", text))
    yield from (ascii(text)[1:-1], text.replace('"', '""'), text.replace("'", "''"))
    within = (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    )  # Debian's smallest Python has no html
    for page in (within, within.replace('"', "&quot;").replace("'", "&#x27;")):
        yield from (page, page.replace("&#x27;", "&#39;"), page.replace("&#x27;", "'"))


def _in_url(raw: bytes) -> Iterator[str]:
    for quoted in (quote_plus(raw), *(quote(raw, safe=kept) for kept in ("", "/", "!'()*", _KEPT_IN_URLS))):
        yield from (
            quoted,
            re.sub("%..", lambda match: match.group().lower(), quoted),
            quote(quoted, safe=""),
        )


def _in_other_encodings(text: str, raw: bytes) -> Iterator[bytes]:
    """A text for a terminal, a file or a reader with another encoding than UTF-8."""
    yield repr(raw)[2:-1].encode()
    letters = (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in raw.replace(b"\\", b"\\\\"))
    octal = "".join(letters).encode()
    yield from (octal.replace(b"'", b"\\'"), octal.replace(b'"', b'\\"'))
    yield raw.decode("latin-1").encode()
    yield text.encode("ascii", "backslashreplace")
    yield text.encode("ascii", "xmlcharrefreplace")
    with suppress(UnicodeEncodeError):
        yield text.encode("latin-1")
    if sum(byte < 128 for byte in raw) >= _SHORTEST:  # else it would be little but question marks
        yield text.encode("ascii", "replace")
        yield raw.decode("utf-8", "replace").encode()


class Texts:
    """Some texts that are looked for at once, each by its first bytes."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        ordered = sorted(set(texts), key=len, reverse=True)
        self.key = min(_SHORTEST, len(ordered[-1]))
        """How many."""
        self._known: dict[bytes, list[bytes]] = {}
        for text in ordered:
            self._known.setdefault(text[: self.key], []).append(text)
        self.begins = {key[:length] for key in self._known for length in range(1, self.key)}
        """What less than those may be."""
        # One search for each first byte: such a regular expression skips as fast as `bytes.find`.
        self._searches = [re.compile(re.escape(first) + rest) for first, rest in _branches(self._known)]

    def beginnings(self, within: bytes) -> list[tuple[int, list[bytes]]]:
        """Where texts may begin, in order, and which, the longest first."""
        places = sorted(at for search in self._searches for at in _found(search, within))
        return [(at, self._known[within[at : at + self.key]]) for at in places]

    def any(self, within: bytes) -> bytes | None:
        """One of the texts that is in another; None if none is."""
        for at, known in self.beginnings(within):
            for text in known:
                if within.startswith(text, at):
                    return text
        return None


def _branches(texts: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yields the first bytes of some texts, each with a regular expression of what may follow it."""
    after: dict[bytes, set[bytes]] = {}
    for text in texts:
        after.setdefault(text[:1], set()).add(text[1:])
    for first, rests in after.items():
        inner = [re.escape(byte) + rest for byte, rest in _branches(rests - {b""})]
        yield first, b"(?:" + b"|".join(inner) + b")" if len(inner) > 1 else b"".join(inner)


def _found(search: Pattern[bytes], text: bytes) -> Iterator[int]:
    match = search.search(text)
    while match is not None:
        yield match.start()
        match = search.search(text, match.start() + 1)


class Masker:
    """Replaces values in a stream of bytes, also where they overlap or are split between two chunks.

    It keeps back less than the longest form of a value.

    Args:
        values: what to replace, in all of their `forms`; of a value with several lines, each line too.
    """

    def __init__(self, values: list[bytes]) -> None:
        self._words: set[bytes] = set()
        whole: set[bytes] = set()
        for value in values:
            whole |= forms(value)
            for line in _lines(value):
                if len(line) >= _SHORTEST:
                    whole |= forms(line)
                elif len(line) >= _SHORTEST_LINE:
                    self._words.add(line)
        self._words -= whole
        self._texts = Texts(whole | self._words)
        self._held = self._before = b""
        self._covered = 0
        """Bytes at the beginning of `_held` whose mask is written already."""

    def add(self, chunk: bytes) -> bytes:
        """What can be written now; an end that may be the beginning of a value is kept back."""
        return self._mask(self._held + chunk, last=False)

    def end(self) -> bytes:
        """What was kept back."""
        return self._mask(self._held, last=True)

    def _mask(self, text: bytes, last: bool) -> bytes:
        places, kept = self._places(text, last)
        done: list[bytes] = []
        at = self._covered
        for start, end in places:
            if start >= at:
                done += [text[at:start], MASK]
            at = max(at, end)
        if at < kept:
            done.append(text[at:kept])
        if kept:
            self._before = text[kept - 1 : kept]
        self._held, self._covered = text[kept:], max(0, at - kept)
        return b"".join(done)

    def _places(self, text: bytes, last: bool) -> tuple[list[tuple[int, int]], int]:
        """Where values begin and end, in order; and where the part begins that more text may still change."""
        places: list[tuple[int, int]] = []
        kept = len(text)
        if not last:
            short = range(max(0, kept - self._texts.key + 1), kept)
            kept = next((at for at in short if text[at:] in self._texts.begins), kept)
        for start, known in self._texts.beginnings(text):
            if start >= kept:
                break
            for value in known:
                end, is_word = start + len(value), value in self._words
                if not last and end + is_word > len(text) and value.startswith(text[start:]):
                    return places, start
                if text.startswith(value, start) and not (is_word and self._is_part(text, start, end)):
                    places.append((start, end))
                    break
        return places, kept

    def _is_part(self, text: bytes, start: int, end: int) -> bool:
        """Whether letters or digits adjoin."""
        before = text[start - 1 : start] if start else self._before
        return _WORD.match(before) is not None or _WORD.match(text[end : end + 1]) is not None


def _lines(value: bytes) -> set[bytes]:
    """The lines of a value, also of a text within JSON, without their indentation."""
    texts = (value, value.replace(b"\\n", b"\n"))
    return {line.strip() for text in texts for line in text.splitlines()} - {value}


def write(target: int, data: bytes) -> None:
    """Write all; on a full disk the data is lost, but the program goes on."""
    while data:
        try:
            data = data[os.write(target, data) :]
        except OSError:
            return


def start(argv: list[str], environment: dict[str, str], ends: list[int], mask: set[int]) -> int:
    """Start the program with its output in two pipes; return its process number."""
    child = os.fork()
    if child:
        return child
    try:
        for target, end in zip((1, 2), ends):
            os.dup2(end, target)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"[clusterkit] cannot start {argv[0]!r}: {error}\n".encode())
    os._exit(126)


def copy(child: int, pipes: list[int], masker_of: dict[int, Masker], woken: int) -> int:
    """Copy the program's output until it has ended; return its status as `os.waitpid` tells it."""
    status, until, targets = None, 0.0, dict(zip(pipes, (1, 2)))
    while targets or status is None:
        left = None if status is None else max(0.0, until - time.monotonic())
        ready = select.select([*targets, woken], [], [], left)[0]
        for pipe in ready:
            chunk = os.read(pipe, 1 << 16)
            if pipe != woken:
                write(targets[pipe], masker_of[pipe].add(chunk) if chunk else masker_of[pipe].end())
                if not chunk:
                    del targets[pipe]
        if status is None:
            ended, found = os.waitpid(child, os.WNOHANG)
            if ended:
                status, until = found, time.monotonic() + _DRAIN_SECONDS
        elif time.monotonic() >= until:
            break
    for pipe, target in targets.items():
        write(target, masker_of[pipe].end())
    assert status is not None
    return status


def leave(status: int) -> NoReturn:
    """End with the program's exit code; after a signal with the one that a shell would show."""
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def main(arguments: list[str]) -> NoReturn:
    """Become the program, or its parent where its output is masked."""
    if len(arguments) < 2:
        fail("usage: with_secrets.py RUN_DIR PROGRAM [ARGUMENT...]")
    run_dir, *argv = arguments
    values: dict[str, str] = read(run_dir)["environment"]
    environment = {**os.environ, **values}
    if argv[-2:] != [os.path.join(run_dir, "launch.py"), run_dir]:
        os.execvpe(argv[0], argv, environment)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    pipes, ends = zip(os.pipe(), os.pipe())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_FORWARDED, signal.SIGCHLD))
    child = start(argv, environment, list(ends), before)
    for end in ends:
        os.close(end)
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    encoded = [value.encode("utf-8", "surrogateescape") for value in values.values()]
    leave(copy(child, list(pipes), {pipe: Masker(encoded) for pipe in pipes}, woken))


if __name__ == "__main__":
    main(sys.argv[1:])
