"""One submission, one run: killed at every step, answered unclearly, or not answered at all."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.local.processes import job_id, living_pid
from tests import forked
from tests.commands.conftest import Project, Tool
from tests.killing import kills

pytestmark = pytest.mark.slow

COUNTS = """
[project]
name = "demo"
program = ["sh", "-c", "echo seed $CLUSTERKIT_SEED; echo $CLUSTERKIT_RUN_ID >>'{file}'"]
default_profile = "tiny"
[profiles.tiny]
time = "5m"
[profiles.second]
time = "6m"
"""
GROUP = ("--sweep", "profile=tiny,second", "--seeds", "1,2", "--max-parallel", "4")
"""Of two parts: the second is handed over when the first has its jobs."""


def rows(project: Project) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in project.rows("--all")}


def settled(project: Project) -> dict[str, dict[str, Any]]:
    """All runs, when it is known of each what came of it; without a job of its own, or it has ended."""
    known: dict[str, dict[str, Any]] = {}

    def over() -> bool:
        known.update(rows(project))
        return not {"SUBMITTING", "PENDING", "RUNNING"} & {row["state"] for row in known.values()}

    project.until(over)
    return known


@pytest.mark.parametrize(
    ("points", "words", "least"),
    [
        pytest.param("1:1", ["submit"], 20, id="submit"),
        pytest.param("1:1", ["rerun"], 20, id="rerun"),
        pytest.param("1:20", ["submit", *GROUP], 3, id="group"),
        pytest.param("1:3", ["submit", *GROUP], 15, id="group-finely", marks=pytest.mark.exhaustive),
    ],
)
def test_command_killed_at_its_steps_starts_each_run_once(
    project: Project, tmp_path: Path, points: str, words: list[str], least: int
) -> None:
    started = tmp_path / "started"
    (project.folder / "clusterkit.toml").write_text(COUNTS.format(file=started))
    if words[0] == "rerun":
        words = ["rerun", project.submit()]
        project.ended(words[1])
    killed = kills(points, *words, folder=project.folder)
    assert killed > least
    known = settled(project)
    there = {path.name for path in project.run_dir("").iterdir()}
    starts = Counter(started.read_text().split())
    assert there <= set(known), "a run directory that the ledger does not know"
    assert set(starts.values()) == {1}, "a run that was started twice"
    assert set(starts) == {run_id for run_id, row in known.items() if row["state"] == "COMPLETED"}
    assert {row["state"] for row in known.values()} == {"COMPLETED", "NOT_SUBMITTED"}
    assert not list(project.run_dir("").parent.glob(".new-*"))
    print(f"{killed} kills: {len(starts)} runs started once, {len(known) - len(starts)} never")


RESUMABLE = 50
"""More than there are steps to kill it at."""


def test_resume_killed_at_every_step_starts_each_run_at_most_once_more(
    project: Project, tmp_path: Path
) -> None:
    """Each time another run of a group that has failed."""
    started = tmp_path / "started"
    program = COUNTS.format(file=started).replace('"]', '; exit 1"]')
    (project.folder / "clusterkit.toml").write_text(program)
    group = project.submit("--seeds", f"1..{RESUMABLE}", "--max-parallel", "4", "--yes")
    assert {row["state"] for row in settled(project).values()} == {"FAILED"}
    killed = kills("1:1", "resume", f"{group}-{{kill}}", folder=project.folder)
    assert 20 < killed < RESUMABLE
    known = settled(project)
    starts = Counter(started.read_text().split())
    assert set(starts) == set(known)
    assert set(starts.values()) <= {1, 2}, "a resumption that was started twice"
    for run_id, row in known.items():
        submissions = list((project.run_dir(run_id) / "submissions").iterdir())
        asked = [folder for folder in submissions if (folder / "answer").is_file()]
        assert len(asked) == starts[run_id], run_id
        assert (row["state"] == "NOT_SUBMITTED") == (row["submission"] == starts[run_id]), run_id
    never = next(run_id for run_id, row in known.items() if row["state"] == "NOT_SUBMITTED")
    project.run("resume", never)
    assert settled(project)[never]["state"] == "FAILED"
    assert Counter(started.read_text().split())[never] == 2
    print(f"{killed} kills: {Counter(starts.values())[2]} runs resumed once, the others not")


def with_two_profiles(project: Project) -> None:
    project.add('\n[profiles.second]\ntime = "6m"\n')


ACCEPTS = """for word; do
  case $word in --job-name=*) echo "$$ ${{word#*=}}" >>{jobs} ;; esac
