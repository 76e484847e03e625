"""Completion: what the shells are told, real shells that complete, and what is installed."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from clusterkit.cli import complete
from clusterkit.cli.app import app
from clusterkit.cli.completion import answer, words_of
from clusterkit.runs.ledger import Ledger, LedgerRun
from tests.documented import commands
from tests.needs import param

SETTINGS = """
[project]
default_cluster = "uni"
[clusters.uni]
host = "uni"
root = "/share/x"
[profiles.quick]
[profiles."evil$(touch evil)"]
"""
NO_SOURCE = {
    *("NAME=VALUE,VALUE", "NAME=VALUES", "N", "TIME", "SIZE", "SEEDS", "PIXELS", "OPTION", "NAME", "BASE"),
    *("COMMAND", "TIME,TIME", "GPU,GPU", "A,B", "-- ARGUMENT", "METRIC", "MODULE:ID"),
    *("KIND:A,B", "PORT", "URI"),
}
"""Metavars of what only the person knows."""


def run(index: int, *, group: str = "") -> LedgerRun:
    return LedgerRun(
        *(f"mt10-20260102-03040{index}-k3f{index}", "uni", "mt10", "quick", "guide-mt10", index, str(index)),
        *(f"2026-01-02T03:04:0{index}+00:00", "/x", 10, "RUNNING", group),
        short=f"phd-2/{index}" if group else f"phd-{index}",
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder that is also a project, with three runs, two of them in a group."""
    (tmp_path / "clusterkit.toml").write_text(SETTINGS)
    with Ledger(tmp_path / ".clusterkit" / "ledger.sqlite3") as ledger:
        ledger.add_all(
            [run(1), run(2, group="mt10-20260102-030400-grup"), run(3, group="mt10-20260102-030400-grup")]
        )
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(line: str, shell: str = "fish") -> list[str]:
    """The values that a shell is told, behind the kind of the answer."""
    kind, *values = answer(typer.main.get_command(app), line, shell).splitlines()
    return [kind, *(value.partition("\t")[0] for value in values)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("clusterkit sta", ["words", "status"]),
        ("clusterkit nonsense ", ["words"]),
        ("clusterkit storage ", ["words", "list", "prune", "clean"]),
        ("clusterkit storage clean --old", ["words", "--older"]),
        ("clusterkit storage list --cluster u", ["words", "uni"]),
        ("clusterkit storage nonsense ", ["words"]),
        ("clusterkit submit --set lr", ["beginnings", "lr="]),
        ("clusterkit --ver", ["words", "--version"]),
        ("clusterkit why l", ["words", "last"]),
        ("clusterkit why mt10-20260102-030401", ["words", run(1).run_id]),
        ("clusterkit cancel --group ", ["words", "phd-2", "mt10-20260102-030400-grup"]),
        ("clusterkit why phd-", ["words", "phd-2/3", "phd-2/2", "phd-1", "phd-2"]),
        ("clusterkit submit --after mt10-20260102-030400", ["words", "mt10-20260102-030400-grup"]),
        ("clusterkit submit --profile q", ["words", "quick"]),
        ("clusterkit submit --profile=q", ["words", "--profile=quick"]),
        ("clusterkit submit -p ev", ["words"]),  # no shell would take it for one word
        ("clusterkit submit --cluster ", ["words", "uni", "local"]),
        ("clusterkit login u", ["words", "uni"]),
        ("clusterkit status --name ", ["words", "mt10"]),
        ("clusterkit status --state running,fa", ["words", "running,failed"]),
        ("clusterkit sync-results --checkpoints ", ["words", "last", "best", "all", "none"]),
        ("clusterkit build --torch ", ["words", "cuda", "cpu"]),
        ("clusterkit submit --set gam", ["beginnings", "gamma="]),
        (
            "clusterkit submit --sweep recipe=mclean",
            ["words", "recipe=mclean2025-mt10", "recipe=mclean2025-mt50"],
        ),
        ("clusterkit play --task drawer-cl", ["words", "drawer-close-v3"]),
        ("clusterkit config profiles.q", ["words", "profiles.quick"]),
        ("clusterkit completion f", ["words", "fish"]),
        ("clusterkit --config ", ["files"]),
        ("clusterkit docs own", ["words", "own-project"]),
        ("clusterkit --config clusterkit.toml submit --profile q", ["words", "quick"]),
        ("clusterkit deploy --image ", ["files"]),
        ("clusterkit export ./res", ["files"]),
        ("clusterkit submit -- --x ", ["files"]),
        ("clusterkit why 'mt10-20260102-030401", ["words", run(1).run_id]),
    ],
)
def test_what_is_offered(home: Path, line: str, expected: list[str]) -> None:
    assert told(line) == expected


def test_a_run_or_an_option_is_not_offered_twice(home: Path) -> None:
    assert run(1).run_id not in told(f"clusterkit status {run(1).run_id} ")
    assert "--all" in told("clusterkit status --")
    assert "--all" not in told("clusterkit status --all --")
    assert "--state" in told("clusterkit status --state running --")


def test_checkpoints_are_those_of_the_run(home: Path) -> None:
    for step, index in ((100, 1), (200, 1), (300, 3)):
        (home / "results" / run(index).run_id / "checkpoints" / f"step-{step}").mkdir(parents=True)
    assert told(f"clusterkit evaluate {run(1).run_id} --checkpoint ")[3:] == ["step-200", "step-100"]
    assert told("clusterkit evaluate --checkpoint ")[3:] == ["step-300"]


