"""The current wandb and the two releases before it: each watches a run live and ends it, each step once.

What it starts, starts cold, as it does for a person.
"""

from __future__ import annotations

import importlib.metadata
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles import forked_wandb
from tests.doubles.wandb_server import API_KEY, WandbServer
from tests.sampling import sampled
from tests.wandb.wandb_runs import write_offline_run

pytestmark = pytest.mark.slow  # clients that start cold

RELEASES = ("0.31.0", "0.30.0", "0.29.0")
SPLIT, STEPS = 30, 50


def interpreter(folder: Path, version: str) -> Path:
    """This one where that client is here; else a virtual environment with it, and what it lacks from here."""
    if importlib.metadata.version("wandb") == version:
        return Path(sys.executable)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*install, "--target", packages, f"wandb=={version}"], capture_output=True, text=True
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        pytest.skip(f"wandb {version} cannot be installed here: {lines[-1]}")
    here = [str(Path(__file__).parents[2]), *site.getsitepackages()]
    here += [path for path in sys.path if path.endswith("site-packages")]
    (packages / "rest.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(here)))
    python = folder / "bin" / "python"
    asked = "import importlib.metadata as m; import wandb; print(m.version('wandb'), wandb.__version__)"
    found = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert found.split() == [version, version]
    return python


@pytest.mark.parametrize("version", sampled(RELEASES, 1, always=RELEASES[:1]))
def test_a_run_in_two_parts_watched_live(version: str, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "venv", version)
    # The trainer's client may be of another release than the one here.
    write_offline_run(tmp_path / "run", "w1", range(SPLIT), exit_code=85, python=python)
    last = write_offline_run(tmp_path / "run", "w1", range(SPLIT, STEPS))
    whole = last.read_bytes()
    with WandbServer() as server:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WANDB_")},
            **server.client_env(tmp_path / "home"),
            "WANDB_API_KEY": API_KEY,
        }

        def upload(outcome: str) -> str:
            argv = [python, "-m", "tests.doubles.upload_killed", "0", str(tmp_path / "ledger.db")]
            done = subprocess.run(
                [*argv, str(tmp_path / "run"), outcome], env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        last.write_bytes(whole[: len(whole) // 2])
        said = upload("running")
        assert said.startswith("live "), said
        run = server.runs["w1"]
        seen = len(run.arrived)
        assert SPLIT < seen < STEPS
        assert run.state == "running"
        # The server refuses once what the client calls a success.
        last.write_bytes(whole)
        server.fail("file_stream", 401)
        said = upload("finished")
        assert said.startswith("failed "), said
        server.faults.clear()
        said = upload("finished")
        assert said.startswith("uploaded "), said
        assert run.arrived_steps == list(range(STEPS))
        assert (run.once, run.state, server.unknown) == (True, "finished", [])
        assert upload("finished").startswith("up to date ")


def test_a_client_nobody_has_tried_is_said_and_judged_by_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from clusterkit.wandb import client
    from clusterkit.wandb.ledger import RunUpload, SqliteUploads, UploadState
    from clusterkit.wandb.plan import UploadOutcome
    from clusterkit.wandb.server import Credentials
    from clusterkit.wandb.upload import UploadTarget, upload_runs

    write_offline_run(tmp_path / "run", "w1", range(10))
    monkeypatch.setattr(client.importlib.metadata, "version", lambda _: "0.99.1")
    with WandbServer() as server:
        for name, value in (server.client_env(tmp_path / "home") | forked_wandb.variables()).items():
            monkeypatch.setenv(name, value)

        def upload() -> RunUpload:
            (result,) = upload_runs(
                {"r1": tmp_path / "run"},
                outcome=lambda _: UploadOutcome.FINISHED,
                target=UploadTarget(Credentials(server.url, API_KEY)),
                ledger=SqliteUploads(sqlite3.connect(":memory:")),
            )
            return result

        fault = server.fail("RunResumeStatus", 400)
        result = upload()
        assert result.state is UploadState.FAILED
        assert "0.99.1 is not known here" in result.message
        assert server.runs == {}
        server.faults.remove(fault)
        result = upload()
        assert result.state is UploadState.UPLOADED
        assert "wandb 0.99.1 is newer than any tested version (up to 0.31)" in result.message
        assert "\n" not in result.message
        assert server.runs["w1"].arrived_steps == list(range(10))
