"""One rule for names of runs, whichever command they are given to."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.runs.ledger import Ledger
from tests import forked
from tests.commands.conftest import Project, new_project
from tests.documented import commands

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each

MANY: dict[str, tuple[str, ...]] = {
    "status": (),
    "why": (),
    "curves": ("--once",),
    "top": ("--once",),
    "export": (),
    "report": (),
    "sync-results": ("--no-wandb",),
    "storage clean": ("--dry-run",),
    "cancel": ("--yes",),
    "logs": (),
    "resume": (),
    "rerun": ("--sbatch", "job-name=x"),
}
"""Commands that take a group for all of its runs, with what keeps them short."""
ONE: dict[str, tuple[str, ...]] = {
    "shell": ("--", "true"),
    "forward": ("8888",),
    "ssh": ("--", "true"),
    "ssh-config": (),
    "diff": (),
    "evaluate": (),
    "play": (),
    "tune": ("--no-wait", "--dry-run"),
}
"""Commands that need exactly one."""
RESOLVED = ("error: no run ", "' may mean ", "' means ")
"""What is said of a name that is none, or of several things."""


def test_every_command_that_takes_a_run_is_here() -> None:
    found = {
        name
        for name, command in commands().items()
        for parameter in command.params
        if parameter.param_type_name == "argument" and str(parameter.metavar).split("|")[0] in ("RUN", "A")
    }
    assert found == MANY.keys() | ONE.keys()


def test_a_name_that_cannot_be_shown_is_refused(project: Project) -> None:
    for more in ((), ("--seeds", "1,2")):
        done = project.run("submit", "--dry-run", "--name", "a\u202eb", *more, code=3)
        assert "the name 'a\\u202eb' contains characters that cannot be shown" in done.stderr


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dict[str, str]]]:
    """Ended and pulled runs of two groups and one besides; names of one run, of a group, of neither."""
    with pytest.MonkeyPatch.context() as patch:
        project = new_project(tmp_path_factory.mktemp("named") / "my project", patch)
        yield project, _scene(project)


def _scene(project: Project) -> dict[str, str]:
    group = project.run("submit", "--name", "base", "--seeds", "1,2").stdout.strip()
    alone = project.submit("--name", "base-b")
    last = project.submit("--name", "last-one", "--seeds", "3,4")
    project.ended(f"{group}-0", f"{group}-1", alone, f"{last}-0", f"{last}-1")
    project.run("sync-results", "--no-wandb")
    with Ledger(project.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        job_id = ledger.find_one(alone).job_id
    names = {"group": group, "prefix": alone[:10], "job": job_id, "last": "last", "ambiguous": "base"}
    return names | {"short": "demo-2", "short group": "demo-1"}


def said(project: Project, command: str, name: str, words: tuple[str, ...]) -> str:
    names = (name, name) if command == "diff" else (name,)
    done = forked.run(
        (*command.split(), *names, *words), folder=project.folder, env={**os.environ, "COLUMNS": "200"}
    )
    assert "Traceback" not in done.stderr
    return done.stderr.partition("\nnext")[0]


def test_every_command_takes_names_alike(named: tuple[Project, dict[str, str]]) -> None:
    project, names = named
    shutil.rmtree(project.folder / "results" / f"{names['group']}-1")  # half of a group is here
    for number, (command, words) in enumerate((MANY | ONE).items()):
        kind = ("prefix", "group", "job", "last", "short", "short group")[number % 6]
        told = said(project, command, names[kind], words)
        if kind in ("group", "last", "short group") and command in ONE:
            group = "last-one-" if kind == "last" else names["group"]
            assert f"means the 2 runs of group {group}" in told, (command, told)
        else:
            assert not any(word in told for word in RESOLVED), (command, kind, told)
        told = said(project, command, names["ambiguous"], words)
        assert f"'base' may mean {names['group']} (2 runs), base-b-" in told, (command, told)


def test_why_of_a_group_counts_causes_and_shows_one_of_each(project: Project) -> None:
    (project.folder / "train.py").write_text(
        "import os, sys\nif os.environ['CLUSTERKIT_SEED'] != '3': import nothing_like_it\n"
    )
    group = project.run("submit", "--seeds", "1..3").stdout.strip()
    project.ended(*(f"{group}-{number}" for number in range(3)))
    shown = project.run("why", group).stdout
    assert f"{group}  3 runs: 2 import-error, 1 completed" in shown
    assert f"2 runs  {group}-0, {group}-1" in shown
    assert f"next  clusterkit logs {group}-0 -n 200" in shown
    answer = json.loads(project.run("why", "--json").stdout)
    assert [(one["cause"], len(one["run_ids"])) for one in answer["causes"]] == [
        ("import-error", 2),
        ("completed", 1),
    ]
    assert answer["causes"][0]["exemplar"]["run_id"] == f"{group}-0"
    assert answer["not_asked"] == []


def test_a_short_name_is_given_once_and_stays_when_the_ledger_is_lost(project: Project) -> None:
    first = project.run("submit", "--seeds", "1,2")
    group = first.stdout.strip()
    assert "next: clusterkit status demo-1\n      clusterkit logs demo-1/seed1 -f" in first.stderr
    assert [run["short"] for run in project.rows()] == ["demo-1/seed1", "demo-1/seed2"]
    project.ended(f"{group}-0", f"{group}-1")
    for file in (project.folder / ".clusterkit").glob("ledger.*"):
        file.unlink()
    later = project.submit("--name", "later")
    project.ended(later)
    assert project.described(later)["short"] == "demo-2"
    again = project.run("rerun", later).stdout.strip()
    project.ended(again)
    table = project.run("status").stdout
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [
        ["demo-1/seed1", f"{group}-0"],
        ["demo-1/seed2", f"{group}-1"],
        ["demo-2", later],
        ["demo-3", again],
    ]


def test_export_of_a_group_is_an_archive_of_each_run(
    named: tuple[Project, dict[str, str]], tmp_path: Path
) -> None:
    project, names = named
    group = names["group"]
    refused = project.run("export", group, "-o", "x.tar.gz", code=8).stderr
    assert "means 2 runs" in refused
    paths = project.run("export", group, "-o", str(tmp_path)).stdout.split()
    assert [Path(path).name.partition(".")[0] for path in paths] == [f"{group}-0", f"{group}-1"]


def test_top_of_a_group_shows_those_that_run(project: Project) -> None:
    group = project.run("submit", "--seeds", "1,2", "--", "sleep").stdout.strip()
    project.begun(f"{group}-0")
    project.begun(f"{group}-1")
    lines = project.run("top", group, "--once", "--json").stdout.splitlines()
    assert [json.loads(line)["run_id"] for line in lines] == [f"{group}-0", f"{group}-1"]
    project.run("cancel", group, "--yes")
    refused = project.run("top", group, code=8).stderr
    assert "none of the 2 runs" in refused


def test_a_name_that_an_id_cannot_hold_is_said(project: Project) -> None:
    said = "in ids 'größe 1' becomes 'gr-e-1': they take up to 40 letters"
    for more in ((), ("--seeds", "1,2")):
        assert said in project.run("submit", "--dry-run", "--name", "größe 1", *more).stderr
    assert "in ids" not in project.run("submit", "--dry-run", "--name", "groesse-1").stderr
    done = project.run("submit", "--name", "größe 1")
    assert done.stdout.startswith("gr-e-1-")
    assert said in done.stderr
    project.ended(done.stdout.strip())
    again = project.run("rerun", done.stdout.strip())
    assert said in again.stderr
    project.ended(again.stdout.strip())


def test_resume_of_a_group_goes_on_with_the_runs_that_ended_early(project: Project) -> None:
    (project.folder / "train.py").write_text(
        "import os, sys\n"
        "print('attempt', os.environ['CLUSTERKIT_ATTEMPT'])\n"
        "sys.exit(os.environ['CLUSTERKIT_SEED'] != '2' and os.environ['CLUSTERKIT_ATTEMPT'] == '0')\n"
    )
    group = project.run("submit", "--seeds", "1..3").stdout.strip()
    members = [f"{group}-{number}" for number in range(3)]
    project.ended(*members)
    resumed = project.run("resume", group)
    assert resumed.stdout.split() == [members[0], members[2]]
    assert f"{members[1]} is COMPLETED" in resumed.stderr
    project.ended(members[0], members[2], attempt=1)
    none = project.run("resume", group, code=8).stderr
    assert f"none of the 3 runs of {group} can be resumed" in none
    shown = project.run("logs", group).stdout
    for member, attempt in zip(members, (1, 0, 1), strict=True):
        log = shown.partition(f"==> {member} <==\n")[2].partition("==>")[0]
        assert f"\nattempt {attempt}\n" in log, shown
    assert "this command needs one run" in project.run("logs", group, "--follow", code=8).stderr


def test_rerun_of_a_group_repeats_each_run_with_its_seed(project: Project) -> None:
    group = project.run("submit", "--seeds", "4,7", "--name", "first", "--", "{seed}").stdout.strip()
    project.ended(f"{group}-0", f"{group}-1")
    again = project.run("rerun", group, "--name", "second").stdout.split()
    project.ended(*again)
    documents = [project.described(run_id) for run_id in again]
    seeds = [(document["name"], document["seed"], document["argv"][-1]) for document in documents]
    assert seeds == [("second", 4, "4"), ("second", 7, "7")]
    refused = project.run("rerun", group, "--seed", "9", code=3).stderr
    assert "--seed gives one seed, and" in refused
