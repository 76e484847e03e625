"""`clusterkit storage clean` over a real sshd: what goes, what stays, and that nothing is lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.cli import storage_clean as verb
from clusterkit.results.cleaning import remove_argv
from clusterkit.results.code_copies import code_argv
from tests.commands.conftest import Project
from tests.doubles.full_disk import fill, small_disk
from tests.doubles.slurm_site import Member, SlurmSite
from tests.results.node_runs import make_checkpoint, segment, write
from tests.waiting import until

pytestmark = pytest.mark.slow

DONE, FAILED, RUNNING = (
    Member(1, JobState.COMPLETED),
    Member(2, JobState.FAILED),
    Member(3, JobState.RUNNING),
)


@pytest.fixture
def site(site: SlurmSite) -> SlurmSite:
    members = [DONE, FAILED, RUNNING]
    site.knows(members)
    for member in members:
        folder = there(site, member)
        make_checkpoint(folder, 1000)
        make_checkpoint(folder, 2000, shared=[1000])
        os.utime(folder / "checkpoints/step-000000001000/manifest.json", (1e9, 1e9))
        write(folder / "metrics.jsonl", '{"kind": "train"}\n')
        write(folder / "attempts/0/log", "short\n")
        write(folder / "attempts/0/stderr", "long\n" * 300_000)
        write(folder / "wandb/offline-run-1/run-1.wandb", os.urandom(9000))
    return site


def there(site: SlurmSite, member: Member) -> Path:
    return site.root / "runs" / member.run_id


def here(site: SlurmSite, member: Member) -> Path:
    return site.project / "results" / member.run_id


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def sync(site: SlurmSite, *words: str) -> str:
    return site.types("sync-results", "--no-wandb", *words).stdout


def test_what_is_here_goes_and_what_is_needed_stays(site: SlurmSite) -> None:
    sync(site, "--checkpoints", "all")
    before = {member: names(there(site, member)) for member in (DONE, RUNNING)}
    copies = {name: (here(site, DONE) / name).read_bytes() for name in names(here(site, DONE))}
    logins, trips = site.server.accepted_logins(), site.round_trips()
    done = site.types("storage", "clean", "--yes")
    assert site.server.accepted_logins() == logins + 1
    assert site.round_trips() <= trips + 6  # states, listing, two cleaned.json, and one for all comparisons
    gone = before[DONE] - names(there(site, DONE))
    assert gone == {
        "checkpoints/step-000000001000/manifest.json",
        "checkpoints/step-000000001000/model.pt",
        "checkpoints/step-000000001000/replay.pt",
        "attempts/0/stderr",
        "wandb/offline-run-1/run-1.wandb",
    }
    assert names(there(site, DONE)) - before[DONE] == {"cleaned.json"}
    assert names(there(site, RUNNING)) == before[RUNNING]
    assert not (there(site, DONE) / "wandb").exists()
    assert "freed, of 2 runs" in done.stdout
    assert {name: (here(site, DONE) / name).read_bytes() for name in copies} == copies

    mark = json.loads((there(site, DONE) / "cleaned.json").read_text())
    (entry,) = mark["cleanings"]
    assert set(entry["files"]) == gone
    assert entry["files"]["wandb/offline-run-1/run-1.wandb"] == {
        "bytes": 9000,
        "sha256": hashlib.sha256(copies["wandb/offline-run-1/run-1.wandb"]).hexdigest(),
    }
    assert abs(entry["time"] - time.time()) < 100
    assert "@" in entry["by"]

    states = {run["run_id"]: run["state"] for run in site.status("--all")["runs"]}
    assert states[DONE.run_id] == "COMPLETED"
    assert names(there(site, FAILED)) >= {"checkpoints/step-000000002000/model.pt"}
    assert site.types("storage", "clean", "--yes").stdout == ""
    sync(site)  # and it does not bring older checkpoints in the place of what has gone
    assert {name: (here(site, DONE) / name).read_bytes() for name in copies} == copies


def test_all_takes_the_newest_checkpoint_too(site: SlurmSite) -> None:
    sync(site)
    assert not (here(site, DONE) / "checkpoints/step-000000001000").exists()
    site.types("storage", "clean", "--yes", "--last-checkpoint", DONE.run_id)
    left = {name for name in names(there(site, DONE)) if name.startswith("checkpoints")}
    assert left == {  # never here, so it stays
        "checkpoints/step-000000001000/manifest.json",
        "checkpoints/step-000000001000/model.pt",
        "checkpoints/step-000000001000/replay.pt",
        f"checkpoints/{segment(1000)}",
        f"checkpoints/{segment(2000)}",
    }
    sync(site)
    assert not (here(site, DONE) / "checkpoints/step-000000001000").exists()
    sync(site, "--checkpoints", "all")
    site.types("storage", "clean", "--yes", "--last-checkpoint", DONE.run_id)
    assert not (there(site, DONE) / "checkpoints").exists()
    mark = json.loads((there(site, DONE) / "cleaned.json").read_text())
    assert len(mark["cleanings"]) == 2


def test_what_differs_by_one_bit_stays(site: SlurmSite) -> None:
    sync(site)
    log = there(site, DONE) / "wandb/offline-run-1/run-1.wandb"
    data = bytearray(log.read_bytes())
    data[5] ^= 1
    log.write_bytes(data)
    done = site.types("storage", "clean", "--yes", DONE.run_id)
    assert log.read_bytes() == data
    assert "differs from the local copy" in done.stderr
    mark = json.loads((there(site, DONE) / "cleaned.json").read_text())
    assert set(mark["cleanings"][0]["files"]) == {"attempts/0/stderr"}


def test_it_asks_and_says_how_much(site: SlurmSite) -> None:
    sync(site)
    before = names(there(site, DONE))
    done = site.types("storage", "clean", "--dry-run")
    assert f"{DONE.run_id}  1.4 MiB" in done.stdout
    assert "step-000000002000  13 KiB" in done.stdout
    assert "would free 2.9 MiB on far; nothing was removed" in done.stderr
    refused = site.types("storage", "clean", code=3)
    assert "--yes or --dry-run" in refused.stderr
    assert names(there(site, DONE)) == before


def test_only_what_is_old(site: SlurmSite) -> None:
    sync(site)
    for path in there(site, FAILED).rglob("*"):
        os.utime(path, (time.time() - 40 * 86400,) * 2)
    site.types("storage", "clean", "--yes", "--older", "30d")
    assert (there(site, FAILED) / "cleaned.json").exists()
    assert not (there(site, DONE) / "cleaned.json").exists()
    assert "--older" in site.types("storage", "clean", "--older", "soon", code=3).stderr


def test_runs_that_are_left_alone(site: SlurmSite) -> None:
    sync(site)
    done = site.types("storage", "clean", "--yes", RUNNING.run_id)
    assert "is left alone: it is RUNNING and may still change" in done.stderr
    shutil.rmtree(there(site, DONE))
    assert "is not on the cluster any more" in site.types("storage", "clean", "--yes", DONE.run_id).stderr
    shutil.rmtree(here(site, FAILED))
    assert "nothing to remove" in site.types("storage", "clean", "--yes", FAILED.run_id).stderr
    assert names(there(site, FAILED)) >= {"attempts/0/stderr"}
    assert "no run 'nobody'" in site.types("storage", "clean", "nobody", code=8).stderr


def test_the_only_copy_is_never_removed(site: SlurmSite) -> None:
    """The folder of results is that of the runs, by a mount or by a setting."""
    (site.project / "results").symlink_to(site.root / "runs")
    before = names(there(site, DONE))
    done = site.types("storage", "clean", "--yes", "--last-checkpoint", DONE.run_id, code=8)
    assert "there is no second copy" in done.stderr
    assert names(there(site, DONE)) == before


def test_a_link_here_is_no_copy(site: SlurmSite) -> None:
    """The file here could be the very one on the cluster, by way of a mounted disk."""
    sync(site)
    shutil.rmtree(here(site, DONE) / "wandb")
    (here(site, DONE) / "wandb").symlink_to(there(site, DONE) / "wandb")
    site.types("storage", "clean", "--yes", DONE.run_id)
    assert (there(site, DONE) / "wandb/offline-run-1/run-1.wandb").exists()


def test_a_run_that_becomes_a_link_meanwhile_loses_nothing(tmp_path: Path) -> None:
    """What lies behind it may be the copy here itself, where home is on the same disks."""
    copy = write(tmp_path / "results/run-1/attempts/0/stderr", "long\n").parent
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/run-1").symlink_to(tmp_path / "results/run-1")
    lines = ["run", "1", "run-1", "0", hashlib.sha256(b"long\n").hexdigest(), "run-1/attempts/0/stderr"]
    argv = remove_argv(str(tmp_path / "runs"), ".clean-x")
    said = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(argv, input=said, capture_output=True, text=True, check=True)
    assert done.stdout == "end\n"
    assert names(copy) == {"stderr"}


def test_a_run_that_was_submitted_again_meanwhile(site: SlurmSite, monkeypatch: pytest.MonkeyPatch) -> None:
    sync(site)
    before = names(there(site, DONE))

    def resumed(*arguments: Any) -> Any:
        (there(site, DONE) / "submissions/1").mkdir()
        return digests(*arguments)

    digests = verb._digests
    monkeypatch.setattr(verb, "_digests", resumed)

    settings = site.settings()
    with site.ledger() as ledger:
        done = verb.clean_storage(settings, verb.CleanRequest((DONE.run_id,)), ledger, agrees=lambda _: True)
    assert done.left == {DONE.run_id: "it was submitted again meanwhile"}
    assert done.freed == {DONE.run_id: 0}
    assert names(there(site, DONE)) == before


@pytest.mark.needs("a small disk")
def test_a_full_disk_is_emptied(site: SlurmSite) -> None:
    """Not even the note of what goes fits before something has gone."""
    sync(site, "--checkpoints", "all")
    runs = site.root / "runs"
    aside = runs.rename(site.root / "aside")
    with small_disk(runs, kib=8192):
        shutil.copytree(aside, runs, dirs_exist_ok=True)
        fill(runs)
        with pytest.raises(OSError, match="No space left"):
            (there(site, DONE) / "x").write_text("x")
        done = site.types("storage", "clean", "--yes", DONE.run_id)
        assert "freed, of 1 run" in done.stdout
        assert not (there(site, DONE) / "attempts/0/stderr").exists()
        assert not (there(site, DONE) / "checkpoints/step-000000001000/model.pt").exists()
        (entry,) = json.loads((there(site, DONE) / "cleaned.json").read_text())["cleanings"]
        assert len(entry["files"]) == 5
        assert not (there(site, DONE) / ".cleaned.json.tmp").exists()


def test_what_cannot_be_removed_is_told_in_the_words_of_the_cluster(site: SlurmSite) -> None:
    sync(site)
    before = names(there(site, DONE))
    words = "rm: cannot remove it: Read-only file system"
    tool = f"case $* in *stderr*) echo '{words}' >&2; exit 1 ;; esac\nexec /bin/rm \"$@\"\n"
    site.tool("rm", tool)
    said = site.types("storage", "clean", "--yes", DONE.run_id, FAILED.run_id, code=4).stderr
    assert f"could not be cleaned: {words}" in said
    assert "differs from the local copy" not in said
    assert names(there(site, DONE)) - before <= {"cleaned.json"}


def test_killed_in_the_middle(site: SlurmSite) -> None:
    """Whatever has gone by then is here; the next one takes the rest."""
    sync(site, "--checkpoints", "all")
    copies = {name: (here(site, DONE) / name).read_bytes() for name in names(here(site, DONE))}
    for milliseconds in (300, 600, 900):
        with subprocess.Popen(
            [sys.executable, "-m", "clusterkit", "storage", "clean", "--yes", "--last-checkpoint"],
            cwd=site.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            time.sleep(milliseconds / 1000)
            process.kill()
        for path, data in copies.items():
            assert (here(site, DONE) / path).read_bytes() == data
    site.types("storage", "clean", "--yes", "--last-checkpoint")
    until(lambda: not (there(site, DONE) / "checkpoints").exists())  # a killed one may still be at it


def test_a_run_of_this_machine(project: Project) -> None:
    run_id = project.submit("--", "0")
    project.ended(run_id)
    there = project.run_dir(run_id)
    write(there / "video.mp4", os.urandom(20_000))
    project.run("sync-results", "--watch", "--no-wandb")
    done = project.run("storage", "clean", "--yes", "last")
    assert "freed, of 1 run\n" in done.stdout
    assert not (there / "video.mp4").exists()
    assert (project.folder / "results" / run_id / "video.mp4").stat().st_size == 20_000
    assert "COMPLETED" in project.run("status", run_id).stdout
    assert "hello from" in project.run("logs", run_id).stdout
    assert "nothing to remove" in project.run("storage", "clean", "--yes").stderr


def killed(project: Project) -> tuple[str, Path]:
    """A run whose job was killed at once, and its folder; in `work` it has written and changed files."""
    (project.folder / "pkg/deep").mkdir(parents=True)
    for name in ("pkg/deep/model.py", "pkg/data.bin", "changed.py", "two words.py"):
        (project.folder / name).write_text("x = 1\n" * 1000)
    (project.folder / "train.py").write_text(WRITES)
    run_id = project.submit()
    there = project.run_dir(run_id)
    project.until((there / "ready").exists)
    os.killpg(group_of(there), signal.SIGKILL)
    project.until(lambda: "FAILED" in project.run("status", run_id).stdout)
    return run_id, there


WRITES = """
import os, pathlib, time
pathlib.Path("pkg/mine").write_text("mine")
open("changed.py", "a").write("#")
pathlib.Path("empty").mkdir(exist_ok=True)
(pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"]) / "ready").touch()
time.sleep(1000)
"""


def group_of(run_dir: Path) -> int:
    """The process group of a run's job on this machine."""
    return os.getpgid(json.loads((run_dir / "attempts/0/start.json").read_text())["pid"])


def test_the_code_of_a_killed_run_goes_and_what_it_wrote_stays(project: Project) -> None:
    run_id, there = killed(project)
    (told,) = json.loads(project.run("storage", "clean", "--dry-run", "--json").stdout)["runs"]
    assert told["files"] >= 5
    assert told["code_bytes"] == told["bytes"] > 18_000
    assert (there / "work/pkg/data.bin").exists()
    done = project.run("storage", "clean", "--yes", "--json")
    (freed,) = json.loads(done.stdout)["runs"]
    assert freed["freed_bytes"] == told["bytes"]
    assert names(there / "work") == {"pkg/mine", "changed.py"}
    assert (there / "work/empty").is_dir()
    assert not (there / "work/pkg/deep").exists()
    assert not list(there.glob("work.list*"))
    assert "nothing to remove" in project.run("storage", "clean", "--yes").stderr
    project.run("sync-results", "--no-wandb")
    assert names(project.folder / "results" / run_id / "work") == {"pkg/mine", "changed.py"}
    (there / "ready").unlink()
    project.run("resume", run_id)
    project.until((there / "ready").exists)
    assert names(there / "work") >= {"pkg/mine", "changed.py", "pkg/deep/model.py", "two words.py"}
    project.run("cancel", run_id)


def test_code_stays_while_a_process_of_the_run_lives(project: Project) -> None:
    run_id, there = killed(project)
    (there / ".clusterkit-partial").mkdir()
    (there / ".clusterkit-partial/half").write_text("x")
    holds = subprocess.Popen(["flock", str(there / "run.json"), "sleep", "1000"], start_new_session=True)
    try:
        busy = ["flock", "-n", str(there / "run.json"), "true"]
        project.until(lambda: subprocess.run(busy).returncode == 1)
        done = project.run("storage", "clean", "--yes")
        assert f"{run_id} is left alone: a process of it still runs" in done.stderr
        assert (there / "work/pkg/data.bin").exists()
    finally:
        os.killpg(holds.pid, signal.SIGKILL)
        holds.wait()
    (there / "submissions/1").mkdir()
    argv = code_argv("remove", str(there.parent), {run_id: 1, "no-such-run": 1})
    assert subprocess.run(argv, capture_output=True, text=True).stdout == f"again {run_id}\n"
    (there / "submissions/1").rmdir()
    assert "freed, of 1 run" in project.run("storage", "clean", "--yes").stdout
    assert not (there / ".clusterkit-partial").exists()
    assert not (there / "work/pkg/data.bin").exists()
