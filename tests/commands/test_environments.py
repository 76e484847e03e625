"""A project's environment through the commands, on this machine: built, used, shown, explained, removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.commands.conftest import Project
from tests.doubles.wheels import index, wheel

pytestmark = pytest.mark.slow

PROGRAM = "import alpha, json, os, sys; json.dump([alpha.version, sys.prefix], open('out.json', 'w'))\n"


@pytest.fixture
def own(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project with a list of packages, and a folder that is pip's index."""
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "index", "alpha", version)
    for name, value in index(tmp_path / "index").items():
        monkeypatch.setenv(name, value)
    settings = project.folder / "clusterkit.toml"
    settings.write_text(
        settings.read_text().replace("[project]", '[project]\nenvironment = "requirements.txt"')
    )
    (project.folder / "requirements.txt").write_text("alpha==1.0\n")
    (project.folder / "train.py").write_text(PROGRAM)
    return project


def used(project: Project, run_id: str) -> list[str]:
    return list(json.loads((project.run_dir(run_id) / "work/out.json").read_text()))


def place(project: Project, run_id: str) -> Path:
    return Path(json.loads((project.run_dir(run_id) / "run.json").read_text())["environment"]["path"])


def test_the_environment_is_built_once_and_anew_when_its_file_changes(own: Project) -> None:
    dry = own.run("submit", "--dry-run").stdout
    assert "requirements.txt: 1 package, environment " in dry
    assert "is built by the first job" in own.run("plan").stdout
    assert json.loads(own.run("plan", "--json").stdout)["upload"]["environment"]["built"] == []
    submitted = own.run("submit", "--seeds", "1..3", "--yes")
    assert "builds the environment of requirements.txt" in submitted.stderr
    group = submitted.stdout.strip()
    names = [run["run_id"] for run in json.loads(own.run("status", group, "--json").stdout)["runs"]]
    for name in names:
        own.ended(name)
    assert {tuple(used(own, name)) for name in names} == {tuple(used(own, names[0]))}
    version, prefix = used(own, names[0])
    assert version == "1.0"
    assert Path(prefix).is_relative_to(place(own, names[0]))
    logs = [(own.run_dir(name) / "attempts/0/log").read_text() for name in names]
    assert sum("the environment is built" in log for log in logs) == 1
    assert "(1 package) is there" in own.run("plan").stdout
    (own.folder / "requirements.txt").write_text("alpha==2.0\n")
    changed = own.submit()
    own.ended(changed)
    assert used(own, changed)[0] == "2.0"
    again = own.run("rerun", names[0]).stdout.strip()
    own.ended(again)
    assert used(own, again) == [version, prefix]
    assert (own.run_dir(again) / "environment.txt").read_text() == "alpha==1.0\n"


def test_deploy_builds_it_and_prune_removes_what_no_run_uses(own: Project) -> None:
    deployed = json.loads(own.run("deploy", "--json").stdout)["environment"]
    assert deployed["built"][0] > 0
    store = own.folder / ".clusterkit/local/environments"
    run_id = own.submit()
    own.ended(run_id)
    (own.folder / "requirements.txt").write_text("alpha\n")
    own.run("deploy")
    (unused,) = {path.name for path in store.iterdir() if path.name[0] != "."} - {deployed["digest"]}
    rows = json.loads(own.run("storage", "list", "--json").stdout)["environments"]
    assert {row["digest"]: row["runs"] for row in rows} == {unused: [], deployed["digest"]: [run_id]}
    assert unused[:12] in own.run("storage", "prune", "--yes").stderr
    assert (store / unused).is_dir(), "it may be about to be used"
    job = store.parent / "builds/environment-1/job.sh"  # of a job that has built it long ago
    job.parent.mkdir(parents=True)
    job.write_text(f"environments/{unused}\n")
    for path in (*store.iterdir(), job, job.parent):
        os.utime(path, (1, 1))
    done = json.loads(own.run("storage", "prune", "--yes", "--json").stdout)
    assert [one["digest"] for one in done["environments"]] == [unused]
    assert not job.parent.exists()
    assert {path.name for path in store.iterdir() if path.name[0] != "."} == {deployed["digest"]}


def test_a_run_whose_environment_is_gone_has_it_built_again_from_its_code(own: Project) -> None:
    (own.folder / "train.py").write_text(f"{PROGRAM}sys.exit(3)\n")
    run_id = own.submit()
    own.ended(run_id)
    os.utime(place(own, run_id), (1, 1))
    own.run("storage", "prune", "--ended", "--yes")
    assert not place(own, run_id).exists()
    (own.folder / "requirements.txt").unlink()
    own.run("resume", run_id)
    own.until((own.run_dir(run_id) / "attempts/1/exit.json").exists)
    assert "the environment is built" in (own.run_dir(run_id) / "attempts/1/log").read_text()


def test_what_cannot_be_built_is_explained(own: Project) -> None:
    (own.folder / "requirements.txt").write_text("alpha==3.0\n")
    assert "No matching distribution" in own.run("deploy", code=3).stderr
    run_id = own.submit()
    own.ended(run_id)
    why = json.loads(own.run("why", "--json", run_id).stdout)
    assert why["cause"] == "environment-packages"
    (own.folder / "requirements.txt").write_text("-e .\n")
    assert "does not travel" in own.run("submit", code=3).stderr


def test_packages_that_are_fetched_first_need_no_index_in_the_job(own: Project) -> None:
    settings = own.folder / "clusterkit.toml"
    table = '[clusters.local]\nkind = "local"\ncontainer = "none"\nroot = "{}"\npackages = "login"\n'
    settings.write_text(settings.read_text() + table.format(own.folder / ".clusterkit/local"))
    run_id = own.submit()
    own.ended(run_id)
    log = (own.run_dir(run_id) / "attempts/0/log").read_text()
    assert "environments/" in log.partition("Looking in links: ")[2].partition("\n")[0]
    assert used(own, run_id)[0] == "1.0"


def test_init_proposes_it(own: Project) -> None:
    (own.folder / "clusterkit.toml").unlink()
    own.run("init", "--local", "--yes")
    written = (own.folder / "clusterkit.toml").read_text()
    assert 'environment = "requirements.txt"' in written
