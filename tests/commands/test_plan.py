"""clusterkit plan on this machine: what it says, and that it leaves everything as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs.tools import presets
from tests.commands.conftest import Project, Tool
from tests.results.run_dirs import make_run_dir
from trainer import recipe as recipes

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
SETTINGS = """
[clusters.far]
host = "nowhere.invalid"
root = "/share/$USER"
image = "none.sif"

[clusters.far.gpus.a40]
memory = "48G"

[clusters.far.gpus.tiny]
memory = "1G"
"""


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    paths = [folder, *folder.rglob("*")]
    return {str(path): (at.st_mode, at.st_size, at.st_mtime_ns) for path in paths if (at := path.lstat())}


def plans(project: Project, *words: str) -> dict[str, Any]:
    return dict(json.loads(project.run("plan", "--json", *words).stdout))


def pulls(project: Project, name: str, *, speed: float, num_envs: int = 32, gpu: str | None = "a40") -> None:
    """A run of the lab guides' recipe, as sync-results leaves it here."""
    make_run_dir(
        project.folder / "results",
        name,
        recipe="guide-mt10",
        values=recipes.load("guide-mt10").as_json()["values"],
        speed=speed,
        steps=int(speed * 3600),
        profile={"gpu": gpu},
        header={"num_envs": num_envs, "precision": "tf32", "device": "NVIDIA A40"},
        machine={"memory/rss_bytes": 9.5 * GIB, "gpu/memory_bytes": 1.5 * GIB},
        cluster="local",
    )


@pytest.fixture
def trains(project: Project) -> Project:
    """A project that trains recipes and has a cluster that cannot be reached."""
    settings = project.folder / "clusterkit.toml"
    settings.write_text(settings.read_text().replace('program = ["python", "train.py"]\n', "") + SETTINGS)
    return project


@pytest.mark.slow
def test_it_changes_nothing_and_needs_no_ledger(trains: Project) -> None:
    before = tree(trains.folder)
    shown = trains.run("plan", "--profile", "local-demo").stdout
    assert tree(trains.folder) == before
    assert "node memory" in shown
    assert re.search(r"replay +44 MiB +256,000 transitions", shown)
    assert "measured by clusterkit (the recipe's prototype" in shown
    assert "it starts now: this machine has no queue" in shown
    assert trains.run("status", "--json").stdout
    before = tree(trains.folder)
    plans(trains, "--profile", "local-demo")
    assert tree(trains.folder) == before


@pytest.mark.slow
def test_runs_that_are_here_tell_the_time(trains: Project) -> None:
    none = plans(trains, "--profile", "a40-2m", "--cluster", "local")
    assert none["time"] is None
    pulls(trains, "a40-2m-1", speed=500.0)
    pulls(trains, "a40-2m-2", speed=600.0)
    pulls(trains, "other-gpu", speed=9000.0, gpu="a100")
    found = plans(trains, "--profile", "a40-2m", "--cluster", "local")
    assert found["time"]["source"] == "2 runs of yours"
    assert found["time"]["steps_per_second"] == pytest.approx(550.0, rel=0.05)
    duration = found["time"]["duration"]
    assert duration["seconds"] == pytest.approx(2_000_000 / 550, rel=0.05)
    assert duration["shortest"] < duration["seconds"] < duration["longest"]
    assert found["seen"]["memory"] == 9.5 * GIB
    shown = trains.run("plan", "--profile", "a40-2m", "--cluster", "local", "--time", "30m").stdout
    assert "2 runs of yours" in shown
    assert "--until-done continues past it, in up to 3 of 30m" in shown
    assert "at most 1.5 GiB of the GPU, 9.5 GiB of the node" in shown
    assert "steps/s on a100, by you" in shown
    ten = trains.run("plan", "--profile", "a40-2m", "--cluster", "local", "--", "--num-envs", "10").stdout
    assert "measured with 32 environments, not 10" in ten
    away = trains.run("plan", "--profile", "a40-2m", "--cluster", "far").stdout
    assert re.search(r"time +.* to .*: not measured here, .*2 runs of yours \(on local\)", away, re.DOTALL)