def test_bash_is_told_what_follows_its_word_breaks(home: Path) -> None:
    assert told("clusterkit submit --profile=q", "bash") == ["words", "quick"]
    assert told("clusterkit build --from docker:", "bash") == ["beginnings", "//"]


def test_what_is_broken_completes_to_nothing(home: Path) -> None:
    (home / ".clusterkit" / "ledger.sqlite3").write_bytes(b"no ledger" * 1000)
    (home / "clusterkit.toml").write_text("[[[")
    assert told("clusterkit why last") == ["words"]
    assert told("clusterkit submit --cluster ") == ["words", "local"]
    assert told("clusterkit status --config nowhere.toml --cluster ") == ["words", "local"]


def test_nothing_is_made_where_there_is_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert told("clusterkit why mt") == ["words"]
    assert list(tmp_path.iterdir()) == []


def test_every_value_has_a_source_or_is_free() -> None:
    for name, command in commands().items():
        for one in command.params:
            if getattr(one, "is_flag", False) or one.name == "help":
                continue
            known = {*complete.BY_METAVAR, *complete.FILES, *NO_SOURCE}
            assert one.metavar in known or "|" in one.metavar or complete.BY_OPTION.keys() & set(one.opts), (
                f"{name} {one.opts}: {one.metavar} is in no table of clusterkit/cli/complete.py"
            )


def test_words_of_a_line() -> None:
    assert words_of("clusterkit ") == ["clusterkit", ""]
    assert words_of('clusterkit why "a b') == ["clusterkit", "why", "a b"]
    assert words_of("") == [""]


@pytest.fixture
def shell_environment(home: Path) -> dict[str, str]:
    program = home / "bin" / "clusterkit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m clusterkit "$@"\n')
    program.chmod(0o755)
    return {"HOME": str(home), "PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}


def installed(shell: str, environment: dict[str, str]) -> str:
    """What `completion --install` says."""
    command = ["clusterkit", "completion", shell, "--install"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stderr


def typed(argv: list[str], keys: str, wanted: str, environment: dict[str, str]) -> str:
    """What a terminal shows after these keys, once it shows `wanted`."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, environment)
    shown, until = "", time.monotonic() + 60
    try:
        while "ready" not in shown:
            shown += os.read(terminal, 4096).decode(errors="replace")
        os.write(terminal, keys.encode())
        while wanted not in shown and time.monotonic() < until:
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 4096).decode(errors="replace")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
    return shown


SHELLS = {
    "bash": (".bashrc", "", ["bash", "-i"]),
    "zsh": (".zshrc", "autoload -Uz compinit; compinit -u -D\n", ["zsh", "-d", "-i"]),
}
"""Each with its file of settings, what must stand in it before, and how it is started."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "wanted"),
    [("clusterkit why mt10-20260102-030401\t", "-k3f1"), ("clusterkit submit --profile=qu\t", "=quick")],
)
@pytest.mark.parametrize("shell", [param(shell) for shell in SHELLS])
def test_a_shell_completes(shell_environment: dict[str, str], shell: str, keys: str, wanted: str) -> None:
    name, before, argv = SHELLS[shell]
    settings = Path(shell_environment["HOME"]) / name
    settings.write_text(before)
    installed(shell, shell_environment)
    settings.open("a").write("echo rea''dy\n")
    assert wanted in typed(argv, keys, wanted, shell_environment)


@pytest.mark.needs("fish")
def test_a_fish_completes(shell_environment: dict[str, str]) -> None:
    installed("fish", shell_environment)

    def completed(line: str) -> str:
        command = ["fish", "-c", f"complete -C '{line}'"]
        return subprocess.run(
            command, env=shell_environment, capture_output=True, text=True, check=True
        ).stdout

    assert completed("clusterkit why mt10-20260102-030401") == f"{run(1).run_id}\tRUNNING, quick\n"
    assert completed("clusterkit submit --profile=qu") == "--profile=quick\n"
    assert "clusterkit.toml" in completed("clusterkit deploy --image clu")


def completion_of(shell: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What `completion` prints to who uses a shell."""
    argv = ["clusterkit", "completion"]
    return subprocess.run(argv, env={**environment, "SHELL": shell}, capture_output=True, text=True)


@pytest.mark.slow
def test_install_tells_what_it_wrote_and_writes_it_once(shell_environment: dict[str, str]) -> None:
    home = Path(shell_environment["HOME"])
    (home / ".bashrc").write_text("alias a=b")
    first = installed("bash", shell_environment)
    script = home / ".local" / "share" / "clusterkit" / "completion.bash"
    assert f"{script}: written" in first
    assert f"{home / '.bashrc'}: added the line that loads it" in first
    assert "loads it already" in installed("bash", shell_environment)
    assert (home / ".bashrc").read_text() == f"alias a=b\n[ -r {script} ] && . {script}\n"
    assert completion_of("/usr/bin/bash", shell_environment).stdout == script.read_text()


@pytest.mark.slow
def test_another_shell_is_told_the_three(shell_environment: dict[str, str]) -> None:
    done = completion_of("/bin/tcsh", shell_environment)
    assert done.returncode == 3
    assert re.search(r"error: .*tcsh\nnext: .*zsh", done.stderr)
