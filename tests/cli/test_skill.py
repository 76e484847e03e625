"""`clusterkit skill`: what it tells an agent is true of this version."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from clusterkit import __version__
from clusterkit.cli.logs import LINE, WHOLE, bounded
from docs.tools import scratch
from tests.documented import ROOT, commands, invoke, options
from tests.waiting import until


def text() -> str:
    code, out, _ = invoke(["skill"])
    assert code == 0
    return out


def lines() -> list[str]:
    """The commands of its code blocks, comments cut off."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text(), re.MULTILINE | re.DOTALL)
    return [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]


def test_it_fits_one_page_and_names_its_version_and_its_pages() -> None:
    assert len(text().splitlines()) <= 80
    assert text().count(__version__) >= 2
    for page in re.findall(r"/\S+/docs/[a-z-]+\.md", text()):
        assert Path(page).is_file()
    assert str(ROOT / "docs/json.md") in text()


def test_every_command_that_it_names_exists_with_its_options() -> None:
    named = re.findall(r"`clusterkit ([^`]+)`", text())
    assert named
    for words in [*named, *(line.removeprefix("clusterkit ") for line in lines())]:
        name = words.split()[0]
        if name == "COMMAND":
            continue
        assert name in commands(), words
        assert set(re.findall(r"--[a-z-]+", words)) <= options(commands()[name]), words


@pytest.mark.slow
def test_its_commands_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody at a terminal; each prints one JSON document with a schema."""
    folder = tmp_path / "reacher"
    scratch.make(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "none"))
    monkeypatch.setenv("STEPS", "4")
    assert len(lines()) >= 10
    for line in lines():
        program, *words = shlex.split(line)
        assert program == "clusterkit"
        code, out, error = invoke(words)
        assert code == 0, f"{line}: {code} {error}"
        assert json.loads(out)["schema"] >= 1, line
        wait_for_all(folder)


def wait_for_all(folder: Path) -> None:
    until(lambda: all([*run.glob("attempts/*/exit.json")] for run in folder.glob(".clusterkit/*/runs/*")))


def test_it_is_written_where_it_is_to_be_read(tmp_path: Path) -> None:
    file = tmp_path / "skills/clusterkit/SKILL.md"
    assert invoke(["skill", "--out", str(file)])[:2] == (0, "")
    assert file.read_text() == text()
    (tmp_path / "file").touch()
    code, _, error = invoke(["skill", "--out", str(tmp_path / "file/SKILL.md")])
    assert code == 3
    assert "cannot be written" in error


def test_hostile_text_is_escaped_and_bounded() -> None:
    found = bounded([b"plain\r\n\x1b]0;owned\x07 \xff", b" rest\n", b"x" * (LINE + 1), b"\nlast"])
    assert found.lines == ["plain", r"\x1b]0;owned\x07 \ufffd rest", "x" * LINE, "last"]
    assert found.cut
    many = bounded([b"%06d\n" % number for number in range(WHOLE // 3)])
    assert sum(map(len, many.lines)) <= WHOLE
    assert many.lines[-1] == f"{WHOLE // 3 - 1:06}"
    assert many.cut
    assert not bounded([b"a\nb\n"]).cut
