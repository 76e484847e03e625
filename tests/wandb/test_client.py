"""What is handed to the wandb client, and how its traces are judged (lines as wandb 0.31 writes them)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterkit.wandb import client
from clusterkit.wandb.server import Credentials

KEY = "k" * 40
CREDENTIALS = Credentials("http://127.0.0.1:1", KEY)
FINE = json.dumps({"time": "t", "level": "INFO", "msg": "runsync: starting"})
HTTP_401 = json.dumps(
    {
        "level": "ERROR",
        "msg": "api: HTTP error",
        "status": 401,
        "method": "POST",
        "url": "http://127.0.0.1:1/files/e/p/w1/file_stream",
    }
)
GAVE_UP = json.dumps(
    {
        "level": "ERROR+4",
        "msg": "filestream: fatal error: POST http://h/file_stream giving up after 3 attempt(s)\nwhile ...",
    }
)
PUT_403 = json.dumps(
    {
        "level": "ERROR",
        "msg": "api: HTTP error",
        "status": 403,
        "method": "PUT",
        "url": "http://h/config.yaml",
    }
)
SEEN = "wandb: [demo/run1] View run a b at http://h/e/demo/runs/run1\n"
FINISHED = f"{SEEN}wandb: [demo/run1] Finished syncing x\n"


def test_a_clean_upload() -> None:
    verdict = client.judge(0, FINISHED, [FINE], marked=True)
    assert verdict == client.ClientVerdict(True, url="http://h/e/demo/runs/run1")


@pytest.mark.parametrize("line", [HTTP_401, GAVE_UP])
def test_a_lost_history_outweighs_exit_status_text_and_marker(line: str) -> None:
    verdict = client.judge(0, FINISHED, [FINE, line], marked=True)
    assert not verdict.ok
    assert "\n" not in verdict.reason
    assert "refused the history" in verdict.reason


def test_refused_files_are_warnings() -> None:
    verdict = client.judge(0, FINISHED, [FINE, PUT_403, PUT_403], marked=True)
    assert verdict.ok
    assert verdict.warnings == ("403 for PUT http://h/config.yaml",)


@pytest.mark.parametrize(
    ("code", "output", "debug", "marked", "reason"),
    [
        (0, "wandb: ERROR injected 401\n", [FINE], False, "injected 401"),
        (1, "Traceback ...\nValueError: no\n", [FINE], True, "ValueError: no"),
        (-9, "", [], False, "the client ended with status -9"),
        (0, FINISHED, [], True, "left no debug log"),
        (0, FINISHED, ["not json", "[1]"], True, "left no debug log"),
    ],
)
def test_everything_else_is_a_failure(
    code: int, output: str, debug: list[str], marked: bool, reason: str
) -> None:
    verdict = client.judge(code, output, debug, marked=marked)
    assert not verdict.ok
    assert reason in verdict.reason


def test_the_key_is_only_in_the_environment() -> None:
    assert KEY not in " ".join(client.sync_argv(["-odd", "x"], entity="e", project="p"))
    assert KEY not in repr(CREDENTIALS)
    assert CREDENTIALS.redact(f"token={KEY}!") == "token=***!"


def test_the_users_own_wandb_settings_do_not_bend_the_upload(tmp_path: Path) -> None:
    inherited = {"PATH": "/bin", "WANDB_MODE": "offline", "WANDB_RUN_ID": "x", "WANDB_CONFIG_DIR": "/c"}
    environment = client.environment(inherited, CREDENTIALS, stage=tmp_path, may_finish=True)
    assert environment["PATH"] == "/bin"
    assert environment["WANDB_CONFIG_DIR"] == "/c"
    assert environment["WANDB_API_KEY"] == KEY
    assert not {"WANDB_MODE", "WANDB_RUN_ID"} & set(environment)
    assert environment["WANDB_X_FILE_STREAM_RETRY_MAX"] == "4"
