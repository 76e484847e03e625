"""The real client, online: against a server that answers, refuses, swallows everything, or goes away."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest

from tests.doubles.wandb_server import WandbServer
from tests.trainer.test_wandb_run import KEY, nobodys_account, opened, rows
from tests.waiting import until
from trainer.telemetry import Telemetry
from trainer.telemetry import wandb_run as module
from trainer.telemetry.wandb_run import WandbLostError, open_wandb

__all__ = ["nobodys_account"]  # a fixture that pytest finds here

pytestmark = pytest.mark.slow  # each test starts the real client

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")


def test_online_rows_arrive_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with WandbServer() as server:
        for name, value in server.client_env(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        run = opened(tmp_path, "online")
        for step in range(0, 100, 10):
            run.log(step, {"loss": step})
        run.finish(0)
        arrived = server.runs[run.id]
        assert arrived.once
        assert arrived.arrived_steps == list(range(0, 100, 10))
        assert (arrived.state, server.unknown) == ("finished", [])


def test_online_without_a_key_is_offline_and_asks_nobody(tmp_path: Path) -> None:
    run, said = open_wandb("online", tmp_path, name="demo", config={})
    assert run is not None
    assert said == ["no W&B API key is set; W&B runs offline"]
    run.log(0, {"loss": 1.0})
    run.finish(0)
    assert len(rows(tmp_path)) == 1


def test_a_key_in_netrc_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {KEY}\n")
    assert not module._has_key()
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert module._has_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not module._has_key()


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses", "is silent"])
def test_a_network_that_cannot_be_used_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    monkeypatch.setattr(module, "INIT_SECONDS", 2.0)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and never answers
        port = 9 if refuses else silent.getsockname()[1]
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
        telemetry = Telemetry.open(tmp_path, {}, 100, 0, "online", stream=io.StringIO())
        with telemetry:
            telemetry.train(10, {"loss": 1.0})
    assert [row["train/loss"] for row in rows(tmp_path)] == [1.0]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (event,) = [line for line in lines if line["kind"] == "event"]
    assert event["message"].startswith("W&B cannot be opened online")


def test_what_a_network_that_fails_later_keeps_back_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FINISH_SECONDS", 2.0)
    with WandbServer() as server:
        for name, value in server.client_env(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        run = opened(tmp_path / "run", "online")
        run.log(0, {"loss": 0})
        run.log(10, {"loss": 1})
        until(lambda: run.id in server.runs and server.runs[run.id].arrived)
        server.fail("file_stream", 0)
        for step in range(20, 100, 10):
            run.log(step, {"loss": step})
        with pytest.raises(WandbLostError, match="could not close"):
            run.finish(0)
        assert 0 < len(server.runs[run.id].arrived) < 10
    assert [row["env_steps"] for row in rows(tmp_path / "run")] == list(range(0, 100, 10)), "to be sent later"
