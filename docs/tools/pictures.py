"""Makes docs/pictures/*.svg: what real commands print on a terminal, in a scratch project.

    python -m docs.tools.pictures

The runs are those of a toy program on this machine, and its numbers are made up: the pictures show the tool,
not results. A picture that shows the same words stays as it is, whatever its numbers. If one is new, the exit
code is 1, so that `make docs` fails until somebody has looked at it.
"""

from __future__ import annotations

import fcntl
import html
import io
import json
import os
import platform
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from docs.tools import scratch

FOLDER = Path(__file__).resolve().parent.parent / "pictures"
LARGEST = 60_000
"""Bytes of a picture."""
_VARIES = re.compile(
    r"\d{8}-\d{6}-[0-9a-f]{4}|[\d.,]+ ?(?:[kM]\b|[KMGT]iB|[dhms]\b|%)?|[^\x00-\x7f]+|of 2M|\s+"
)
"""What differs from one making to the next: ids, numbers, curves and bars, and how wide columns are."""
_CHECK = re.compile(r"^ *(?:ok|warn|FAIL|skip) +([a-z-]+).*|.*")
"""A line of `doctor`, whose outcome depends on the machine."""
_ERASED = re.compile(r"[^\n]*(?:\n(?:\x1b\[\?25h)?\r\x1b\[1A)?\x1b\[2K")
"""A line of a spinner, up to where it is erased."""
_FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 16px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def _colours(text: str) -> list[tuple[int, int, int]]:
    return [(int(one[:2], 16), int(one[2:4], 16), int(one[4:], 16)) for one in text.split()]


_THEME = TerminalTheme(
    *_colours("1b1f24 d0d7de"),
    _colours("484f58 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4"),
    _colours("6e7681 ffa198 56d364 e3b341 79c0ff d2a8ff 56d4dd f0f6fc"),
)


class Terminal:
    """A terminal of so many columns in the scratch project, that keeps what was seen on it."""

    def __init__(self, project: Path, width: int = 100) -> None:
        self.project, self.width = project, width
        self.seen = Text()

    def type(self, line: str, **variables: str) -> None:
        """Run a command, and keep the line and what it prints."""
        self.seen.append("$ ", style="bright_black")
        self.seen.append(f"{line}\n", style="bold")
        printed = self._neutral(run(self.project, line.split()[1:], variables, self.width))
        self.seen.append_text(Text.from_ansi(printed.rstrip()))
        self.seen.append("\n")

    def _neutral(self, printed: str) -> str:
        """Without the names of this machine, and what was erased again."""
        printed = _ERASED.sub("", printed)
        own = {str(self.project): f"~/{self.project.name}", sys.executable: "~/.venv/bin/python"}
        for path, name in own.items():
            printed = printed.replace(path, name)
        return re.sub(rf"\b{re.escape(platform.node())}\b", "laptop", printed)

    def save(self, name: str, title: str) -> Path:
        """Write the picture."""
        console = Console(
            record=True, width=self.width, file=io.StringIO(), force_terminal=True, highlight=False
        )
        console.print(self.seen, end="")
        self.seen = Text()
        picture = console.export_svg(
            title=title, theme=_THEME, code_format=_FRAME, unique_id=name, font_aspect_ratio=0.602
        )
        picture = "\n".join(line.strip() for line in picture.splitlines()) + "\n"
        assert len(picture.encode()) < LARGEST, name
        file = FOLDER / f"{name}.svg"
        file.write_text(picture, encoding="utf-8")
        return file


def run(project: Path, words: Sequence[str], variables: Mapping[str, str], width: int = 100) -> str:
    """What a command prints on a terminal of its own, both streams in their order."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(project),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        **variables,
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "clusterkit", *words],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        printed += part
    os.close(ours)
    child.wait()
    return printed.decode().replace("\r\n", "\n")


def shown(picture: str) -> list[str]:
    """Returns the words of a picture, line by line, without what varies."""
    rows: dict[str, str] = {}
    for y, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        rows[y] = rows.get(y, "") + html.unescape(text).replace("\xa0", " ")
    lines = [rows[y] for y in sorted(rows, key=float)]
    if any("clusterkit doctor" in line for line in lines):
        lines = [_CHECK.sub(r"\1", line) for line in lines]
    return [words for line in lines if (words := _VARIES.sub(" ", line).strip())]


def wait_for_progress(project: Path) -> None:
    """Waits until two of three runs have come some way."""
    while True:
        runs = json.loads(run(project, ["status", "--json"], {}))["runs"]
        if [one["state"] for one in runs].count("RUNNING") == 2 and all(
            (one["progress"] or 0) > 0.3 for one in runs if one["state"] == "RUNNING"
        ):
            return
        assert not any(one["final"] for one in runs), "the toy is too quick for this machine"
        time.sleep(0.3)


def make(project: Path) -> list[Path]:
    """All pictures."""
    scratch.make(project)
    FOLDER.mkdir(exist_ok=True)
    terminal = Terminal(project)
    made = []
    run(project, ["deploy"], {})
    terminal.type("clusterkit submit --name toy --seeds 1..3 --max-parallel 2 -- --seed {seed}", PAUSE="0.5")
    wait_for_progress(project)
    terminal.type("clusterkit status --expand")
    made.append(terminal.save("status", "three runs, submitted together"))
    run(project, ["sync-results", "--watch"], {})
    run(project, ["submit", "--name", "mine", "--", "--broken"], {})
    run(project, ["logs", "last", "--follow"], {})
    terminal.type("clusterkit why last")
    made.append(terminal.save("why", "why a run failed"))
    run(project, ["submit", "--name", "toy", "--seed", "7"], {})
    run(project, ["logs", "last", "--follow"], {})
    wide = Terminal(project, 140)
    wide.type("clusterkit curves last --once")
    made.append(wide.save("curves", "the curves of a toy"))
    terminal.type("clusterkit doctor")
    made.append(terminal.save("doctor", "is everything ready?"))
    return made


def main() -> int:
    """Makes them; returns 1 if one shows something else than before."""
    before = {file: file.read_text() for file in FOLDER.glob("*.svg")}
    differ = []
    with tempfile.TemporaryDirectory() as folder:
        for picture in make(Path(folder) / "reacher"):
            old = before.get(picture, "")
            if shown(old) == shown(picture.read_text()):
                picture.write_text(old)
            else:
                differ.append(picture)
    for picture in differ:
        sys.stderr.write(f"{picture} shows something else than before: look at it, then commit it\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
