"""What is printed leaves the terminal as it is."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

_NAMES = r"""
from clusterkit.cli.ui.console import note, out, say, warn
name = "a:smile:b[x]"
out.print(name, markup=False)
say(name, head=name)
note(name)
warn(name, name)
"""


def test_a_name_is_printed_to_the_letter() -> None:
    done = subprocess.run([sys.executable, "-c", _NAMES], capture_output=True, text=True, check=True)
    name = "a:smile:b[x]"
    assert done.stdout == f"{name}\n{name}{name}\n"
    assert done.stderr == f"{name}\n{name}{name}\n"


_PRINT = r"""
from rich.table import Table
from rich.text import Text
from clusterkit.errors import RunError
from clusterkit.cli.ui.console import note, out, show_error
evil = "a\x1b]0;title\x07\x1b[2J\rb\x9bc\ud800d"
table = Table("run")
table.add_row(Text(evil))
out.print(table)
out.print(evil, markup=False)
out.print("[bold]two\nlines[/]")
note(evil)
show_error(RunError(evil, hint=evil))
"""


def test_control_characters_of_others_do_nothing() -> None:
    for colours in ({}, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}):
        env = {"PYTHONIOENCODING": "utf-8", **colours}
        done = subprocess.run(
            [sys.executable, "-c", _PRINT], capture_output=True, text=True, env=env, check=True
        )
        shown = done.stdout + done.stderr
        assert "a?]0;title?[2Jb?c?d" in shown
        assert "\x1b]" not in shown
        assert "\x1b[2J" not in shown
        assert "\r" not in shown
        assert "two\nlines" in done.stdout or "two\x1b[0m\n\x1b[1mlines" in done.stdout


_WRAP = r"""
from clusterkit.errors import RunError
from clusterkit.cli.ui.console import note, show_error, warn
note("job scripts of the group and of its first run; " + "`clusterkit logs a-run-of-mine -f` shows it")
note("next: clusterkit status, clusterkit logs a-run-of-mine -f")
note("at  most")
warn("warning: ", "the machine has fewer processors than that")
show_error(RunError("the cause\nin two lines, of which this is long", hint="`a b c d e f g h i j k` does it"))
"""


def test_a_terminal_gets_lines_broken_between_words_and_never_in_a_command() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    with subprocess.Popen([sys.executable, "-c", _WRAP], stdout=theirs, stderr=theirs, env={"TERM": "dumb"}):
        pass
    os.close(theirs)
    assert os.read(ours, 65536).decode().splitlines() == [
        "job scripts of the group and",
        "of its first run;",
        "`clusterkit logs a-run-of-mine -f`",
        "shows it",
        "next: clusterkit status, clusterkit logs a-run-of-mine -f",
        "at  most",
        "warning: the machine has fewer",
        "processors than that",
        "error: the cause",
        "       in two lines, of which",
        "       this is long",
        "next:  `a b c d e f g h i j k`",
        "       does it",
    ]
    os.close(ours)
