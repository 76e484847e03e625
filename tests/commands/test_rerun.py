"""`clusterkit rerun` on the local cluster."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from clusterkit.sharing import archive
from tests.commands.conftest import CONFIG, Project

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each


def edit(project: Project) -> None:
    (project.folder / "train.py").write_text("raise SystemExit('the working tree')")


def rerun(project: Project, name: str, *more: str) -> str:
    run_id = project.run("rerun", name, *more).stdout.strip()
    project.ended(run_id)
    return run_id


def test_the_code_of_the_run_and_not_the_working_tree(project: Project) -> None:
    first = project.submit("--sbatch", "comment=mine", "--", "0", "two words", "it's")
    project.ended(first)
    edit(project)
    again = rerun(project, first, "--name", "second", "--time", "7m")
    assert again.startswith("second-")
    home = project.run_dir(again)
    assert json.loads((home / "arguments.json").read_text()) == ["0", "two words", "it's"]
    old, new = project.described(first), project.described(again)
    assert new["rerun_of"] == first
    assert new["env"] == old["env"] | {"WANDB_RUN_ID": again, "WANDB_DIR": str(home)}
    assert (new["run_id"], new["wandb"]["run_id"], new["time_limit_seconds"]) == (again, again, 420)
    assert {"--comment=mine", "--time-limit=420"} <= set(project.request(again)["options"])
    document = json.loads(project.run("diff", first, again, "--json").stdout)
    differing = {(each["section"], each["name"]) for each in document["differences"]}
    assert differing | {("run", "created")} == {  # within one second they were created at the same time
        ("run", "name"),
        ("run", "created"),
        ("profile", "time"),
        ("sbatch", "--time-limit"),
    }
    assert project.row(again)["state"] == "COMPLETED"


def test_a_dry_run_shows_what_would_run_and_changes_nothing(project: Project) -> None:
    first = project.submit("--", "0", "two words")
    project.ended(first)
    edit(project)
    project.run("status")
    before = sorted((path, path.stat().st_mtime_ns) for path in project.run_dir(first).parent.rglob("*"))
    done = project.run("rerun", first, "--name", "second", "--time", "7m", "--dry-run")
    assert "python train.py 0 'two words'" in done.stdout
    assert f", of {first}" in done.stdout
    assert "--time-limit=420" in done.stdout
    assert "dry run: nothing was sent or changed" in done.stderr
    document = json.loads(project.run("rerun", first, "--dry-run", "--json").stdout)
    (row,) = document["runs"]
    assert (document["carried_out"], row["rerun_of"], row["job_id"]) == (False, first, None)
    after = sorted((path, path.stat().st_mtime_ns) for path in project.run_dir(first).parent.rglob("*"))
    assert after == before
    assert len(json.loads(project.run("status", "--all", "--json").stdout)["runs"]) == 1
    assert "no-such-run" in project.run("rerun", "no-such-run", "--dry-run", code=8).stderr


def test_a_dry_run_of_a_group_shows_each_of_its_runs(project: Project) -> None:
    project.run("submit", "--name", "several", "--seeds", "1..2", "--yes", "--", "0")
    group = json.loads(project.run("status", "--json").stdout)["runs"][0]["group"]
    document = json.loads(project.run("rerun", group, "--dry-run", "--json", "--yes").stdout)
    assert [row["seed"] for row in document["runs"]] == [1, 2]
    assert len({row["run_id"] for row in document["runs"]}) == 2


def test_a_rerun_has_a_wandb_run_of_its_own_whatever_the_profile_says(project: Project) -> None:
    env = 'env = {WANDB_RUN_ID = "mine", WANDB_DIR = "/tmp/mine", WANDB_MODE = "online", OWN = "yes"}\n'
    project.add(f'[profiles.shared]\ntime = "5m"\n{env}')
    first = project.submit("--", "0")
    project.ended(first)
    again = rerun(project, first, "--profile", "shared")
    env = project.described(again)["env"]
    assert env["OWN"] == "yes"
    assert env["WANDB_RUN_ID"] == again
    assert env["WANDB_DIR"] == str(project.run_dir(again))
    assert env["WANDB_MODE"] == "offline"


def test_an_archive_in_another_project(project: Project, tmp_path: Path) -> None:
    project.add('env = {CLUSTERKIT_SWEEP_SEED = "1"}\n')  # of the profile, as a group of seeds has it
    first = project.submit("--", "0", "x")
    project.ended(first)
    packed = tmp_path / "run.tar.gz"
    project.run("export", first, "-o", str(packed))
    other = Project(tmp_path / "another project")
    other.folder.mkdir()
    (other.folder / "clusterkit.toml").write_text(CONFIG.replace("demo", "other"))
    again = rerun(other, str(packed), "--seed", "5")
    assert json.loads((other.run_dir(again) / "arguments.json").read_text()) == ["0", "x"]
    new = other.described(again)
    assert (new["seed"], new["project"], new["rerun_of"]) == (5, "other", first)
    assert new["env"]["CLUSTERKIT_SWEEP_SEED"] == "5"
    assert new["snapshot"] == project.described(first)["snapshot"]
    # It can be passed on once more, the same code.
    other.run("export", again, "-o", "again.tar.gz")

    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) // 2])
    before = list(other.run_dir("").iterdir())
    refused = other.run("rerun", str(packed), code=8)
    assert "cannot be read as an export" in refused.stderr
    assert list(other.run_dir("").iterdir()) == before
    assert "no such archive" in other.run("rerun", "gone.tar.gz", code=8).stderr


def test_nothing_of_an_archive_stays(project: Project, tmp_path: Path) -> None:
    first = project.submit("--", "0")
    project.ended(first)
    (project.run_dir(first) / "large").write_bytes(bytes(1 << 20))
    project.run("export", first, "-o", str(tmp_path / "run.tar.gz"))
    left = project.folder / ".clusterkit" / "work" / "tmpkilled"
    left.mkdir(parents=True)
    rerun(project, str(tmp_path / "run.tar.gz"))
    assert not left.exists()
    assert list(left.parent.iterdir()) == []
    whole = tmp_path / "whole"
    whole.mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "run.tar.gz"], cwd=whole, check=True)
    home = whole / first
    (home / "code" / "project" / "train.py").write_bytes(bytes(4 << 20))  # more than its manifest says
    names = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    archive.write(
        tmp_path / "bomb.tar.gz",
        first,
        {name: archive.of_file(home / name) for name in names if name != archive.SUMS},
    )
    refused = project.run("rerun", str(tmp_path / "bomb.tar.gz"), code=8)
    assert f"'code/project/train.py' has {4 << 20} bytes, " in refused.stderr
    assert list(left.parent.iterdir()) == []


def test_code_that_is_gone(project: Project) -> None:
    first = project.submit("--", "0")
    project.ended(first)
    project.run("export", first)  # keeps a copy of the code here
    snapshots = project.folder / ".clusterkit" / "local" / "snapshots"
    (code,) = (path.parent for path in snapshots.glob("*/project"))
    shutil.move(code, project.folder / "gone")
    edit(project)
    rerun(project, first)
    assert (code / "project" / "train.py").is_file()
    for path in (code, project.folder / ".clusterkit" / "snapshots"):
        shutil.move(path, project.folder / f"gone-{path.name}")
    assert "is no longer there" in project.run("rerun", first, code=8).stderr


def test_a_training_with_another_seed(project: Project) -> None:
    toml = project.folder / "clusterkit.toml"
    toml.write_text(toml.read_text().replace('program = ["python", "train.py"]\n', ""))
    first = project.submit("-p", "local-demo", "--set", "gamma=0.9", "--unlock", "gamma")
    project.run("cancel", first, "--yes")
    again = project.run("rerun", first, "--seed", "9", "--total-steps", "50000").stdout.strip()
    project.run("cancel", again, "--yes")
    old, new = project.described(first), project.described(again)
    assert new["argv"] == [
        *(word for place, word in enumerate(old["argv"]) if not _seed_or_steps(old["argv"], place)),
        *("--seed", "9", "--total-steps", "50000"),
    ]
    assert (new["seed"], new["total_steps"], new["recipe"]) == (9, 50_000, old["recipe"])


def _seed_or_steps(argv: list[str], place: int) -> bool:
    return any(argv[at] in ("--seed", "--total-steps") for at in (place, place - 1))
