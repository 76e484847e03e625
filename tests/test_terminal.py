"""What a terminal is sent of foreign text."""

from __future__ import annotations

import io
import os
import pty
import random
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tqdm import tqdm

from clusterkit.terminal import TerminalFilter, plain_output, tamed
from tests.doubles.hostile_words import CONTROLS, controls_in

ROOT = Path(__file__).resolve().parent.parent


def filtered(*chunks: bytes) -> str:
    """What a terminal is sent of a program's output."""
    shown = TerminalFilter()
    return "".join([*(shown.feed(chunk) for chunk in chunks), shown.end()])


@pytest.mark.parametrize("text", CONTROLS)
def test_a_control_is_left_out_however_it_arrives(text: str) -> None:
    data = f"before {text}after\n".encode()
    for shown in (
        filtered(data),
        filtered(*(data[at : at + 1] for at in range(len(data)))),
        plain_output(data.decode()),
        tamed(data.decode()),
    ):
        assert shown.startswith("before ")
        assert shown.endswith("after\n")
        assert not controls_in(shown)


def test_colours_and_progress_bars_pass() -> None:
    for text in (
        "\x1b[32mgreen\x1b[0m \x1b[38;5;208mx\x1b[m \x1b[38:2::1:2:3my",
        "\r 10%\r 20%\tx\r\n",
        "12\b\b34\x1b[K\r\x1b[2K\n",
        "漢字 é 🤖 ━━━━ 100%\n",
    ):
        for size in (1, 2, 3, 1000):
            data = text.encode()
            shown = filtered(*(data[at : at + size] for at in range(0, len(data), size)))
            assert shown.removesuffix("\x1b[0m") == text.removesuffix("\x1b[0m")


def test_nested_bars_of_tqdm_pass() -> None:
    written = io.StringIO()
    for _ in tqdm(range(3), file=written, ncols=80, position=0, mininterval=0):
        for _ in tqdm(range(4), file=written, ncols=80, position=1, leave=False, mininterval=0):
            pass
    bars = written.getvalue()
    assert "\x1b[A" in bars
    assert filtered(bars.encode()).removesuffix("\x1b[0m") == bars.replace("\x1b[A", "\x1b[1A")


def test_moving_up_stays_within_the_output() -> None:
    assert filtered(b"a\n\x1b[A\n\n") == "a\n\x1b[1A\n\n\x1b[0m"
    assert filtered(b"\x1b[Aa\n\x1b[99Fb") == "a\n\x1b[1Fb\n\x1b[0m"
    assert filtered(b"a\nb\n\x1b[A\x1b[A\x1b[A") == "a\nb\n\x1b[1A\x1b[1A\n\n\x1b[0m"


def test_other_text_between_cannot_be_overwritten() -> None:
    shown = TerminalFilter()
    shown.feed(b"1\n2\n3\n")
    shown.end()
    assert shown.feed(b"\x1b[2A") == ""


def test_a_string_without_an_end_hides_nothing_for_long() -> None:
    for begin in ("\x1b]0;", "\x1bP", "\x1b_", "\x1b^", "\x1bX"):
        assert "the loss" in filtered(f"{begin}title\nthe loss".encode())
        assert "the loss" in filtered(f"{begin}{'x' * 5000} the loss".encode())
        shown = TerminalFilter()
        assert len(shown.feed(f"{begin}{'x' * 5000}".encode()) + shown.feed(b"y" * 5000)) > 9000
        assert not controls_in(filtered(f"{begin}{'x' * 9000}\x1b\\".encode()))


def test_bytes_that_are_no_text_are_marked() -> None:
    assert filtered(b"a\xffb\x9bc\xe6\xbc", b"\xa2d\xe6") == "a\ufffdb\ufffdc漢d\ufffd"


def test_any_bytes_are_harmless_and_their_cut_does_not_matter() -> None:
    some = random.Random(3)
    pieces = [
        *(text.encode() for text in CONTROLS),
        *(
            b"\x1b",
            b"[",
            b"]",
            b"\\",
            b"0;x",
            b"A",
            b"31m",
            b"\n",
            b"\r",
            b"\x07",
            "é漢".encode(),
            b"\x9b",
            b"P",
        ),
    ]
    for _ in range(3000):
        data = b"".join(some.choices(pieces, k=12))
        whole = filtered(data)
        cuts = sorted(some.choices(range(len(data) + 1), k=3))
        assert filtered(*(data[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True))) == whole
        assert not controls_in(re.sub(r"\x1b\[\d+[AF]", "", whole)), data


_ALL_WAYS = r"""
import logging, sys, typer, warnings
from clusterkit.cli.streams import LogPrinter, prepare
prepare()
import click
from rich.text import Text
from clusterkit import asking, interruption
from clusterkit.cli.ui.console import err, note, out, say, show_error, warn
from clusterkit.errors import RunError
from clusterkit.transport.questions import Question, ask_on_terminal
from tests.doubles.hostile_words import CONTROLS
evil = "[link=http://evil]x[/] " + "|".join(CONTROLS) + " end"
print(evil), print(evil, file=sys.stderr), sys.stdout.write(evil), sys.stderr.write(evil)
sys.stdout.writelines([evil])
typer.echo(evil), typer.echo(evil, err=True), click.secho(evil, fg="red")
logging.getLogger("clusterkit").warning("%s", evil), warnings.warn(evil)
out.print(evil), err.print(Text(evil, style="red")), note(evil), say(evil, head=evil), warn(evil, evil)
show_error(RunError(evil, hint=evil))
with err.status(evil): print(evil)
asking.ask(evil), asking.ask_hidden(evil), interruption._write(evil)
ask_on_terminal(Question(evil, evil, evil, ()))
printer = LogPrinter()
printer.print(evil.encode(errors="surrogatepass")), printer.end()
"""


def test_no_way_to_print_passes_a_control_to_a_terminal() -> None:
    terminal, its_end = pty.openpty()
    code = f"import os; os.login_tty({its_end}); exec({_ALL_WAYS!r})"
    environment = os.environ | {"TERM": "xterm-256color"}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, pass_fds=[its_end])
    os.close(its_end)
    seen, deadline = b"", time.monotonic() + 60
    while process.poll() is None or select.select([terminal], [], [], 0)[0]:
        assert time.monotonic() < deadline, seen
        if not select.select([terminal], [], [], 0.3)[0]:
            os.write(terminal, b"an answer\n")
            continue
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # the other side has closed
            break
    os.close(terminal)
    text = seen.decode("utf-8", "replace")
    assert process.wait() == 0, text
    assert text.count(" end") >= 20
    assert not controls_in(text)
    assert "http://evil" in text  # as text: markup would have made it a link


def test_nothing_else_writes_to_the_terminal() -> None:
    allowed = {
        "cli/streams.py",  # what is filtered
        "images/chunks.py",  # a program on the cluster, whose output is read
        "results/listing.py",  # the same
        "interruption.py",  # tamed
        "cli/ssh.py",  # a session of one's own there, as with ssh
        "transport/terminal.py",
        "transport/tunnel.py",
    }
    direct = re.compile(
        r"std(?:out|err)\.buffer|os\.write\((?:1|2|target|sink),|/dev/tty|sys\.__std|open\(1|open\(2"
    )
    found = {
        path.relative_to(ROOT / "clusterkit").as_posix()
        for path in (ROOT / "clusterkit").rglob("*.py")
        if path.parent.name != "node" and direct.search(path.read_text())
    }
    assert found <= allowed
