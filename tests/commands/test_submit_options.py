"""Every option of `submit` that says what a run is, through every way of submitting it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import typer.main

from clusterkit.cli.app import app
from tests.commands.conftest import Project

pytestmark = pytest.mark.slow

TRAINS = """
[project]
name = "demo"
default_profile = "tiny"
[profiles.tiny]
recipe = "mclean2025-mt10"
total_steps = 1000
time = "5m"
"""


@dataclass(frozen=True)
class Written:
    """What a submission has left in the run directory."""

    run: Mapping[str, Any]
    request: Mapping[str, Any]
    job: str

    @property
    def options(self) -> list[str]:
        return list(self.request["options"])

    @property
    def argv(self) -> list[str]:
        return list(self.request.get("argv") or self.run["argv"])


Holds = Callable[[Written], bool]
OVER_A_LOCK = ("--set", "gamma=0.9", "--unlock", "gamma")
KEPT: Mapping[str, tuple[tuple[str, ...], Holds]] = {
    "arguments": (("--", "sleep", "two words"), lambda it: it.argv[-2:] == ["sleep", "two words"]),
    "name": (("--name", "mine"), lambda it: it.run["name"] == "mine"),
    "seed": (("--seed", "7", "--", "sleep", "{seed}"), lambda it: it.run["seed"] == 7 and it.argv[-1] == "7"),
    "cluster": (("--cluster", "local"), lambda it: it.run["cluster"] == "local"),
    "profile": (("--profile", "other"), lambda it: it.run["profile"]["name"] == "other"),
    "nodes": (("--nodes", "1"), lambda it: it.run["profile"]["nodes"] == 1),
    "time": (("--time", "7m"), lambda it: "--time-limit=420" in it.options),
    "total_steps": (
        ("--total-steps", "12345", "--", "sleep", "{total_steps}"),
        lambda it: it.run["total_steps"] == 12345 and it.argv[-1] == "12345",
    ),
    "until_done": (("--until-done",), lambda it: it.request["until_done"] == "requeue"),
    "native": (("--sbatch", "comment=mine"), lambda it: "--comment=mine" in it.options),
    "verify_image": (("--verify-image",), lambda it: it.request["verify_image"] is True),
    "overrides": (OVER_A_LOCK, lambda it: it.argv[it.argv.index("--set") + 1] == "gamma=0.9"),
    "unlock": (OVER_A_LOCK, lambda it: it.argv[it.argv.index("--unlock") + 1] == "gamma"),
}
"""By parameter: how it is given, and where it shows in what is written, whichever way a run is submitted."""
OF_A_GROUP: Mapping[str, tuple[tuple[str, ...], Holds]] = {
    "seeds": (("--seeds", "3,4", "--", "sleep", "{seed}"), lambda it: it.run["seed"] == 3),
    "sweep": (("--sweep", "x=1,2", "--", "sleep", "{x}"), lambda it: it.argv[-1] == "1"),
}
"""Likewise, of the first run of a group."""
OF_THE_SUBMISSION = {
    "after": "it says when that submission may start",
    "then": "the runs after it are their own",
    "then_always": "as --then",
    "first": "one job of several takes the run, and the next submission has the options of that one",
    "max_parallel": "it says how the runs of a group share the cluster",
    "pack": "a run that goes on has a job of its own",
    "in_one": "as --pack",
    "dry_run": "nothing is submitted",
    "script": "nothing is submitted",
    "yes": "an answer to a question",
    "send_large": "an answer to a question",
    "config": "where the settings are",
    "as_json": "how the answer is printed",
}
"""What says nothing about a run, and why."""


def test_every_option_of_submit_is_among_them() -> None:
    command = typer.main.get_command(app).commands["submit"]  # type: ignore[attr-defined]
    names = {parameter.name for parameter in command.params} - {"help"}
    told = [*KEPT, *OF_A_GROUP, *OF_THE_SUBMISSION]
    assert names == set(told)
    assert len(told) == len(set(told))


def written(project: Project, run_id: str, number: int) -> Written:
    folder = project.run_dir(run_id)
    request = folder / "submissions" / str(number) / "request.json"
    documents = [json.loads(path.read_text()) for path in (folder / "run.json", request)]
    return Written(*documents, (folder / "job.sh").read_text())


def through_all_ways(project: Project, name: str, run_id: str, holds: Holds) -> None:
    stopped = ("cancel", run_id, "--yes")
    assert holds(written(project, run_id, 0)), name
    project.run(*stopped)
    project.run("resume", run_id)
    assert holds(written(project, run_id, 1)), f"{name} is lost by resume"
    project.run(*stopped)
    project.run("resume", run_id, "--time", "9m")
    if name != "time":
        assert holds(written(project, run_id, 2)), f"{name} is lost by a second resume"
    project.run(*stopped)
    again = project.run("rerun", run_id).stdout.strip()
    if name not in ("time", "name"):
        assert holds(written(project, again, 0)), f"{name} is lost by rerun"
    project.run("cancel", again, "--yes")


@pytest.mark.parametrize("name", [name for name in KEPT if name not in ("overrides", "unlock")])
def test_an_option_survives(project: Project, name: str) -> None:
    project.add('[profiles.other]\ntime = "5m"\n')
    words, holds = KEPT[name]
    through_all_ways(
        project, name, project.submit(*words, *(() if "--" in words else ("--", "sleep"))), holds
    )


@pytest.mark.parametrize("name", OF_A_GROUP)
def test_a_value_of_a_sweep_survives(project: Project, name: str) -> None:
    words, holds = OF_A_GROUP[name]
    group = project.submit(*words)
    project.run("cancel", f"{group}-1", "--yes")
    through_all_ways(project, name, f"{group}-0", holds)


@pytest.mark.parametrize("name", ["overrides", "unlock"])
def test_a_recipe_value_survives(project: Project, name: str) -> None:
    (project.folder / "clusterkit.toml").write_text(TRAINS)
    words, holds = KEPT[name]
    through_all_ways(project, name, project.submit(*words), holds)
