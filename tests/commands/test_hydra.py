"""Hydra's multirun with `hydra/launcher=clusterkit`: one group, in whose jobs the application runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterkit.commands.hydra import points_of
from clusterkit.errors import ConfigError
from clusterkit.runs.program import variable_of
from tests.commands.conftest import Project

ROOT = Path(__file__).parents[2]
MAIN = """
import json, os, pathlib
import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config):
    hydra_config = HydraConfig.get()
    told = {
        "config": OmegaConf.to_container(config, resolve=True),
        "hydra": OmegaConf.to_container(hydra_config, resolve=True, enum_to_str=True),
    }
    for folder in filter(None, [hydra_config.runtime.output_dir, os.environ.get("CLUSTERKIT_RUN_DIR")]):
        (pathlib.Path(folder) / "told.json").write_text(json.dumps(told))

if __name__ == "__main__":
    main()
"""
NOT_IN_A_JOB = """
import os
if "CLUSTERKIT_RUN_DIR" in os.environ:
    raise ImportError("an image has Hydra, and not this plugin")
"""
SWEEPER = """
from __future__ import annotations
import sys
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore

NODE = {"_target_": "hydra_plugins.listed_sweeper.ListedSweeper", "first": None, "max_batch_size": None}
ConfigStore.instance().store(group="hydra/sweeper", name="listed", node=NODE, provider="test")

class ListedSweeper(BasicSweeper):
    def __init__(self, first, max_batch_size):
        super().__init__(max_batch_size)
