"""The whole path on the local cluster, through the real command line."""

import json
import subprocess

import pytest

from tests.allowing import allow
from tests.commands.conftest import Project


@pytest.mark.slow
def test_a_run_from_submit_to_results(project: Project) -> None:
    arguments = ["--flag", "two words", "", 'it\'s "$HOME" `x`', "ünï\ncode", "--"]
    run_id = project.submit("--name", "first", "--", *arguments)
    project.ended(run_id)
    run_dir = project.run_dir(run_id)
    assert json.loads((run_dir / "arguments.json").read_text()) == arguments
    assert run_dir.stat().st_mode & 0o777 == 0o700
    spec = project.described(run_id)
    assert spec["argv"] == ["python", "train.py", *arguments]
    assert (spec["run_id"], spec["name"]) == (run_id, "first")
    row = project.row(run_id)
    assert (row["state"], row["progress"]) == ("COMPLETED", 0.4)
    assert "no such runs" in project.run("status", "--state", "failed").stderr
    assert "no run is active" in project.run("status", "--watch").stderr
    assert f"hello from {run_id}" in project.run("logs", run_id).stdout
    project.run("sync-results")
    home = project.folder / "results" / run_id
    assert (home / "arguments.json").read_text() == (run_dir / "arguments.json").read_text()
    assert json.loads((home / "attempts" / "0" / "exit.json").read_text())["code"] == 0


@pytest.mark.slow
def test_nothing_of_the_prelude_or_the_submitting_shell_reaches_what_is_removed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = project.folder.parent / "my-scratch"
    theirs.mkdir()
    (theirs / "only-copy").touch()
    lines = [f"scratch={theirs}; work={theirs}", "export DATA=$scratch/sets", "source /no/such/activate"]
    root = project.folder / ".clusterkit/local"
    table = f'[clusters.local]\nkind = "local"\ncontainer = "none"\nroot = "{root}"\n'
    project.add(f"{table}prelude = {json.dumps(lines)}\n")
    monkeypatch.setenv("BASH_FUNC_mv%%", "() {  :\n}")
    run_id = project.submit("--", "3")
    project.ended(run_id)
    assert project.row(run_id)["state"] == "FAILED"
    why = json.loads(project.run("why", "--json", run_id).stdout)
    assert why["cause"] == "prelude-failed"
    allow(project.folder)
    project.run("doctor", "--cluster", "local")
    assert (theirs / "only-copy").exists()


@pytest.mark.slow
def test_a_queued_run_keeps_its_code(project: Project) -> None:
    run_id = project.submit("--", "sleep")
    workdir = project.run_dir(run_id) / "cwd"
    project.until(workdir.exists)
    (project.folder / "train.py").write_text("raise SystemExit('edited')")
    assert workdir.read_text() == str(project.run_dir(run_id) / "work")
    assert "hello from" in (project.run_dir(run_id) / "work" / "train.py").read_text()
    project.run("cancel", run_id)


LEAK = """
import json, os, sys
step = json.load(open("checkpoints/latest.json"))["step"] if os.path.exists("checkpoints/latest.json") else 0
os.makedirs("checkpoints", exist_ok=True)
json.dump({"step": step + 10, "seed": os.environ["CLUSTERKIT_SEED"]}, open("checkpoints/latest.json", "w"))
open("notes.txt", "a").write("changed")
"""


@pytest.mark.slow
def test_no_run_sees_what_another_wrote_beside_its_code(project: Project) -> None:
    """A program that resumes from a relative path once resumed the checkpoint of another seed, in silence."""
    (project.folder / "train.py").write_text(LEAK)
    (project.folder / "notes.txt").write_text("code, ")
    group = project.submit("--seeds", "1..3")
    later = project.submit("--seed", "4")
    runs = [*(f"{group}-{index}" for index in range(3)), later]
    project.ended(*runs)
    project.run("sync-results", *runs)
    for seed, run_id in enumerate(runs, 1):
        work = project.folder / "results" / run_id / "work"
        latest = json.loads((work / "checkpoints" / "latest.json").read_text())
        assert latest == {"step": 10, "seed": str(seed)}
        assert sorted(path.name for path in work.iterdir()) == ["checkpoints", "notes.txt"]
        assert (work / "notes.txt").read_text() == "code, changed"
    (snapshot,) = (project.folder / ".clusterkit" / "local" / "snapshots").glob("*/project")
    assert (snapshot / "notes.txt").read_text() == "code, "
    assert not (snapshot / "checkpoints").exists()


@pytest.mark.slow
def test_nothing_is_sent_while_git_fails(project: Project) -> None:
    subprocess.run(["git", "init", "-q", project.folder], check=True)
    (project.folder / ".gitignore").write_text("data\n")
    (project.folder / "data").write_text("ignored")
    (project.folder / ".git" / "index").write_bytes(b"x" * 100)
    for command in ("submit", "deploy"):
        refused = project.run(command, code=1).stderr
        assert "index file corrupt" in refused
        assert "git reset" in refused
    here = project.folder / ".clusterkit"
    assert not [path for path in here.rglob("*") if path.name in ("data", "train.py", "run.json")]
    (project.folder / ".git" / "index").unlink()
    project.submit()
    assert {path.name for path in here.rglob("*")} >= {"train.py", "run.json"}
    assert not list(here.rglob("data"))


def test_a_dry_run_fits_a_screen_and_changes_nothing(project: Project) -> None:
    shown = project.run("submit", "--dry-run", "--", "a b").stdout
    assert len(shown.splitlines()) <= 8
    told = {line[:12].strip(): line[12:] for line in shown.splitlines()}
    assert told["program"] == "python train.py 'a b'"
    assert told["where"].startswith(f"local: {project.folder}/.clusterkit/local/runs/tiny-")
    assert told["resources"] == "5m, 1 CPU (profile tiny)"
    assert list(told)[:4] == ["run", "program", "resources", "code"]
    assert told["code"].endswith(", 2 files: clusterkit.toml, train.py")
    assert "#!/bin/bash" not in shown
    assert not (project.folder / ".clusterkit" / "local").exists()


@pytest.mark.parametrize("words", [("submit", "--dry-run"), ("submit",), ("plan",)])
def test_settings_that_a_program_cannot_get_are_noted(project: Project, words: tuple[str, ...]) -> None:
    text = "tiny: only the bundled trainer reads num_envs, stop_at; your program gets nothing of it\n"
    assert text not in project.run(*words).stderr
    project.add("stop_at = 0.9\nnum_envs = 4\n")
    assert project.run(*words).stderr.count(text) == 1


@pytest.mark.parametrize("words", [("--script",), ("--dry-run", "--script")])
def test_the_script_alone_is_a_script(project: Project, words: tuple[str, ...]) -> None:
    shown = project.run("submit", *words, "--", "a b").stdout
    assert shown.startswith("#!/bin/bash -p\n")
    subprocess.run(["bash", "-n"], input=shown, text=True, check=True)
    assert not (project.folder / ".clusterkit" / "local").exists()


@pytest.mark.slow
def test_past_the_time_limit(project: Project) -> None:
    shown = project.run("submit", "--until-done", "--script")
    assert "it goes on in another attempt" in shown.stdout
    assert "#SBATCH" not in shown.stdout, "no scheduler reads it here"
    project.add("until_done = true\n")  # of the profile
    assert "--requeue" in project.run("submit", "--dry-run").stdout
    assert "--requeue" not in project.run("submit", "--dry-run", "--not-until-done").stdout
    done = project.run("submit")
    assert "continues past its time limit by requeue: this machine starts it again" in done.stderr