@pytest.mark.slow
def test_runs_that_shared_a_process_tell_their_speed_and_no_memory(trains: Project) -> None:
    pulls(trains, "shared", speed=100.0)
    request = trains.folder / "results/shared/submissions/0/request.json"
    request.parent.mkdir(parents=True)
    request.write_text('{"in_one": 8}')
    found = plans(trains, "--profile", "a40-2m", "--cluster", "local")
    assert found["time"]["steps_per_second"] == pytest.approx(100.0, rel=0.05)
    assert found["time"]["caveats"] == ["measured with 8 runs in one process, not with one"]
    assert found["seen"] is None
    pulls(trains, "alone", speed=500.0)
    time = plans(trains, "--profile", "a40-2m", "--cluster", "local")["time"]
    assert (time["source"], time["caveats"]) == ("your run alone", [])


def test_a_cluster_out_of_reach_takes_only_its_part_of_the_plan(trains: Project) -> None:
    done = trains.run("plan", "--profile", "a40-2m", "--cluster", "far")
    assert re.search(r"total +1.9 GiB +fits: 44 GiB of 48 GiB", done.stdout)
    assert re.search(r"upload +not known", done.stdout)
    assert "nowhere.invalid" in done.stderr
    found = plans(trains, "--profile", "a40-2m", "--cluster", "far")
    assert (found["upload"], found["starts"]) == (None, [])
    assert "nowhere.invalid" in found["trouble"][0]


def test_what_does_not_fit_has_a_cure(trains: Project) -> None:
    trains.add('\n[profiles.small]\nextends = "a40-2m"\nmemory = "4G"\n')
    found = plans(trains, "--profile", "small", "--cluster", "local")
    assert found["memory_bytes"] == 4 * GIB
    assert found["memory"]["host"]["fit"] == "too large"
    assert 'memory = "' in found["memory"]["host"]["advice"]


@pytest.mark.slow
def test_an_environment_of_your_own_leaves_its_memory_open_until_you_say_its_sizes(trains: Project) -> None:
    own = ["--profile", "beast", "--set", "environment=mine:Maze-v0", "--unlock", "environment"]
    found = plans(trains, *own, "--cluster", "local")
    assert (found["recipe"], found["num_envs"], found["memory"]) == ("guide-ppo-beast", 64, None)
    shown = trains.run("plan", *own, "--cluster", "local").stdout
    assert "only mine:Maze-v0 knows how large an observation is" in shown.replace("\n", " ")
    wrong = ["--profile", "beast", "--set", "environment=HalfCheeta-v5", "--unlock", "environment"]
    shown = trains.run("plan", *wrong, "--cluster", "local").stdout
    assert "did you mean HalfCheetah-v5 or HalfCheetah-v4?" in shown
    said = ["--observation-dim", "60", "--action-choices", "3,3"]
    parts = plans(trains, *own, "--cluster", "local", *said)["memory"]["gpu"]["parts"]
    assert {part["name"]: part["bytes"] for part in parts}["rollout"] == 32_768 * (2 * 60 + 2 + 3) * 4
    half = trains.run("plan", *own, "--observation-dim", "60", code=3).stderr
    assert "--observation-dim goes with --action-dim" in half
    known = trains.run("plan", "-p", "a40-2m", "--observation-dim", "60", "--action-dim", "4", code=3).stderr
    assert "guide-mt10 trains on Meta-World, whose sizes are known" in known


@pytest.mark.slow
def test_several_gpus_have_a_share_each(trains: Project) -> None:
    one, two = (plans(trains, "-p", "beast", "--cluster", "local", "--ranks", str(n)) for n in (1, 2))
    assert (one["ranks"], two["ranks"], two["gpus"]) == (1, 2, 2)
    rollouts = [
        part["bytes"]
        for each in (one, two)
        for part in each["memory"]["gpu"]["parts"]
        if part["name"] == "rollout"
    ]
    assert rollouts[1] == rollouts[0] // 2
    shown = trains.run("plan", "-p", "beast", "--cluster", "local", "--ranks", "2").stdout
    assert "2 ranks of 32 environments, 4,096 of a batch" in shown
    assert "GPU memory, rtx4070, each of 2" in shown
    uneven = trains.run("plan", "-p", "a40-2m", "--cluster", "local", "--ranks", "3", code=3).stderr
    assert "a40-2m, learnt on 3 GPUs: 32 environments cannot be shared by 3 ranks; 30 or 33 can" in uneven
    none = trains.run("plan", "-p", "local-demo", "--ranks", "2", code=3).stderr
    assert "profile local-demo asks for no GPU" in none