"""
CONFIG = "net: {lr: 0.1}\nname: usual\nseed: 0\n"


@pytest.fixture
def application(project: Project) -> Project:
    (project.folder / "main.py").write_text(MAIN)
    (project.folder / "conf").mkdir()
    (project.folder / "conf" / "config.yaml").write_text(CONFIG)
    (project.folder / "conf" / "other.yaml").write_text(CONFIG.replace("usual", "other"))
    plugins = project.folder.parent / "site" / "hydra_plugins"  # as the wheel installs it
    plugins.mkdir(parents=True)
    launcher = (ROOT / "clusterkit" / "cli" / "hydra_launcher.py").read_text()
    for name, text in {"clusterkit_launcher": launcher, "listed_sweeper": SWEEPER}.items():
        (plugins / f"{name}.py").write_text(
            text.replace("\nimport sys\n", f"\nimport sys\n{NOT_IN_A_JOB}", 1)
        )
    return project


def multirun(project: Project, *words: str, start: tuple[str, ...] = ("main.py",), code: int = 0) -> Any:
    """Run the application as its user does."""
    done = subprocess.run(
        [sys.executable, *start, *words],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": f"{project.folder.parent / 'site'}:{ROOT}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def told(project: Project, group: str) -> list[dict[str, Any]]:
    """What the application was told in each job, by number."""
    folders = sorted(project.run_dir("").glob(f"{group}-*"))
    project.ended(*(folder.name for folder in folders))
    return [json.loads((folder / "told.json").read_text()) for folder in folders]


@pytest.mark.slow
@pytest.mark.parametrize("start", [("main.py",), ("-m", "main")], ids=["a file", "a module"])
def test_a_multirun_is_one_group_whose_jobs_run_the_application(
    application: Project, start: tuple[str, ...]
) -> None:
    words = ("-m", "hydra/launcher=clusterkit", "net.lr=0.2,0.4", "seed=1,2", "+new=[1,2]")
    group = multirun(application, *words, start=start).stdout.strip()
    came = told(application, group)
    assert [(one["config"]["net"]["lr"], one["config"]["seed"]) for one in came] == [
        (0.2, 1), (0.2, 2), (0.4, 1), (0.4, 2),
    ]  # fmt: skip
    assert all(one["config"]["new"] == [1, 2] for one in came)
    runs = application.rows()
    assert {(run["group"], run["state"]) for run in runs} == {(group, "COMPLETED")}
    assert [run["seed"] for run in runs] == [1, 2, 1, 2]
    first = application.run_dir(f"{group}-0")
    assert application.described(first.name)["sweep"] == {"net_lr": "0.2", "seed": "1"}
    assert (first / "hydra" / "0" / ".hydra" / "config.yaml").is_file()


@pytest.mark.slow
def test_the_settings_of_the_launcher_and_of_hydra_reach_the_jobs(application: Project) -> None:
    profile = '\n[profiles.second]\ntime = "6m"\n'
    application.add(profile)
    launcher = ("hydra/launcher=clusterkit", "hydra.launcher.profile=second", "hydra.launcher.name=mine")
    words = ("--config-name", "other", "-m", *launcher, "hydra.job.name=told", "seed=7,8")
    group = multirun(application, *words).stdout.strip()
    assert group.startswith("mine-")
    assert [one["config"]["name"] for one in told(application, group)] == ["other", "other"]
    first = application.run_dir(f"{group}-0")
    assert application.described(first.name)["profile"]["name"] == "second"
    assert (first / "hydra" / "0" / "told.log").is_file()


ALL = """
defaults:
  - _self_
{defaults}
net: {{lr: 0.1}}
seed: 0
known: "${{hydra:mode}} ${{hydra:job.num}} ${{hydra:job.id}} ${{hydra:job.name}}"
when: "${{now:%Y-%m-%d}} ${{now:%H-%M-%S}}"
named: "${{hydra:job.override_dirname}}"
hydra:
  job: {{chdir: {chdir}, config: {{override_dirname: {{exclude_keys: [seed, y, run_dir, plain, swept]}}}}}}
  sweep: {{subdir: "${{hydra.job.num}}-${{hydra.job.override_dirname}}"}}
{settings}
"""
OURS = "  - override hydra/launcher: clusterkit\n"
OF_THE_LAUNCHER = "  launcher: {profile: tiny, max_parallel: 2}\n"
OTHER_SWEEPER = "  - override hydra/sweeper: listed\n"


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "chdir", "start"), [(None, "true", "main.py"), (2, "false", "-m main")])
def test_a_job_knows_what_it_would_know_under_hydras_basic_launcher(
    application: Project, batch: int | None, chdir: str, start: str
) -> None:
    def configure(defaults: str, settings: str) -> None:
        size = f"  sweeper: {{first: 7, max_batch_size: {batch or 'null'}}}\n"
        text = ALL.format(defaults=defaults + OTHER_SWEEPER, settings=settings + size, chdir=chdir)
        (application.folder / "conf" / "config.yaml").write_text(text)

    words = (
        "-m",
        "net.lr=0.2,0.3,'a b'",
        "seed=5",
        "+x=[1,{a:2}]",
        "+plain='{net_lr} {{net_lr}} {seed} {{seed}} {run_id} {point} {total_steps}'",
        "+y=${net.lr}",
        "+hydra.job.env_set.WHAT=so",
    )
    configure("", "")
    multirun(application, *words, start=tuple(start.split()))
    files = sorted((application.folder / "multirun").rglob("told.json"))
    expected = [json.loads(file.read_text()) for file in files]
    configure(OURS, OF_THE_LAUNCHER)
    groups = multirun(application, *words, start=tuple(start.split())).stdout.split()
    came = [one for group in groups for one in told(application, group)]
    assert len(expected) == len(came) == 3
    for jobs in (expected, came):
        assert len({one["config"].pop("when") for one in jobs}) == 1, "not the time of the launch"
    for number, (one, other) in enumerate(zip(came, expected, strict=True)):
        assert one["config"]["known"].startswith(f"RunMode.MULTIRUN {number} {number} main")
        out = one["hydra"]["runtime"]["output_dir"]
        assert out.endswith(f"/hydra/{other['hydra']['sweep']['subdir']}")
        ours, theirs = (
            json.loads(json.dumps(hydra).replace(hydra["runtime"]["output_dir"], "OUT"))
            for hydra in (one["hydra"], other["hydra"])
        )
        assert ours["overrides"].pop("hydra")[:-1] == theirs["overrides"].pop("hydra")
        for place in (ours, theirs):  # which differ: whose launcher it is, where, and when
            del place["run"], place["launcher"], place["sweep"]["dir"], place["runtime"]["cwd"]
            del place["runtime"]["config_sources"], place["runtime"]["choices"]["hydra/launcher"]
        assert one["config"] == other["config"]
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert (key, ours[key]) == (key, value)


@pytest.mark.slow
def test_braces_reach_hydra_unchanged(application: Project) -> None:
    written = "{x} {{x}} {seed} {{seed}} {run_id} {{run_dir}} {point} {total_steps} {{{x}}}"
    values = ",".join(f"'{written} {number}'" for number in range(2))
    words = ("-m", f"+plain='{written}'", "+x=1,2", f"+swept={values}", "+run_dir=a")
    multirun(application, *words)
    files = sorted((application.folder / "multirun").rglob("told.json"))
    expected = [json.loads(file.read_text())["config"] for file in files]
    group = multirun(application, *words, "hydra/launcher=clusterkit").stdout.strip()
    assert [one["config"] for one in told(application, group)] == expected
    assert expected[0]["plain"] == written


@pytest.mark.slow
def test_a_job_whose_application_fails_is_a_failed_run(application: Project) -> None:
    with (application.folder / "conf" / "config.yaml").open("a") as file:
        file.write("wrong: ${nowhere}\n")
    group = multirun(application, "-m", "hydra/launcher=clusterkit", "seed=1,2").stdout.strip()
    application.ended(f"{group}-0", f"{group}-1")
    assert application.states() == ["FAILED", "FAILED"]


@pytest.mark.slow
def test_an_error_is_two_lines_and_an_exit_code(application: Project) -> None:
    words = ("-m", "hydra/launcher=clusterkit", "hydra.launcher.profile=nowhere", "seed=1,2")
    done = multirun(application, *words, code=3)
    assert done.stderr.startswith("error: there is no profile 'nowhere'\nnext:  ")


TWICE = ({"a_b": "1", "a_b_": "3"}, {"a_b": "2", "a_b_": "4"})


@pytest.mark.parametrize(
    ("jobs", "arguments", "points"),
    [
        ([["a=1"]], ("a=1",), ({},)),
        ([["db/x=1"], ["db/x=2"]], ("db/x={db_x}",), ({"db_x": "1"}, {"db_x": "2"})),
        ([["~a"], ["b=1"]], ("{override0}",), ({"override0": "~a"}, {"override0": "b=1"})),
        ([["profile=1"], ["profile=2"]], ("profile={profile_}",), ({"profile_": "1"}, {"profile_": "2"})),
        ([["seed=1"], ["seed=x"]], ("seed={seed_}",), ({"seed_": "1"}, {"seed_": "x"})),
        ([["point=1"], ["point=2"]], ("point={point_}",), ({"point_": "1"}, {"point_": "2"})),
        ([["a.b=1", "a_b=3"], ["a.b=2", "a_b=4"]], ("a.b={a_b}", "a_b={a_b_}"), TWICE),
        ([["run_dir=1"], ["run_dir=2"]], ("run_dir={run_dir_}",), ({"run_dir_": "1"}, {"run_dir_": "2"})),
        ([["a=1", "{a}{{b}}"], ["a=2", "{a}{{b}}"]], ("a={a}", "{{a}}{{b}}"), ({"a": "1"}, {"a": "2"})),
        ([["x={y:1}"], ["x={y:2}"]], ("x={x}",), ({"x": "{y:1}"}, {"x": "{y:2}"})),
    ],
)  # fmt: skip
def test_overrides_become_arguments_with_the_values_of_each_job(
    jobs: list[list[str]], arguments: tuple[str, ...], points: tuple[dict[str, str], ...]
) -> None:
    assert points_of(jobs) == (arguments, points)


def test_jobs_with_different_numbers_of_overrides_are_refused() -> None:
    with pytest.raises(ConfigError, match="different numbers of overrides"):
        points_of([["a=1"], ["a=1", "b=2"]])


def test_jobs_with_the_same_overrides_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="jobs 0 and 2 of this multirun would differ in name only: both have"
    ):
        points_of([["a=1"], ["a=2"], ["a=1"]])


def test_overrides_do_not_share_an_environment_variable() -> None:
    _, points = points_of(
        [["lr=1", "LR=1", "net.lr=1", "net_lr=1"], ["lr=2", "LR=2", "net.lr=2", "net_lr=2"]]
    )
    assert len({variable_of(name) for name in points[0]}) == 4
