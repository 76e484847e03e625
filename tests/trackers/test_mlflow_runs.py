"""MLflow's stores after runs are requeued and synced again and again, read by MLflow's own client."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterkit.errors import TrackerError
from clusterkit.trackers.base import RunStatus, TrackedRun
from clusterkit.trackers.mlflow import Mlflow
from tests.ports import free_port
from tests.trackers.run_files import ALL_STEPS, RUN_ID, STARTS, append, expected, line, lines, log

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

pytest.importorskip("mlflow", reason="mlflow-skinny is not installed (extra `trackers`)")

ROOT = Path(__file__).parents[2]
RUN = TrackedRun(
    RUN_ID,
    RunStatus.RUNNING,
    started=1767243600.5,
    ended=None,
    parameters={"seed": "3", "recipe": "a40", "long": "x" * 9000, **{f"p{n}": str(n) for n in range(150)}},
    tags={"cluster": "far", "git_commit": "c0ffee"},
)


TAGS = {"clusterkit.run": RUN_ID, "clusterkit.cluster": "far", "mlflow.source.git.commit": "c0ffee"}


def opened(place: str) -> Mlflow:
    return Mlflow(place, "mine", lambda _: None)


@dataclass(frozen=True)
class Store:
    """A store of MLflow, and the run directory whose metrics it gets."""

    uri: str
    run_dir: Path

    def sync(self, text: str = "", run: TrackedRun = RUN) -> bool:
        """What a `sync-results` does once `text` has come home."""
        return log(opened(self.uri), run, append(self.run_dir, text))

    @property
    def client(self) -> MlflowClient:
        from mlflow import MlflowClient

        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        return MlflowClient(tracking_uri=Path(self.uri).as_uri() if self.uri.startswith("/") else self.uri)

    @property
    def run(self) -> Run:
        """The only run there."""
        from mlflow.entities import ViewType

        found = self.client.get_experiment_by_name("mine")
        (run,) = self.client.search_runs([found.experiment_id], run_view_type=ViewType.ALL)
        return run

    def history(self, key: str) -> list[tuple[int, float]]:
        return [(one.step, one.value) for one in self.client.get_metric_history(self.run.info.run_id, key)]


@pytest.fixture(params=["folder", pytest.param("sqlite", marks=pytest.mark.slow)])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    place = tmp_path / "my results"
    uri = str(place / "mlruns") if request.param == "folder" else f"sqlite:///{place}/mlflow.db"
    return Store(uri, tmp_path / RUN_ID)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a tracking server."""
    pytest.importorskip("flask", reason="the whole package mlflow is not installed")
    port = free_port()
    words = ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db", "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *words]
    with (
        (tmp_path / "server.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            until_it_answers(f"http://127.0.0.1:{port}/health")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def until_it_answers(url: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


def each_step_once(store: Store, starts: Sequence[range] = STARTS) -> bool:
    return (
        store.history("train/loss") == list(expected(starts, first=True).items())
        and [step for step, _ in store.history("eval/success/mean")] == ALL_STEPS[9 : starts[-1][-1] : 10]
        and [step for step, _ in store.history("train/speed")] == ALL_STEPS[2 : starts[-1][-1] : 3]
    )


def test_a_run_requeued_twice_and_synced_after_each_start_has_each_step_once(store: Store) -> None:
    for attempt, steps in enumerate(STARTS):
        assert store.sync(lines(steps, attempt))
        assert each_step_once(store, STARTS[: attempt + 1])
        for _ in range(2):
            assert not store.sync()
    assert each_step_once(store)


@pytest.mark.slow
def test_a_server_has_each_step_once_too(server: str, tmp_path: Path) -> None:
    store = Store(server, tmp_path / RUN_ID)
    for attempt, steps in enumerate(STARTS):
        assert store.sync(lines(steps, attempt))
        assert not store.sync()
    store.client.set_tag(store.run.info.run_id, "clusterkit.logged", "unfinished")
    assert store.sync()
    assert each_step_once(store)


def test_a_run_synced_only_at_its_end_shows_the_last_starts(store: Store) -> None:
    store.sync("".join(lines(steps, attempt) for attempt, steps in enumerate(STARTS)))
    assert store.history("train/loss") == list(expected().items())


def test_parameters_tags_state_and_times_are_the_runs(store: Store) -> None:
    store.sync(lines(STARTS[0], 0))
    run = store.run
    assert run.info.run_name == RUN_ID
    assert run.data.params == {**RUN.parameters, "long": "x" * 6000}
    assert run.data.tags.items() >= TAGS.items()
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("RUNNING", 1767243600500, None)
    ended = replace(RUN, status=RunStatus.FAILED, ended=1767243700.25)
    assert store.sync(run=ended)
    assert not store.sync(run=ended)
    assert (store.run.info.status, store.run.info.end_time) == ("FAILED", 1767243700250)
    assert store.sync(lines(STARTS[1], 1))  # it was resumed
    assert store.run.info.status == "RUNNING"
    assert store.sync(run=replace(ended, status=RunStatus.FINISHED, ended=1767243800.0))
    assert (store.run.info.status, store.run.info.end_time) == ("FINISHED", 1767243800000)


def test_an_end_whose_time_is_unknown_is_recorded_once(store: Store) -> None:
    died = replace(RUN, status=RunStatus.FAILED)
    assert store.sync(lines(STARTS[0], 0), run=died)
    assert not store.sync(run=died)


SYNC = """
import sys
from pathlib import Path
from tests.trackers.test_mlflow_runs import Store
Store(sys.argv[1], Path(sys.argv[2])).sync()
"""


@pytest.mark.slow
def test_a_sync_killed_between_two_batches_and_repeated_has_each_step_once(store: Store) -> None:
    steps = range(1, 12_001)
    append(store.run_dir, "".join(line(step, loss=step, speed=1) for step in steps))
    for kill in range(3):
        command = [sys.executable, "-c", SYNC, store.uri, str(store.run_dir)]
        with subprocess.Popen(command, cwd=ROOT) as process:
            before, deadline = arrived(store), time.monotonic() + 60
            while arrived(store) <= before:
                assert process.poll() is None, f"it ended before kill {kill}"
                assert time.monotonic() < deadline
            process.send_signal(signal.SIGKILL)
        opened(store.uri)  # MLflow itself cannot read a line that was cut
        assert store.run.data.tags["clusterkit.logged"] == "unfinished"
        there = [step for step, _ in store.history("train/loss")]
        assert there == list(range(1, len(there) + 1))
        assert 0 < len(there) < 11_000
    append(store.run_dir, "".join(line(step, 1, loss=-step) for step in range(11_000, 13_001)))
    assert store.sync()
    assert not store.sync()
    assert store.history("train/loss") == [
        (step, step if step < 11_000 else -step) for step in range(1, 13_001)
    ]
    assert [step for step, _ in store.history("train/speed")] == list(steps)


def arrived(store: Store) -> int:
    """How many numbers of the run there are, whatever writes meanwhile."""
    if store.uri.startswith("/"):
        files = [*Path(store.uri).glob("*/*/metrics/train/loss")]
        return sum(path.read_bytes().count(b"\n") for path in files)
    import sqlite3

    try:
        with sqlite3.connect(store.uri.removeprefix("sqlite:///"), timeout=60) as database:
            return int(database.execute("SELECT count(*) FROM metrics").fetchone()[0])
    except sqlite3.OperationalError:  # it is not made yet
        return 0


def test_a_metrics_file_that_became_shorter_is_compared_with_what_is_there(store: Store) -> None:
    text = lines(STARTS[0], 0)
    store.sync(text)
    (store.run_dir / "metrics.jsonl").write_text(line(1, loss=5.0) + line(100, loss=6.0))
    assert store.sync()
    assert store.history("train/loss") == [*expected(STARTS[:1]).items(), (100, 6.0)]


NAMES = {
    "a b": "train/a b",
    "größe/ü": "train/größe/ü",
    "/": "train/_/_-",
    "../../x": "train/_/_/x-",
    "a//b": "train/a/_/b-",
    "": "train/_-",
    "[x]\n<script>": "train/_x___script_-",
    "x%y": "train/x_y-",
    "x&y": "train/x_y-",
    "ü" * 5000: "train/üüü",
    "half \ud800": "train/half _-",
}


def test_hostile_names_arrive_each_as_one_metric(store: Store) -> None:
    text = line(1, **dict.fromkeys(NAMES, 1.0)) + line(2, **dict.fromkeys(NAMES, 2.0))
    assert store.sync(text)
    assert not store.sync()
    keys = store.run.data.metrics
    assert len(keys) == len(NAMES)
    for name, start in NAMES.items():
        if start.endswith("-") or len(name) > 1000:
            assert any(key.startswith(start) for key in keys), name
        else:
            assert start in keys
    for key in keys:
        assert store.history(key) == [(1, 1.0), (2, 2.0)]


def test_hostile_numbers_arrive(store: Store) -> None:
    store.sync(
        line(-5, x=math.nan) + line(10**17, x=math.inf) + line(1, x=-math.inf, big=10**400) + line(2, x=1e300)
    )
    found = dict(store.history("train/x"))
    assert math.isnan(found.pop(-5))
    assert found[2] == 1e300
    assert found[10**17] >= sys.float_info.max  # SQLite has no infinity
    assert found[1] <= -sys.float_info.max
    assert not store.sync()


@pytest.mark.parametrize("order", [("a", "a/b"), ("a/b", "a")])
def test_parameters_of_which_one_is_the_folder_of_the_other_arrive(
    store: Store, order: tuple[str, str]
) -> None:
    odd = {"half \ud800": "x\ud800", "//": "1", "..": "2", "a\nb": "two\nlines", "p" * 300: "long", "": ""}
    run = replace(RUN, parameters={**dict(zip(order, "12", strict=True)), **odd})
    assert store.sync(lines(STARTS[0], 0), run)
    store.client.set_tag(store.run.info.run_id, "clusterkit.logged", "unfinished")
    assert store.sync(run=run)
    assert not store.sync(run=run)
    parameters = store.run.data.params
    assert len(parameters) == len(run.parameters)
    assert parameters[order[0]] == "1"
    assert "2" in [value for name, value in parameters.items() if name.startswith("a")]


def test_a_parameter_that_has_another_value_there_does_not_stop_the_metrics(store: Store) -> None:
    store.sync(lines(STARTS[0], 0))
    store.client.set_tag(store.run.info.run_id, "clusterkit.logged", "unfinished")
    assert store.sync(lines(STARTS[1], 1), replace(RUN, parameters={"seed": "4", "new": "5"}))
    assert store.run.data.params.items() >= {"seed": "3", "new": "5"}.items()


@pytest.mark.parametrize("torn", [b"", b"17672436", b"1767243601000 0.5 1\n17672", bytes(40)])
def test_files_that_a_power_loss_has_cut_are_repaired(tmp_path: Path, torn: bytes) -> None:
    store = Store(str(tmp_path / "mlruns"), tmp_path / RUN_ID)
    store.sync(lines(STARTS[0], 0))
    run = next(Path(store.uri).glob("*/*/tags")).parent
    (run / "tags/clusterkit.logged").write_text("unfinished")
    (run / "metrics/train/loss").write_bytes(torn)
    (run / "params/seed").write_bytes(b"")
    assert store.sync()
    assert [step for step, _ in store.history("train/loss")] == list(STARTS[0])
    assert store.run.data.params["seed"] == "3"


@pytest.mark.parametrize("order", [("loss", "loss/critic"), ("loss/critic", "loss")])
def test_a_metric_and_a_group_of_the_same_name_have_each_step_once(
    store: Store, order: tuple[str, str]
) -> None:
    for step, names in enumerate((order[:1], order[1:], order, order)):
        store.sync(line(step, **dict.fromkeys(names, 1.0)))
    histories = {key: [step for step, _ in store.history(key)] for key in store.run.data.metrics}
    assert sorted(histories.values()) == [[0, 2, 3], [1, 2, 3]]
    assert f"train/{order[0]}" in histories


def test_a_run_deleted_in_mlflow_stays_deleted(store: Store) -> None:
    store.sync(lines(STARTS[0], 0))
    store.client.delete_run(store.run.info.run_id)
    assert not store.sync(lines(STARTS[1], 1))
    assert store.run.info.lifecycle_stage == "deleted"


def test_a_store_that_was_removed_is_filled_anew(store: Store) -> None:
    store.sync(lines(STARTS[0], 0))
    place = Path(store.uri.removeprefix("sqlite:///"))
    place.rename(place.with_name("gone"))
    append(store.run_dir, lines(STARTS[1], 1))
    # In a new process: MLflow's client keeps the file open.
    subprocess.run([sys.executable, "-c", SYNC, store.uri, str(store.run_dir)], cwd=ROOT, check=True)
    place.rename(place.with_name("new"))
    uri = store.uri.replace(place.name, "new")
    assert Store(uri, store.run_dir).history("train/loss") == list(expected(STARTS[:2]).items())


def test_several_runs_and_strangers_in_the_experiment_stay_apart(store: Store) -> None:
    store.sync(lines(STARTS[0], 0))
    experiment = store.run.info.experiment_id
    stranger = store.client.create_run(experiment, run_name=RUN_ID)
    store.client.log_metric(stranger.info.run_id, "train/loss", 7.0, step=1)
    other = replace(RUN, run_id="other")
    for _ in range(2):
        runs = opened(store.uri)
        log(runs, RUN, append(store.run_dir, ""))
        log(runs, other, append(store.run_dir.with_name("other"), lines(STARTS[0], 0)))
    found = store.client.search_runs([experiment])
    assert len(found) == 3
    again = [run for run in found if run.data.tags.get("clusterkit.run") == "other"]
    history = store.client.get_metric_history(again[0].info.run_id, "train/loss")
    assert len(history) == 2 * 30 - 30


@pytest.mark.slow
def test_an_unreachable_server_is_one_clear_line() -> None:
    with pytest.raises(TrackerError, match=r"MLflow at http://127.0.0.1:9") as raised:
        opened("http://127.0.0.1:9")
    assert "\n" not in raised.value.cause


def test_a_store_that_cannot_be_opened_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database\n" * 100)
    with pytest.raises(TrackerError, match="file is not a database") as raised:
        opened(f"sqlite:///{tmp_path}/mlflow.db")
    assert "\n" not in raised.value.cause


@pytest.mark.parametrize("package", ["mlflow", "alembic", "sqlalchemy"])
def test_without_a_package_the_error_says_how_to_install_it(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TrackerError, match=f"the package {package} is not installed") as raised:
        opened(f"sqlite:///{tmp_path}/mlflow.db")
    assert "[trackers]" in (raised.value.hint or "")


QUIET = """
import socket, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        print("network:", event, arguments, file=sys.stderr)
sys.addaudithook(refuse)
"""


def test_nothing_is_printed_and_no_connection_is_made(store: Store) -> None:
    append(store.run_dir, lines(STARTS[0], 0))
    done = subprocess.run(
        [sys.executable, "-c", QUIET + SYNC, store.uri, str(store.run_dir)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert each_step_once(store, STARTS[:1])
