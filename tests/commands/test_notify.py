"""Notices of ended runs, over a real sshd and to a real HTTP server: once each, whoever looks how often."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.commands.notifier import Notifier
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.watching import Paces, watch
from tests.allowing import allow
from tests.commands.conftest import Project
from tests.doubles.slurm_site import DONE, FAILED, RUNNING, WAITING, Member, SlurmSite
from tests.doubles.webhook import SECRET, Post, Webhook, webhook

pytestmark = pytest.mark.slow

GROUP = [Member(number, JobState.RUNNING, group="sweep-1") for number in (11, 12, 13)]


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as running:
        yield running


@pytest.fixture
def told(site: SlurmSite, hook: Webhook) -> list[Post]:
    """What arrives at the webhook that the user of the site has set."""
    wants(site, f'webhook = "{hook.url}"', 'webhook_kind = "json"')
    return hook.posts


def wants(site: SlurmSite, *lines: str) -> None:
    file = site.folder / ".config" / "clusterkit" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["[notify]", *lines]))


def end(site: SlurmSite, members: Sequence[Member], state: JobState = JobState.COMPLETED) -> None:
    over = [replace(member, state=state) for member in members]
    site.settle(over)
    site.answers(over)


def documents(told: Sequence[Post]) -> list[dict[str, object]]:
    return [json.loads(post.body) for post in told]


def test_an_end_is_told_once_however_often_status_is_asked(site: SlurmSite, told: list[Post]) -> None:
    site.knows([RUNNING])
    site.status()
    assert told == []
    end(site, [RUNNING])
    for _ in range(3):
        site.status()
    (document,) = documents(told)
    assert document["title"] == f"{RUNNING.run_id} completed on far"
    assert document["event"] == "ended"


def test_of_two_commands_at_a_time_one_tells(site: SlurmSite, hook: Webhook, told: list[Post]) -> None:
    site.knows([RUNNING, WAITING])
    end(site, [RUNNING, WAITING])
    site.says("squeue", seconds=1.0)  # so that both ask before either has heard
    commands = [site.command("status") for _ in range(4)]
    assert [command.wait() for command in commands] == [0] * 4
    for command in commands:
        command.communicate()
    names = [name for document in documents(told) for name in document["runs"]]  # type: ignore[attr-defined]
    assert sorted(names) == [RUNNING.run_id, WAITING.run_id]


def test_a_run_that_is_resumed_is_told_of_again(site: SlurmSite, told: list[Post]) -> None:
    site.knows([RUNNING])
    end(site, [RUNNING], JobState.FAILED)
    site.status()
    with site.ledger() as ledger:
        ledger.add(replace(site.entry(RUNNING), submission=1))
    site.status()
    assert [document["event"] for document in documents(told)] == ["failed", "failed"]


def test_a_group_is_told_of_by_its_first_failure_and_its_end(site: SlurmSite, told: list[Post]) -> None:
    first, second, third = GROUP
    site.knows(GROUP)
    for failed, going in ((first, [second, third]), (second, [third])):
        site.settle([replace(failed, state=JobState.FAILED)])
        site.answers([replace(failed, state=JobState.FAILED), *going])
        site.status()
    assert [document["runs"] for document in documents(told)] == [[first.run_id]]
    end(site, [third])
    site.status()
    site.status()
    _, document = documents(told)
    assert document["title"] == "sweep-1 done on far"
    assert str(document["text"]).startswith("3 runs: 2 failed, 1 completed\n")


def test_what_had_ended_before_and_what_another_laptop_ran_is_no_news(
    site: SlurmSite, told: list[Post]
) -> None:
    site.knows([DONE, FAILED])
    site.settle([replace(RUNNING, state=JobState.COMPLETED)])  # known to no ledger here
    site.status()
    site.status("--all")
    assert told == []


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.COMPLETED])
def test_an_end_that_a_command_has_noted_is_no_news(
    site: SlurmSite, told: list[Post], state: JobState
) -> None:
    site.knows([RUNNING])
    site.status()
    with site.ledger() as ledger:  # as cancel and dev do
        ledger.set_states([(RUNNING.run_id, state)])
    end(site, [RUNNING], state)
    site.status()
    assert told == []


@pytest.mark.parametrize(("on", "events"), [('["failed"]', ["failed"]), ('["ended"]', ["ended"]), ("[]", [])])
def test_only_what_is_asked_for_is_told(
    site: SlurmSite, hook: Webhook, on: str, events: Sequence[str]
) -> None:
    wants(site, f'webhook = "{hook.url}"', 'webhook_kind = "json"', f"on = {on}")
    site.knows([RUNNING, WAITING])
    over = [replace(RUNNING, state=JobState.COMPLETED), replace(WAITING, state=JobState.FAILED)]
    site.settle(over)
    site.answers(over)
    site.status()
    assert [document["event"] for document in documents(hook.posts)] == events


def test_a_notice_that_does_not_arrive_is_a_line_and_is_not_sent_again(
    site: SlurmSite, hook: Webhook, told: list[Post]
) -> None:
    hook.status = 503
    site.knows([RUNNING])
    end(site, [RUNNING])
    shown = site.types("status")
    (line,) = [line for line in shown.stderr.splitlines() if "notice" in line]
    assert line.startswith(f'no notice "{RUNNING.run_id} completed on far" by webhook http://127.0.0.1')
    assert line.endswith("the server answered 503")
    assert SECRET not in shown.stdout + shown.stderr
    hook.status = 200
    assert "notice" not in site.types("status").stderr
    assert len(told) == 1


def test_a_watch_tells_when_a_run_ends(
    site: SlurmSite, hook: Webhook, told: list[Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(site.folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    site.knows([RUNNING, WAITING])
    settings = site.settings()
    with site.ledger() as ledger:
        paces = Paces(scheduler=0.3, heartbeat=0.1)
        for number, _ in enumerate(
            watch(settings, ledger, paces=paces, ended=Notifier(settings, ledger).tell)
        ):
            if number == 0:
                assert told == []
                end(site, [RUNNING, WAITING])
    (document,) = documents(told)
    assert document["title"] == "2 ended"


def test_sync_results_watch_tells_when_a_run_ends(site: SlurmSite, told: list[Post]) -> None:
    site.knows([RUNNING])
    end(site, [RUNNING])
    site.types("sync-results", "--watch", "--no-wandb")
    assert len(told) == 1


def test_a_ledger_that_cannot_keep_it_tells_nothing(
    site: SlurmSite, told: list[Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(site.folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    site.knows([RUNNING])
    end(site, [RUNNING])
    settings = site.settings()
    with Ledger(site.project / ".clusterkit" / "ledger.sqlite3", copy=True) as ledger:
        notices = Notifier(settings, ledger)
        looks = watch(settings, ledger, paces=Paces(scheduler=0.3, heartbeat=0.1), ended=notices.tell)
        assert [*looks][-1].over
    assert told == []


def test_notify_sends_a_test_notice(site: SlurmSite, told: list[Post]) -> None:
    shown = site.types("notify")
    assert shown.stdout.startswith("webhook http://127.0.0.1:")
    assert shown.stdout.endswith("/...: sent\n")
    assert documents(told)[0]["event"] == "test"


def test_notify_fails_where_nothing_arrives(site: SlurmSite, hook: Webhook, told: list[Post]) -> None:
    hook.status = 404
    shown = site.types("notify", "--json", code=1)
    assert json.loads(shown.stdout)["sent"][0]["error"] == "the server answered 404"
    assert "no notice arrived by webhook" in shown.stderr


def test_notify_says_where_to_begin_without_settings(project: Project) -> None:
    shown = project.run("notify", code=3)
    assert "[notify] has no mail, webhook or command" in shown.stderr
    assert "notify.md" in shown.stderr


def test_notify_says_which_clusters_mail(site: SlurmSite) -> None:
    wants(site, 'mail = "me@example.org"')
    said = "mail to me@example.org: not tried; the scheduler of far sends it\n"
    assert site.types("notify").stderr == said


def test_a_command_tells_of_a_run_here(project: Project) -> None:
    argv = [sys.executable, "-c", "import sys; print(sys.stdin.read(), file=open('told', 'a'))"]
    project.add(f"\n[notify]\ncommand = {json.dumps(argv)}\n")
    allow(project.folder)
    (project.folder / "train.py").write_text("raise ValueError('a hole in the lake')")
    run_id = project.submit()
    project.ended(run_id)
    project.run("status")
    project.run("status")
    said = (project.folder / "told").read_text()
    assert said.count(f"{run_id} failed on local") == 1
    assert "ValueError: a hole in the lake" in said
    assert f"next: clusterkit why {run_id}" in said


@pytest.fixture
def telling(project: Project, hook: Webhook) -> Project:
    """A project whose jobs tell of their end themselves."""
    (project.folder.parent / "hook").write_text(hook.url)
    told = 'webhook_command = ["cat", "../hook"]\nwebhook_kind = "json"\nfrom_job = true'
    project.add(f"\n[notify]\n{told}\n")
    allow(project.folder)
    return project


def over(project: Project, run_id: str) -> None:
    project.until(lambda: all(row["final"] for row in project.rows(run_id)))


def test_a_job_tells_of_its_own_end_and_the_laptop_not_again(telling: Project, hook: Webhook) -> None:
    run_id = telling.submit()
    telling.ended(run_id)
    (said,) = documents(hook.posts)
    assert (said["event"], said["runs"]) == ("ended", [run_id])
    assert said["title"] == f"{run_id} completed on local"
    over(telling, run_id)
    telling.run("status", "--all")
    assert len(hook.posts) == 1
    local = telling.folder / ".clusterkit" / "local"
    assert not [path for path in local.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    telling.until(lambda: not list((local / "secrets").iterdir()))


def test_a_job_tells_why_it_failed(telling: Project, hook: Webhook) -> None:
    (telling.folder / "train.py").write_text('import sys; sys.exit("there is no such data set")')
    run_id = telling.submit()
    telling.ended(run_id)
    (said,) = documents(hook.posts)
    assert (said["event"], said["title"]) == ("failed", f"{run_id} failed on local")
    assert said["text"] == f"there is no such data set\nnext: clusterkit why {run_id}"


def test_the_laptop_tells_what_the_job_could_not(telling: Project, hook: Webhook) -> None:
    hook.status = 500
    run_id = telling.submit()
    telling.ended(run_id)
    assert "the notice was not sent: the server answered 500" in telling.run("logs", run_id).stdout
    hook.status = 200
    over(telling, run_id)
    assert [said["runs"] for said in documents(hook.posts)] == [[run_id], [run_id]]


def test_the_laptop_tells_of_a_group(telling: Project, hook: Webhook) -> None:
    group = telling.submit("--seeds", "1,2")
    over(telling, group)
    assert [(said["event"], said["runs"]) for said in documents(hook.posts)] == [("group", [group])]


def test_a_job_needs_a_webhook_to_tell(project: Project) -> None:
    project.add("\n[notify]\nfrom_job = true\n")
    assert "from_job needs a webhook or webhook_command" in project.run("submit", code=3).stderr
