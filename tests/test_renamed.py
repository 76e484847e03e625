"""Old names of commands and options still work, and say what the new ones are."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from clusterkit.cli import renamed
from tests.documented import commands, invoke, options


def noted(words: list[str]) -> tuple[list[str], list[str]]:
    """What is left of a command line, and the notes about it."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        current = renamed.renamed_command(words)
        name = next(name for name in sorted(commands(), key=len, reverse=True) if _begins(current, name))
        rest = renamed.renamed_options(name, current[len(name.split()) :])
    return [*name.split(), *rest], told.getvalue().splitlines()


def _begins(words: list[str], name: str) -> bool:
    return words[: len(name.split())] == name.split()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gc --dry-run", "storage prune --dry-run"),
        ("images --json", "storage list --json"),
        ("drill -p tiny", "rehearse -p tiny"),
        ("watch last --once", "curves last --once"),
        ("build --on uni", "build --cluster uni"),
        ("build --on=uni", "build --cluster=uni"),
        ("deploy --plan --json", "deploy --dry-run --json"),
        ("play last -n 5", "play last --episodes 5"),
        ("evaluate last -n5", "evaluate last --episodes 5"),
        ("logs --tail 5", "logs --lines 5"),
        ("tune --wait -p tiny", "tune -p tiny"),
    ],
)
def test_an_old_name_is_replaced_and_noted_once(typed: str, meant: str) -> None:
    current, notes = noted(typed.split())
    assert current == meant.split()
    assert len(notes) == 1
    assert notes[0].startswith("note: `clusterkit ")
    assert notes[0].endswith("; the old name goes with the next version.")


def test_the_old_name_of_a_command_may_stand_before_the_old_name_of_an_option() -> None:
    current, notes = noted(["clean", "--all"])
    assert current == ["storage", "clean", "--last-checkpoint"]
    assert notes == [
        "note: `clusterkit clean` is now `clusterkit storage clean`; "
        "the old name goes with the next version.",
        "note: `clusterkit storage clean --all` is now `clusterkit storage clean --last-checkpoint`; "
        "the old name goes with the next version.",
    ]


@pytest.mark.parametrize("typed", ["logs -n 5", "logs --lines 5", "status --all", "shell -- --on"])
def test_a_current_name_is_left_as_it_is(typed: str) -> None:
    assert noted(typed.split()) == (typed.split(), [])


def test_what_stands_behind_two_dashes_belongs_to_the_program() -> None:
    assert renamed.renamed_options("deploy", ["--", "--plan"]) == ["--", "--plan"]


def test_every_new_name_exists_and_no_old_one() -> None:
    assert set(renamed.COMMANDS.values()) <= commands().keys()
    assert not renamed.COMMANDS.keys() & commands().keys()
    for name, names in renamed.OPTIONS.items():
        known = {option for one in commands()[name].params for option in one.opts}
        assert {new for new in names.values() if new} <= known
        assert not names.keys() & (known | options(commands()[name]))


def test_an_old_command_prints_nothing_but_its_result_on_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "clusterkit.toml").touch()
    assert invoke(["images", "--json"]) == invoke(["storage", "list", "--json"])