done
echo $$"""
KNOWS = """before=
for word; do
  test "$before" != -n || sed -n "s/ $word\\$//p" {jobs}
  before=$word
done"""
"""An sbatch that keeps the name of every job, and a squeue that finds it by that."""


class Site:
    """A cluster on this machine whose sbatch and squeue are scripts: a real one loses no answer on demand."""

    def __init__(self, project: Project, folder: Path, tool: Tool) -> None:
        self.project, self.folder, self.tool = project, folder, tool
        project.add(f'[clusters.here]\nroot = "{folder}/root"\ncontainer = "none"\n')

    @property
    def runs(self) -> list[Path]:
        return list((self.folder / "root" / "runs").iterdir())

    def row(self) -> dict[str, Any]:
        (row,) = rows(self.project).values()
        return row


@pytest.fixture
def site(project: Project, tmp_path: Path, tool: Tool) -> Site:
    site = Site(project, tmp_path, tool)
    site.tool("sacct", "exit 1")
    # squeue knows the job if there is one, by name and by id; options: see its `find` and `query`.
    site.tool(
        "squeue",
        f"""cat {tmp_path}/job 2>/dev/null || exit 0
case "$*" in *" -n "*) ;; *) exit 0 ;; esac""",
    )
    return site


@pytest.mark.parametrize("points", ["1:3", pytest.param("1:1", marks=pytest.mark.exhaustive)])
def test_group_of_slurm_killed_at_its_steps_submits_each_part_once(
    site: Site, project: Project, tmp_path: Path, points: str
) -> None:
    jobs = tmp_path / "jobs"
    site.tool("sbatch", ACCEPTS.format(jobs=jobs))
    site.tool("squeue", KNOWS.format(jobs=jobs))
    with_two_profiles(project)
    killed = kills(points, "submit", *GROUP, "-c", "here", folder=project.folder)
    assert killed > 20
    known = settled(project)
    assert {path.name for path in site.runs} <= set(known)
    accepted = [line.split() for line in jobs.read_text().splitlines()]
    assert set(Counter(name for _, name in accepted).values()) == {1}, "a part that was submitted twice"
    of_job = Counter(row["job_id"].partition("_")[0] for row in known.values() if row["job_id"])
    assert of_job == {job_id: 2 for job_id, _ in accepted}, "a job that the ledger does not know"
    assert all((row["state"] == "NOT_SUBMITTED") != bool(row["job_id"]) for row in known.values())
    halves = Counter(Counter(run_id[:-2] for run_id, row in known.items() if row["job_id"]).values())
    assert halves[2], "no submit was killed between its parts"
    print(f"{killed} kills: {halves[4]} groups whole, {halves[2]} half")


WAITS = """test -e {folder}/there || case "$*" in *{words}*)
  echo $PPID >{folder}/there.new && mv {folder}/there.new {folder}/there
  until test -e {folder}/on; do sleep 0.05; done ;;
