"""What every backend must do, whatever its scheduler: read by itself, and with the scheduler at work."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from clusterkit.backends.base import Backend
from clusterkit.backends.jobs import EarlySignal, JobState, Parent
from clusterkit.backends.local.backend import LocalBackend
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.config.models import Cluster, Profile
from clusterkit.errors import ClusterkitError, ConfigError, SchedulerError
from clusterkit.probes import Answers, Probe, script
from tests.cluster import cluster as slurm_cluster
from tests.waiting import until

SPOOL = Path(__file__).parent.parent / "spool"
NAMES = ("slurm", "local", "spool")
HERE = Cluster(name="here", root="/r", container="none")
PROFILE = Profile(name="p", time="30m", cpus=2)
SIGNAL = EarlySignal("USR1", 120)
GARBAGE = ("", "Welcome!\n", "\x1eclusterkit begin jobs\n", "error: no\n", "123abc\n", "1 2 3\n")


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
    monkeypatch.syspath_prepend(str(SPOOL))
    monkeypatch.setenv("SPOOL", str(tmp_path / "spool"))
    return import_module("spool_backend").BACKEND  # type: ignore[no-any-return]


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest, spool: Backend) -> Backend:
    return {"slurm": SlurmBackend(), "local": LocalBackend(), "spool": spool}[request.param]


def options(backend: Backend, *extra: str, time: str = "30m") -> tuple[str, ...]:
    profile = PROFILE.model_copy(update={"time": Profile(name="p", time=time).time})
    return backend.options(HERE, profile, signal=SIGNAL, extra=extra)


def test_options_are_texts_in_a_stable_order(backend: Backend) -> None:
    asked = options(backend)
    assert asked == options(backend)
    assert all(option.startswith("--") for option in asked)
    assert backend.asked(asked).seconds == 1800


def test_the_command_line_wins_and_is_kept(backend: Backend) -> None:
    asked = options(backend, "--comment=mine")
    assert "--comment=mine" in asked
    assert "--comment=mine" in backend.carried_over(asked, time=True, packed=False)
    assert backend.names(["--c=4", "--mail_user=me"]) == {"cpus-per-task", "mail-user"}


@pytest.mark.parametrize("extra", ["--job-name=x", "--output=/x", "comment", "--comment=a\nb"])
def test_what_is_not_to_be_set_is_refused(backend: Backend, extra: str) -> None:
    with pytest.raises(ConfigError):
        options(backend, extra)


def test_secrets_are_refused(backend: Backend) -> None:
    with pytest.raises(ConfigError, match="secret"):
        options(backend, "--export=WANDB_API_KEY=0123456789012345678901234567890123456789")


def test_a_resumption_keeps_all_but_what_is_chosen_anew(backend: Backend) -> None:
    asked = options(backend)
    going = backend.continuation(None, "requeue", asked).options
    whole = (*asked, *going, *backend.dependency([Parent("7", "/r/runs/a", "ok")]))
    kept = backend.carried_over(whole, time=True, packed=False)
    assert set(kept) == set(asked)
    assert backend.asked(backend.carried_over(whole, time=False, packed=False)).seconds is None


def test_options_say_whether_a_job_is_signalled(backend: Backend) -> None:
    assert backend.signalled(options(backend))
    assert not backend.signalled(backend.options(HERE, PROFILE, signal=None))


def test_a_short_job_has_its_own_time_limit(backend: Backend) -> None:
    assert backend.asked(backend.brief(options(backend), 120)).seconds == 120


def test_dependencies_tell_jobs_and_kinds_apart(backend: Backend) -> None:
    assert backend.dependency([]) == ()
    kinds = [backend.dependency([Parent("7", "/r/runs/a", kind)]) for kind in ("ok", "any")]
    others = backend.dependency([Parent("8", "/r/runs/b", "ok")])
    assert len({*kinds, others, ()}) == 4


def test_an_answer_without_a_job_is_none(backend: Backend) -> None:
    for text in GARBAGE[:-1]:
        assert backend.accepted(text) is None


def test_tasks_have_ids_of_their_own(backend: Backend) -> None:
    if backend.can.arrays:
        assert len({backend.task_id("7", task) for task in range(3)}) == 3
    assert backend.array_id(backend.task_id("7", 2)) == "7"
    assert backend.array_id("7") == "7"


def test_no_answer_is_no_jobs_news(backend: Backend) -> None:
    """Only a scheduler that has answered may make clusterkit believe that there is no job."""
    for text in GARBAGE:
        with pytest.raises(SchedulerError):
            backend.query(["7"] if not isinstance(backend, LocalBackend) else []).read(text)
        found = backend.find("run", "/r/runs/run/job.sh", "2026-01-01").read(text)
        assert (found.ids, found.certain) == ((), False)


def test_questions_fail_on_nothing(backend: Backend, tmp_path: Path) -> None:
    """In a shell without any tool, each is answered or is a clear error, and the next one is asked."""
    asked = options(backend)
    probes: list[Probe[object]] = [
        backend.query([]),
        backend.find("run", "/r/runs/run/job.sh", "2026-01-01"),
        backend.limits(asked),
        backend.starts({"a": asked}),
        *filter(None, [backend.machine(str(tmp_path))]),
    ]
    done = subprocess.run(["/bin/sh"], input=script(probes), capture_output=True, text=True, env={"PATH": ""})
    assert done.returncode == 0
    for probe in probes:
        with contextlib.suppress(ClusterkitError):
            Answers(done.stdout).of(probe)


def test_only_where_nothing_queues_the_machine_is_looked_at(backend: Backend) -> None:
    assert (backend.machine("/tmp") is None) == backend.can.queue


@dataclass
class Site:
    """A machine with the scheduler, and a folder that its jobs see under the same path."""

    backend: Backend
    run: Callable[[list[str], str], str]
    folder: str
    write: Callable[[str, str], None]

    def state(self, job_id: str) -> JobState | None:
        seen = self.backend.query([job_id])
        job = Answers(self.run(["sh"], script([seen]))).of(seen).jobs.get(job_id)
        return job.state if job else None


def at_home(backend: Backend, folder: Path) -> Site:
    def run(argv: list[str], stdin: str) -> str:
        return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=True).stdout

    def write(name: str, text: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return Site(backend, run, str(folder), write)


@pytest.fixture(params=[*NAMES[1:], pytest.param("slurm", marks=pytest.mark.cluster)])
def site(request: pytest.FixtureRequest, spool: Backend, tmp_path: Path) -> Iterator[Site]:
    if request.param != "slurm":
        yield at_home(spool if request.param == "spool" else LocalBackend(), tmp_path)
        return
    cluster: slurm_cluster.Cluster = request.getfixturevalue("cluster")
    folder = f"/share/contract-{tmp_path.name}"

    def run(argv: list[str], stdin: str) -> str:
        words = ["sh", "-c", f"printf %s {shlex.quote(stdin)} | {shlex.join(argv)}"]
        return cluster.run("login", words, user=cluster.user).stdout

    def write(name: str, text: str) -> None:
        path = f"{folder}/{name}"
        run(["sh", "-c", f"mkdir -p $(dirname {path}); cat >{path}"], text)

    cluster.run("login", ["sh", "-c", f"mkdir -p {folder}; chown {cluster.user} {folder}"])
    yield Site(SlurmBackend(), run, folder, write)


JOB = """#!/bin/bash
{directives}
trap 'echo stopped >>{folder}/said; exit 1' TERM
echo began >>{folder}/said
until [ -e {folder}/go ]; do sleep 0.1 & wait $!; done
"""


@pytest.mark.slow
def test_a_job_is_submitted_seen_found_and_cancelled(site: Site) -> None:
    backend, folder = site.backend, f"{site.folder}/runs/run-1"
    asked = options(backend, time="5m")
    lines = backend.directives(asked, job_name="run-1", folder=folder, log="log")
    site.write("runs/run-1/job.sh", JOB.format(directives="\n".join(lines), folder=folder))
    argv = backend.submit_argv(f"{folder}/job.sh", run_dir=folder, job_name="run-1", options=asked)
    job_id = backend.accepted("Welcome!\n" + site.run(argv, ""))
    assert job_id is not None
    until(lambda: site.state(job_id) is JobState.RUNNING)
    until(lambda: "began" in site.run(["sh", "-c", f"cat {folder}/said 2>/dev/null || :"], ""))
    found = backend.find("run-1", f"{folder}/job.sh", "2026-01-01")
    assert Answers(site.run(["sh"], script([found]))).of(found).ids == (job_id,)
    other = backend.find("run-2", f"{site.folder}/runs/run-2/job.sh", "2026-01-01")
    seen = Answers(site.run(["sh"], script([other]))).of(other)
    assert (seen.ids, seen.certain) == ((), True)
    site.run(backend.cancel_argv([job_id]), "")
    until(lambda: (state := site.state(job_id)) is None or not state.active)
    assert "stopped" in site.run(["cat", f"{folder}/said"], "")
    site.run(backend.cancel_argv([job_id]), "")


@pytest.mark.slow
def test_the_runs_of_a_group_are_told_apart(site: Site) -> None:
    backend, group = site.backend, f"{site.folder}/groups/g"
    folders = [f"{site.folder}/runs/g-{number}" for number in range(2)]
    body = "#!/bin/bash\n{directives}\nfolder={folder}\necho {number} >$folder/said\n"
    site.write("groups/g/members", "".join(f"{folder}\n" for folder in folders))
    for number, folder in enumerate(folders):
        text = body.format(directives="", folder=folder, number=number)
        site.write(f"runs/g-{number}/job.sh", text)
    asked = options(backend, time="5m")
    lines = backend.directives(asked, job_name="g", folder=group, log="log")
    pick = f'exec bash "$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {group}/members)/job.sh"'
    site.write("groups/g/job.sh", "\n".join(["#!/bin/bash", *lines, pick, ""]))
    argv = backend.submit_argv(
        f"{group}/job.sh", run_dir=group, job_name="g", options=(*asked, backend.array(0, 1, None))
    )
    answer = site.run(argv, "")
    ids = [backend.accepted(answer, task) for task in range(2)]
    assert None not in ids
    assert len(set(ids)) == 2
    for number, folder in enumerate(folders):
        until(lambda folder=folder: site.run(["sh", "-c", f"cat {folder}/said 2>/dev/null || :"], ""))
        assert site.run(["cat", f"{folder}/said"], "").strip() == str(number)
