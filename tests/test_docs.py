"""The documentation says what the commands take, and the commands it shows work."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clusterkit.cli.catalogue import children
from docs.tools import pictures, scratch
from tests.documented import ROOT, Shown, called, commands, group, invoke, options, pages, shown, words_of
from tests.waiting import until

NEED_MORE = {
    "build": "Apptainer",
    "init": "a site",
    "doctor": "a site",
    "login": "a site",
    "storage": "a site",
    "rehearse": "two minutes",
    "demo": "minutes",
    "evaluate": "a model",
    "play": "a model",
    "shell": "a run that runs",
    "dev": "a terminal",
    "forward": "a run that runs",
    "ssh": "a run that runs",
    "ssh-config": "a run that runs",
    "top": "a run that runs",
    "resume": "a run that ended early",
    "notify": "a webhook",
    "run": "a program of its own",
    "completion": "a shell of its own",
    "charts/episodic_return": "a program that logs it",
    "r": "a program that logs it",
    "--first": "a cluster with a queue",
    "--with-image": "an image",
    "paper.tar.zst": "what --with-image would have made",
    "--unlock": "the trainer",
    "--pack": "a scheduler",
    "tune": "the trainer",
    "--gpus": "a site with such GPUs",
    "--ranks": "several GPUs",
}
"""What the scratch project cannot run, and what it would need; lines with these words are parsed only."""
MOST_WORDS = 26_000
"""Of all pages: what is added takes the place of something else."""
PROFILES = ("a40-2m", "a40", "check", "check-a40", "heavy", "baseline", "sac", "ppo", "a2c", "l40s-mine")


def test_every_option_is_documented() -> None:
    """In the section of its command."""
    text = (ROOT / "docs" / "commands.md").read_text()
    every, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    of_all = set(re.findall(r"--[a-z][a-z-]+", every))
    about = {name: body for body in sections for name in body.partition("\n")[0].split(", ")}
    missing = [
        f"{name} {option}"
        for name, command in commands().items()
        if not children(name)
        for option in sorted(options(command) - of_all)
        if not re.search(rf"{option}(?![a-z-])", about[name])
    ]
    assert missing == []


def test_a_synopsis_names_what_there_is() -> None:
    for one in shown():
        if one.synopsis:
            name, _ = called(one.line.split()[1:])
            assert name in commands(), one
            assert set(re.findall(r"--[a-z][a-z-]+", one.line)) <= options(commands()[name]), one


def test_every_example_parses() -> None:
    for one in shown():
        if not one.synopsis:
            name, arguments = called(one.words)
            assert name in commands(), one
            commands()[name].make_context(name, arguments)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A scratch project with a run and a group of runs that have ended and were synced."""
    folder = tmp_path_factory.mktemp("docs") / "reacher"
    scratch.make(folder, PROFILES)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "none"))
        patch.setenv("XDG_RUNTIME_DIR", str(folder))  # its `logout` ends nobody else's login
        patch.setenv("STEPS", "8")
        patch.delenv("WANDB_API_KEY", raising=False)
        patch.setenv("NETRC", str(folder / "none"))
        for words in (["submit"], ["submit", "--seeds", "1,2"], ["sync-results", "--watch"]):
            assert invoke(words)[0] == 0
        yield folder


def filled(one: Shown, project: Path) -> list[str]:
    """The words of a line with a run where it says RUN, and a plan where it submits many."""
    runs = sorted(path.name for path in (project / "results").iterdir() if path.name.startswith("a40-2m-"))
    (grouped,) = {name.rpartition("-")[0] for name in runs if name.endswith("-1")}
    lone = next(name for name in runs if not name.startswith(grouped))
    names = {"RUN": lone, "RUN...": lone, "RUN:any": f"{lone}:any", "GROUP": grouped}
    words = [names.get(word, lone if word.startswith("local-demo-") else word) for word in one.words]
    many = {"--seeds", "--sweep", "--then"} & set(words)
    return [*words[:1], "--dry-run", *words[1:]] if words[0] == "submit" and many else words


def wait_until_ended(project: Path) -> None:
    """Wait for all runs; what follows on a page is done when they have ended."""
    until(lambda: all([*run.glob("attempts/*/exit.json")] for run in project.glob(".clusterkit/*/runs/*")))


@pytest.mark.slow
def test_the_commands_of_the_pages_run(project: Path) -> None:
    """All that a machine without a site can run, page by page, each line once."""
    failed, done = [], set()
    for one in shown():
        if one.synopsis or NEED_MORE.keys() & set(one.words):
            continue
        words = filled(one, project)
        if tuple(words) in done and words[0] != "sync-results":  # what follows reads what it brings home
            continue
        done.add(tuple(words))
        code, _, error = invoke(words)
        if code == 5 and "can never run on local" in error:
            continue  # for want of a GPU; all else about it is right
        if code:
            failed.append(f"{one.page}: {one.line}: {code} {error}")
        elif words[0] in ("submit", "rerun") and "--dry-run" not in words:
            wait_until_ended(project)
    assert not failed, "\n".join(failed)


def test_the_pages_are_no_longer_than_agreed() -> None:
    words = {page.name: words_of(page) for page in pages()}
    assert sum(words.values()) <= MOST_WORDS, words


def test_code_and_made_tables_are_not_counted_as_words(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    made = "<!-- Made by `x`. -->\n\n| a |\n\n<!-- The end of what is made. -->\n"
    page.write_text(f"# One two\n\n```sh\nnot this\n```\n\n| three | four |\n\n{made}\nfive\n")
    assert words_of(page) == len(["#", "One", "two", "|", "three", "|", "four", "|", "five"])


def test_what_needs_more_is_in_the_pages() -> None:
    assert NEED_MORE.keys() <= {word for one in shown() for word in one.line.split()}


def test_the_settings_in_the_pages_are_toml() -> None:
    for page in pages():
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            tomllib.loads(block)


def test_every_clusterkit_command_in_the_docs_exists() -> None:
    known = group().commands
    for page in pages():
        code = "\n".join(
            re.findall(r"^```.*?^```|^    .*?$|`[^`]+`", page.read_text(), re.MULTILINE | re.DOTALL)
        )
        for name in re.findall(r"(?:^ *|`)clusterkit ([a-z][a-z-]+)", code, re.MULTILINE):
            assert name in known, f"{page.name}: clusterkit {name}"


def test_the_pictures_are_used_small_and_of_nobodys_machine() -> None:
    used = {name for page in pages() for name in re.findall(r"pictures/([a-z0-9-]+\.svg)", page.read_text())}
    files = list(pictures.FOLDER.glob("*"))
    assert {file.name for file in files} == used
    for file in files:
        text = file.read_text()
        assert len(text) < pictures.LARGEST
        assert not re.search(r"/(tmp|home|root)/|https?://(?!www\.w3\.org)|<script", text)


def test_a_picture_is_new_if_its_words_are_and_not_if_its_numbers_are() -> None:
    old = (pictures.FOLDER / "why.svg").read_text()
    words = pictures.shown(old)
    assert any("import-error" in line for line in words)
    assert pictures.shown(re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "20300101-000000-beef", old)) == words
    assert pictures.shown(old.replace("FAILED", "ENDED")) != words


def test_the_makefile_has_what_the_pages_name() -> None:
    lines = [*shown("make"), *(Shown("CONTRIBUTING.md", f"make {name}") for name in ("test", "test-cluster"))]
    for one in lines:
        subprocess.run(["make", "-n", *one.words], cwd=ROOT, check=True, capture_output=True)
