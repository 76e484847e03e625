"""Ctrl-D and Ctrl-C where a command asks something, and where it shows something that goes on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.cli import top
from clusterkit.cli.ui import curves, watch

ROOT = Path(__file__).resolve().parent.parent
ANSWERED_ELSEWHERE = re.compile(
    r"typer\.(confirm|prompt)|click\.(confirm|prompt)|[^_.\w]input\(|getpass\(|suppress\(KeyboardInterrupt"
)


def typed(key: bytes) -> dict[str, tuple[int, str]]:
    argv = [sys.executable, "-m", "tests.doubles.prompts", key.hex()]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    return {name: (code, shown) for name, (code, shown) in json.loads(done.stdout).items()}


@pytest.mark.slow
def test_the_end_of_the_input_is_no_answer() -> None:
    for name, (code, shown) in typed(b"\x04").items():
        assert code == (4 if name in ("password", "code", "host key") else 1), (name, shown)
        assert "error: no answer was given to: " in shown, name
        assert "next:  " in shown, name
        assert "Traceback" not in shown, name
        assert "EOFError" not in shown, name


@pytest.mark.slow
def test_ctrl_c_at_a_question_ends_with_130() -> None:
    for name, (code, shown) in typed(b"\x03").items():
        assert code == 130, (name, shown)
        assert shown.endswith("\n"), (name, shown)  # the shell's prompt begins a line
        assert "error" not in shown, name
        assert "Traceback" not in shown, name


def test_one_module_asks_and_no_view_swallows_ctrl_c() -> None:
    files = (file for file in (ROOT / "clusterkit").rglob("*.py") if file.name != "asking.py")
    found = {
        (file.name, match[0])
        for file in files
        for match in ANSWERED_ELSEWHERE.finditer(file.read_text(encoding="utf-8"))
    }
    assert found <= set()


def interrupted() -> Iterator[Any]:
    raise KeyboardInterrupt
    yield


def interrupted_later() -> Iterator[Any]:
    yield "a look"
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "show",
    [
        lambda: top.show_live(interrupted()),  # type: ignore[arg-type]
        lambda: top.print_json(interrupted()),  # type: ignore[arg-type]
        lambda: curves.show_live(interrupted_later(), lambda look, width, height: look),
        lambda: watch.show_watch(interrupted(), expand=False, as_json=True),
        lambda: watch.show_watch(interrupted(), expand=False, as_json=False),
    ],
    ids=["top", "top --json", "curves", "status --watch --json", "status --watch"],
)
def test_ctrl_c_ends_a_view_with_130(show: Callable[[], None]) -> None:
    with pytest.raises(KeyboardInterrupt):  # which is 130 at the edge
        show()