esac
"""
"""A tool that waits the first time that its words have these, until the file `on` appears."""


class Waiting:
    """A submit whose remote fragment waits at one of its steps, for as long as a test wants."""

    def __init__(self, site: Site, tool: str, words: str, does: str, *submit: str) -> None:
        self.site, self.folder = site, site.folder
        site.tool(tool, WAITS.format(words=words, folder=self.folder) + does)
        words = ["submit", "-c", "here", *submit]
        self.client = forked.start(words, folder=site.project.folder, program="clusterkit")
        site.project.until((self.folder / "there").exists)
        self.fragment = job_id(int((self.folder / "there").read_text())) or ""

    def kill(self) -> None:
        """The client; the fragment stays."""
        self.client.send_signal(signal.SIGKILL)
        self.client.communicate()
        assert living_pid(self.fragment)

    def goes_on(self) -> None:
        """To the end of the fragment."""
        (self.folder / "on").touch()
        self.site.project.until(lambda: living_pid(self.fragment) is None)


TAR = f'exec {shutil.which("tar")} "$@"'
NEVER_ASKED = "it was interrupted before anything was submitted"


@pytest.mark.parametrize(("part", "submit"), [(0, ()), (1, GROUP)], ids=["a run", "a group's second part"])
def test_what_a_killed_submit_has_left_on_the_cluster_asks_no_more(
    site: Site, project: Project, tmp_path: Path, part: int, submit: tuple[str, ...]
) -> None:
    """It waits when nobody was asked; it goes on after it was found that nobody was."""
    jobs = tmp_path / "jobs"
    site.tool("sbatch", ACCEPTS.format(jobs=jobs))
    site.tool("squeue", KNOWS.format(jobs=jobs))
    with_two_profiles(project)
    left = Waiting(site, "tar", f"/.new-*.{part}", TAR, *submit)
    left.kill()
    found = rows(project)
    assert Counter(row["state"] == "NOT_SUBMITTED" for row in found.values())[True] == 1 + part
    left.goes_on()
    assert len(jobs.read_text().split("\n")) - 1 == part if part else not jobs.exists()
    assert [row["job_id"] for row in rows(project).values()] == [row["job_id"] for row in found.values()]
    never = [row for row in found.values() if not row["job_id"]]
    assert {(row["state"], row["why"]) for row in never} == {("NOT_SUBMITTED", NEVER_ASKED)}
    assert not list((tmp_path / "root").glob(".new-*"))


def test_a_submit_of_another_terminal_is_left_alone(site: Site, project: Project, tmp_path: Path) -> None:
    """Of a group, also the part that waits for its turn."""
    jobs = tmp_path / "jobs"
    site.tool("sbatch", ACCEPTS.format(jobs=jobs))
    site.tool("squeue", KNOWS.format(jobs=jobs))
    with_two_profiles(project)
    other = Waiting(site, "tar", "/.new-*.0", TAR, *GROUP)
    found = rows(project).values()
    assert {(row["state"], row["why"]) for row in found} == {
        ("SUBMITTING", "another command is submitting it")
    }
    assert len(found) == 4
    assert "interrupted" not in project.run("submit", "-c", "here", "--profile", "second").stderr
    assert Counter(row["state"] for row in rows(project).values())["SUBMITTING"] == 4
    other.goes_on()
    said, _ = other.client.communicate()
    assert other.client.wait() == 0, said
    assert all(row["job_id"] for row in rows(project).values())


def test_an_answer_lost_with_the_login_node(site: Site, project: Project, tmp_path: Path) -> None:
    site.tool("sbatch", f"echo 4711 >{tmp_path}/job; kill -9 $PPID")
    said = project.run("submit", "-c", "here")
    assert "job 4711" in said.stderr
    assert site.row()["job_id"] == "4711"


def test_while_nobody_can_tell_it_stays_open(site: Site, project: Project, tmp_path: Path) -> None:
    error = "sbatch: error: Batch job submission failed: Unable to contact slurm controller"
    site.tool("sbatch", f"echo '{error}' >&2; exit 1")
    squeue = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
    site.tool("squeue", f"touch {tmp_path}/asked; {squeue}")
    said = project.run("submit", "-c", "here", code=5).stderr
    assert "Unable to contact slurm controller" in said.replace("\n", " ")
    assert "clusterkit status" in said
    assert not (tmp_path / "asked").exists(), "squeue would wait for the same controller"
    row = site.row()
    assert row["state"] == "SUBMITTING"
    assert "does not answer" in row["why"]
    assert "Unable to contact" in row["why"]
    site.tool("squeue", "exit 0")
    row = site.row()
    assert row["state"] == "NOT_SUBMITTED"
    assert "Unable to contact" in row["why"]
    assert len(site.runs) == 1


def test_the_next_submit_tells_of_the_interrupted_one(site: Site, project: Project, tmp_path: Path) -> None:
    site.tool("sbatch", f"echo 4713 >{tmp_path}/job; kill -9 $PPID")
    site.tool("squeue", "exit 1")
    project.run("submit", "-c", "here", code=5)
    (first,) = rows(project)
    site.tool("squeue", f'case "$*" in *{first}*) echo 4713 ;; esac')
    site.tool("sbatch", "echo 4714")
    said = project.run("submit", "-c", "here").stderr
    assert first in said
    assert "is job 4713" in said.replace("\n", " ")
    assert sorted(row["job_id"] for row in rows(project).values()) == ["4713", "4714"]


def test_the_users_own_sbatch_variables_change_nothing(
    site: Site, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "wrong")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    site.tool("sbatch", f"env >{tmp_path}/environment; echo '12;cluster'")
    assert "job 12;cluster" in project.run("submit", "-c", "here").stderr
    environment = (tmp_path / "environment").read_text()
    assert "SBATCH_" not in environment
    assert "SLURM_JOB_ID" not in environment
