"""A notice on its way: what each kind of webhook gets, what a command gets, and what comes of faults."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from clusterkit.config.notify import Notify, WebhookKind
from clusterkit.node.webhook import post, request
from clusterkit.notices import Notice, send
from tests.doubles.webhook import SECRET, Webhook

NOTICE = Notice("failed", "r-1 failed on uni", ("<!channel> it is über & over", "next: why"), ("r-1",))


def posted(hook: Webhook, kind: str, seconds: float = 10.0) -> str | None:
    what = request(hook.url, kind, NOTICE.event, NOTICE.title, NOTICE.lines, NOTICE.runs)
    return post(what, seconds=seconds)


def notify(**values: Any) -> Notify:
    return Notify.model_validate(values)


@pytest.mark.parametrize("kind", ["slack", "teams", "json"])
def test_a_webhook_of_json_gets_its_shape(hook: Webhook, kind: WebhookKind) -> None:
    assert posted(hook, kind) is None
    (got,) = hook.posts
    assert got.headers["Content-Type"] == "application/json"
    document = json.loads(got.body)
    if kind == "slack":
        said = "r-1 failed on uni\n&lt;!channel&gt; it is über &amp; over\nnext: why"
        assert document == {"text": said}
    elif kind == "teams":
        (card,) = document["attachments"]
        blocks = card["content"]["body"]
        assert [block["inlines"][0]["text"] for block in blocks] == [NOTICE.title, *NOTICE.lines]
        assert card["contentType"] == "application/vnd.microsoft.card.adaptive"
    else:
        assert document == {
            "schema": 1,
            "event": "failed",
            "title": NOTICE.title,
            "text": NOTICE.text,
            "runs": ["r-1"],
        }


def test_ntfy_gets_the_text_and_the_title(hook: Webhook) -> None:
    assert posted(hook, "ntfy") is None
    (got,) = hook.posts
    assert (got.path, got.headers["Title"], got.body) == (f"/{SECRET}", NOTICE.title, NOTICE.text)


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_answer_other_than_ok_is_a_fault_and_is_not_followed(hook: Webhook, status: int) -> None:
    hook.status = status
    assert posted(hook, "ntfy") == f"the server answered {status}"
    assert len(hook.posts) == 1


def test_a_server_that_never_answers_costs_the_time_allowed(hook: Webhook) -> None:
    hook.held = threading.Event()
    began = time.monotonic()
    assert posted(hook, "ntfy", seconds=0.5) == "no answer in 0.5 s"
    assert time.monotonic() - began < 5


def test_nobody_listens(hook: Webhook) -> None:
    (sent,) = send(notify(webhook="http://127.0.0.1:1/secret", webhook_kind="ntfy"), NOTICE)
    assert sent == ("webhook http://127.0.0.1:1/...", "Connection refused")


def test_the_address_comes_from_a_program_and_is_not_repeated(hook: Webhook) -> None:
    command = [sys.executable, "-c", f"print('{hook.url}')"]
    (sent,) = send(notify(webhook_command=command, webhook_kind="slack"), NOTICE)
    assert sent == (f"webhook {hook.url.removesuffix(SECRET)}...", None)
    assert len(hook.posts) == 1


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("print('gopher://a-secret')", "what it printed is not an http(s) address"),
        (
            "print('https://example.org/a-secret')",
            "its host does not tell what it expects: set notify.webhook_kind",
        ),
        ("raise SystemExit('locked')", "it ended with code 1: locked"),
    ],
)
def test_a_program_that_gives_no_address_is_a_fault(program: str, fault: str) -> None:
    (sent,) = send(notify(webhook_command=[sys.executable, "-c", program]), NOTICE)
    assert sent[1] == fault
    assert "a-secret" not in str(sent)


def test_a_command_gets_the_notice_in_its_environment_and_on_its_input(tmp_path: Path) -> None:
    told = tmp_path / "told"
    names = " ".join(f"CLUSTERKIT_NOTICE_{name}" for name in ("TITLE", "EVENT", "RUNS"))
    script = f"printenv {names} >{told}; cat >>{told}"
    assert send(notify(command=["sh", "-c", script]), NOTICE) == [("command sh", None)]
    assert told.read_text() == f"{NOTICE.title}\nfailed\nr-1\n{NOTICE.title}\n{NOTICE.text}\n"


def test_a_command_that_is_not_there_or_hangs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert send(notify(command=["no-such-program"]), NOTICE)[0][1] == "No such file or directory"
    monkeypatch.setattr("clusterkit.notices.SECONDS", 0.3)
    began = time.monotonic()
    assert (
        send(notify(command=["sh", "-c", "sleep 60 & wait"]), NOTICE)[0][1] == "it had not ended after 0.3 s"
    )
    assert time.monotonic() - began < 5
