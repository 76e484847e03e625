"""Every command that takes a group: one login, and as many round trips for 40 runs as for 2."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from clusterkit.backends.jobs import JobState
from tests.documented import commands
from tests.doubles.slurm_site import TOOL, Member, SlurmSite

pytestmark = pytest.mark.slow

FEW, MANY = "few-20260101-000000-k3f9", "many-20260101-000000-k3f9"
SIZES = {FEW: 2, MANY: 40}
EACH_BY_ITSELF = {
    "rerun": "each run is submitted by itself, exactly once",
    "top": "each running run gets a job step of its own",
}
"""Commands whose round trips grow with what they start, and why."""


class Case(NamedTuple):
    """A command line, in which GROUP is a group's id."""

    words: str
    states: tuple[JobState, JobState] = (JobState.RUNNING, JobState.COMPLETED)
    """Of the group's runs, in turn."""
    before: str = ""
    """What is typed before."""
    code: int = 0
    code_sent: bool = False
    """Whether the code that the runs name is on the cluster."""


FAILED = (JobState.RUNNING, JobState.FAILED)
CASES = {
    "cancel": [Case("cancel GROUP"), Case("cancel --group GROUP --yes")],
    "curves": [Case("curves GROUP --once")],
    "export": [Case("export GROUP", before="export GROUP", code_sent=True)],
    "logs": [
        Case("logs GROUP"),
        Case("logs GROUP -n 7"),
        Case("logs GROUP --all"),
        Case("logs GROUP --json"),
    ],
    "report": [Case("report GROUP", before="sync-results GROUP --no-wandb")],
    "resume": [Case("resume GROUP", code=8)],
    "status": [Case("status GROUP"), Case("status --group GROUP", FAILED)],
    "storage clean": [
        Case("storage clean GROUP --yes", before="sync-results GROUP --no-wandb --checkpoints all")
    ],
    "submit": [Case("submit --after GROUP", before="submit")],
    "sync-results": [
        Case("sync-results GROUP --no-wandb"),
        Case("sync-results GROUP --no-wandb", before="sync-results GROUP --no-wandb"),
    ],
    "why": [Case("why GROUP"), Case("why GROUP", FAILED)],
}
OF_ALL_RUNS = [
    Case(words, FAILED) for words in ("status --all", "storage list", "storage prune --ended --dry-run")
]
"""These take no group, but look at all runs."""


@pytest.fixture
def site(site: SlurmSite) -> SlurmSite:
    for name, rows in {"sbatch": ["900001"], "scancel": []}.items():
        site.tool(name, TOOL.format(name=name, folder=site.folder))
        site.says(name, rows)
    return site


def takes_groups() -> set[str]:
    """The commands one of whose arguments or options may be a group."""
    return {
        name
        for name, command in commands().items()
        for parameter in command.params
        if "RUN" in str(parameter.metavar) and "group" in parameter.help
    }


def test_each_command_that_takes_a_group_is_counted() -> None:
    assert takes_groups() == CASES.keys() | EACH_BY_ITSELF


def settle(site: SlurmSite, case: Case) -> None:
    """Make both groups known, each run with some files."""
    members = [
        Member(100 * place + number, case.states[number % 2], group=group)
        for place, (group, size) in enumerate(SIZES.items())
        for number in range(size)
    ]
    site.knows(members)
    described = {
        "argv": ["true"],
        "env": {},
        "workdir": f"{site.root}/snapshots/a/project",
        "python_path": [f"{site.root}/snapshots/b/bundle"],
    }
    if case.code_sent:
        run_id = site.types("submit").stdout.strip()
        sent = json.loads((site.root / "runs" / run_id / "run.json").read_text())
        described |= {name: sent[name] for name in ("workdir", "python_path")}
    for member in members:
        folder = site.root / "runs" / member.run_id
        document = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(document | described, indent=2))
        (folder / "attempts/0/log").write_text("a line\n" * 60)
        (folder / "wandb/offline-run-1").mkdir(parents=True)
        (folder / "wandb/offline-run-1/run-1.wandb").write_bytes(bytes(9000))
        (folder / "metrics.jsonl").write_text('{"kind": "eval", "step": 1000, "success/mean": 0.5}\n' * 3)


def count(site: SlurmSite, case: Case, group: str) -> tuple[int, int]:
    """How many logins and round trips a command takes."""
    if case.before:
        site.types(*case.before.replace("GROUP", group).split())
    logins, trips = site.server.accepted_logins(), site.round_trips()
    site.types(*case.words.replace("GROUP", group).split(), code=case.code)
    return site.server.accepted_logins() - logins, site.round_trips() - trips


@pytest.mark.parametrize(
    "case", [case for cases in CASES.values() for case in cases], ids=lambda case: case.words
)
def test_as_many_round_trips_for_40_runs_as_for_2(site: SlurmSite, case: Case) -> None:
    settle(site, case)
    few, many = (count(site, case, group) for group in SIZES)
    assert few[0] <= 1
    assert many == few


def test_of_a_large_group_a_few_logs_are_shown_and_how_many(site: SlurmSite) -> None:
    settle(site, CASES["logs"][0])
    few, many = (site.types("logs", group) for group in SIZES)
    assert (few.stdout.count("==> "), many.stdout.count("==> ")) == (2, 10)
    assert "10 of 40 runs shown" in many.stderr
    assert "shown" not in few.stderr
    assert site.types("logs", MANY, "-n", "1").stdout.count("==> ") == 40


@pytest.mark.parametrize("case", OF_ALL_RUNS, ids=lambda case: case.words)
def test_a_look_at_all_runs_takes_one_login_and_at_most_four_round_trips(site: SlurmSite, case: Case) -> None:
    settle(site, case)
    for folder in ("images", "snapshots"):
        (site.root / folder).mkdir()
    logins, trips = count(site, case, "")
    assert logins <= 1
    assert trips <= 4