def test_the_presets_memory_table_is_what_is_reckoned() -> None:
    text = presets.PAGE.read_text(encoding="utf-8")
    assert text == presets.page(text), "make it anew: python -m docs.tools.presets"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--profile", "a40-2m", "--set", "gamma=0.9"], 7, "gamma is locked"),
        (["--profile", "a40-2m", "--times", "soon"], 3, "'soon' is not a duration"),
        (["--profile", "a40-2m", "--times", "5s"], 3, "no time limit"),
        (["--profile", "a40-2m", "--gpus", "h100", "--cluster", "far"], 3, "available: a40, tiny"),
        (["a40-2m"], 3, "unexpected argument"),
    ],
)
def test_what_is_wrong_ends_in_one_line(trains: Project, words: list[str], code: int, said: str) -> None:
    assert said in trains.run("plan", *words, code=code).stderr


@pytest.mark.slow
def test_a_program_of_the_user_s_own(project: Project) -> None:
    found = plans(project, "--profile", "tiny")
    assert (found["memory"], found["time"], found["recipe"]) == (None, None, None)
    assert found["upload"]["code_files"] > 0
    assert "your own program" in project.run("plan").stdout


@pytest.mark.slow
def test_every_key_of_the_json_is_documented(trains: Project) -> None:
    pulls(trains, "mine", speed=500.0)
    page = (ROOT / "docs" / "plan.md").read_text()

    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {key for each in value.values() for key in keys(each)}
        return {key for each in value for key in keys(each)} if isinstance(value, list) else set()

    found = keys(plans(trains, "--profile", "a40-2m", "--cluster", "local", "--until-done"))
    assert sorted(key for key in found if f"`{key}`" not in page) == []


SLURM_HERE = """
[clusters.here]
root = "{root}"
max_time = "2d"

[clusters.here.gpus.a40]
partition = "gpu"
memory = "48G"
"""


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("Job 7 to start at 2030-01-02T03:04:05 using 4 processors on n1 in partition gpu", "at the latest"),
        ("allocation failure: Requested node configuration is not available", "request less"),
    ],
)
def test_a_site_without_an_image_still_says_when(
    trains: Project, tmp_path: Path, tool: Tool, said: str, seen: str
) -> None:
    for name, text in {
        "sbatch": f"echo '{said}'",
        "squeue": "echo gpu",
        "scontrol": "",
        "sshare": "",
    }.items():
        tool(name, text)
    trains.add(SLURM_HERE.format(root=tmp_path / "root"))
    done = trains.run("plan", "--profile", "a40-2m", "--cluster", "here", "--times", "1h,9d")
    assert seen in done.stdout
    if seen == "at the latest":
        assert re.search(r"a40 +9d +.* allows 2d \(clusters.here.max_time\)", done.stdout)
    assert "has no image" in done.stderr
    assert re.search(r"upload +not known", done.stdout)
    assert not (tmp_path / "root").exists()


GIANT = '\n[profiles.giant]\nextends = "h200-20m"\ngpus = 10\n'


@pytest.mark.slow
def test_a_machine_without_the_gpus_is_not_approved(trains: Project) -> None:
    trains.add(GIANT)
    planned = plans(trains, "--profile", "giant", "--cluster", "local")
    assert planned["lacking"][0]["never"]
    assert planned["lacking"][0]["text"].startswith("10 h200 requested, ")
    assert planned["starts"][0]["wait_seconds"] is None
    words = ("doctor", "--json", "--no-job", "--profile", "giant", "--cluster", "local")
    checks = json.loads(trains.run(*words, code=1).stdout)["checks"]
    (check,) = [check for check in checks if check["name"] == "profile"]
    assert check["outcome"] == "fail"
    assert "--profile local-demo" in check["cure"]
    for words in (("submit",), ("submit", "--dry-run"), ("submit", "--seeds", "1..2")):
        said = trains.run(*words, "--profile", "giant", "--cluster", "local", code=5).stderr
        assert "giant can never run on local: 10 h200 requested, " in said
        assert "`--profile local-demo" in said
    assert not list(trains.folder.glob(".clusterkit/local/runs/*"))


@pytest.mark.slow
def test_what_a_machine_has_too_little_of_is_said_and_no_refusal(trains: Project) -> None:
    trains.add('\n[profiles.wide]\nextends = "local-demo"\ncpus = 9999\nmemory = "90T"\n')
    planned = plans(trains, "--profile", "wide", "--cluster", "local")
    assert [one["never"] for one in planned["lacking"]] == [False, False]
    assert planned["memory"]["host"]["available"] < 90 << 40
    assert planned["starts"][0]["wait_seconds"] == 0.0
    said = trains.run("submit", "--dry-run", "--profile", "wide", "--cluster", "local")
    assert said.returncode == 0
