"""The ledger remembers runs, digests and deployments, and finds runs by what a person types."""

import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest

from clusterkit.backends.jobs import JobState
from clusterkit.commands.cancel import choose
from clusterkit.errors import ClusterkitError, RunError
from clusterkit.images.image import Image
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.ledger_faults import ledger_fault
from clusterkit.runs.selection import known_state
from clusterkit.runs.state import RunState, remembered


def run(
    run_id: str, job_id: str = "1", cluster: str = "uni", submitted: str = "2026-01-01T00:00:00Z"
) -> LedgerRun:
    return LedgerRun(run_id, cluster, "n", "p", "r", 1, job_id, submitted, f"/runs/{run_id}", 100, "PENDING")


def test_runs_survive_closing_and_come_in_order_of_submission_whatever_the_clock_said(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.sqlite3"
    with Ledger(path) as ledger:
        ledger.add(run("a", submitted="2026-01-02T00:00:00Z"))
        ledger.add(run("b", submitted="2026-01-01T00:00:00Z"))
        ledger.set_states([("a", "COMPLETED")])
    with Ledger(path) as ledger:
        assert [(r.run_id, r.state) for r in ledger.runs()] == [("a", "COMPLETED"), ("b", "PENDING")]
        assert ledger.find_one("last").run_id == "b"
        assert ledger.runs(cluster="elsewhere") == []
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_clock_set_back_does_not_put_a_new_run_before_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(tmp_path / "ledger.sqlite3") as ledger:
        for run_id, clock in (("a", 5e9), ("b", 4e9)):
            monkeypatch.setattr(time, "time", lambda clock=clock: clock)
            ledger.add(run(run_id))
        ledger.add_all([run("found"), run("later")], at={"found": 4.5e9, "later": 5.5e9})
        assert [one.run_id for one in ledger.runs()] == ["found", "a", "b", "later"]
        ledger.add(run("c"))
        assert ledger.find_one("last").run_id == "c"


def test_a_ledger_of_an_earlier_version_keeps_its_order(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    with Ledger(path) as ledger:
        for run_id in ("b", "a"):
            ledger.add(run(run_id, submitted=f"2026-01-0{'ab'.index(run_id) + 1}T00:00:00Z"))
        ledger.connection.execute("ALTER TABLE runs DROP COLUMN place")
        ledger.connection.execute("PRAGMA user_version = 4")
    with Ledger(path) as ledger:
        assert [one.run_id for one in ledger.runs()] == ["a", "b"]
        ledger.add(run("new", submitted="2025-01-01T00:00:00Z"))
        assert ledger.find_one("last").run_id == "new"


def test_runs_of_one_second_stay_as_they_were_submitted(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite3") as ledger:
        for run_id in ("z", "a", "m"):
            ledger.add(run(run_id))
        ledger.add(replace(ledger.runs()[0], job_id="9"))
        assert [one.run_id for one in ledger.runs()] == ["z", "a", "m"]
        assert ledger.find_one("last").run_id == "m"


def test_find_by_id_beginning_job_id_and_last(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.add(run("a40-2m-1-xx", "77", submitted="2026-01-01T00:00:00Z"))
        ledger.add(run("a40-2m-2-yy", "78", submitted="2026-01-02T00:00:00Z"))
        found = [run.run_id for run in ledger.find(["a40-2m-1", "78", "last"])]
        assert found == ["a40-2m-1-xx", "a40-2m-2-yy", "a40-2m-2-yy"]
        with pytest.raises(RunError, match="may mean"):
            ledger.find(["a40"])
        with pytest.raises(RunError, match="no run 'zz'"):
            ledger.find(["zz"])


def test_an_empty_name_is_not_the_beginning_of_the_only_run_or_group(tmp_path: Path) -> None:
    for group in ("", "g-1"):
        with Ledger(tmp_path / (group or "l")) as ledger:
            ledger.add(replace(run("g-1-0", "77"), group=group))
            with pytest.raises(RunError, match="is empty"):
                ledger.find([""])
            with pytest.raises(RunError, match="no group ''"):
                choose(ledger, (), group="", everything=False, cluster=None)


def test_last_of_nothing_is_an_error(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger, pytest.raises(RunError, match="none was submitted"):
        ledger.find(["last"])


def test_a_digest_is_forgotten_when_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "image.sif"
    file.write_bytes(b"one")
    with Ledger(tmp_path / "l") as ledger:
        assert ledger.digest(file) is None
        ledger.set_digest(file, "abc")
        assert ledger.digest(file) == "abc"
        file.write_bytes(b"other")
        assert ledger.digest(file) is None


def test_each_architecture_has_its_image(tmp_path: Path) -> None:
    x86, arm = Image("abc", 5, "x86_64"), Image("def", 6, "aarch64")
    with Ledger(tmp_path / "l") as ledger:
        for image in (Image("old", 4), arm, Image("ghi", 5, "x86_64"), x86):
            ledger.set_deployed("uni", image)
        assert [(each.digest, each.arch) for each in ledger.deployed("uni")] == [
            ("abc", "x86_64"),
            ("def", "aarch64"),
        ]
        ledger.set_deployed("uni", Image("new", 7))
        assert ledger.deployed("uni") == (Image("new", 7),)


def test_an_image_of_an_older_ledger_is_known(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.connection.execute("DROP TABLE images")
        ledger.connection.execute(
            "CREATE TABLE deployments (cluster TEXT PRIMARY KEY, digest TEXT, bytes INTEGER)"
        )
        ledger.connection.execute("INSERT INTO deployments VALUES ('uni', 'abc', 5)")
        ledger.connection.execute("PRAGMA user_version = 5")
    for _ in range(2):
        with Ledger(tmp_path / "l") as ledger:
            assert ledger.deployed("uni") == (Image("abc", 5),)


def test_deployments_are_per_cluster(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.set_deployed("uni", Image("abc", 5))
        assert ledger.deployed("uni") == (Image("abc", 5),)
        assert ledger.deployed("other") == ()


def test_a_damaged_or_newer_ledger_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"this is no database, it is far too short to be one" * 100)
    with pytest.raises(ClusterkitError, match="not a readable ledger"):
        Ledger(damaged)
    newer = tmp_path / "newer"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ClusterkitError, match="newer clusterkit"):
        Ledger(newer)


def test_what_is_learned_does_not_undo_a_later_submission(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.add_all([run("a", "1"), run("b", "2"), run("c", "")])
        known = ledger.runs()
        ledger.add(replace(known[1], submission=1, job_id="7"))  # resumed while a status was on its way
        ledger.add(replace(known[2], state="SUBMITTING"))
        ledger.update([replace(each, state="FAILED", last="{}", job_id="9") for each in known])
        states = [(run.state, run.job_id) for run in ledger.runs()]
        assert states == [("FAILED", "9"), ("PENDING", "7"), ("SUBMITTING", "")]
        assert ledger.ids() == {"a", "b", "c"}


def test_strangers_are_remembered(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.add_strangers("uni", ["x", "y"])
        ledger.add_strangers("uni", ["y"])
    with Ledger(tmp_path / "l") as ledger:
        assert ledger.strangers("uni") == {"x", "y"}
        assert ledger.strangers("other") == set()


def test_find_takes_a_group_for_all_of_its_runs(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        for group in ("g-1", "g-2"):
            ledger.add_all(
                replace(run(f"{group}-{index:02}", f"{group[2]}7_{index}"), group=group)
                for index in range(12)
            )
        ledger.add(run("single", "99"))
        both = [f"g-1-{index:02}" for index in range(12)]
        assert [found.run_id for found in ledger.find(["g-1"])] == both
        assert [found.run_id for found in ledger.find(["17"])] == both
        assert [found.run_id for found in ledger.find(["17_3", "g-2-11"])] == ["g-1-03", "g-2-11"]
        with pytest.raises(RunError, match=r"may mean g-1 \(12 runs\), g-2 \(12 runs\)"):
            ledger.find(["g"])
        with pytest.raises(RunError, match="may mean"):
            ledger.find(["g-1-1"])
        with pytest.raises(RunError, match="12 runs of group g-2") as error:
            ledger.find_one("g-2")
        assert "g-2-00, g-2-01, g-2-02, g-2-03 and 8 more" in (error.value.hint or "")
        assert ledger.find_one("last").run_id == "single"
        ledger.add(replace(run("g-3-0", "5", submitted="2026-02-01T00:00:00Z"), group="g-3"))
        ledger.add(replace(run("g-3-1", "5", submitted="2026-02-01T00:00:00Z"), group="g-3"))
        assert [found.run_id for found in ledger.find(["last"])] == ["g-3-0", "g-3-1"]
        assert [found.run_id for found in ledger.find(["5"])] == ["g-3-0", "g-3-1"]


_OPEN = """
import sys, time
from pathlib import Path
from clusterkit.runs.ledger import Ledger
from clusterkit.wandb.ledger import SqliteUploads
print("ready", flush=True)
sys.stdin.read()
for number in range(40):
    with Ledger(Path(sys.argv[1], str(number), "ledger")) as ledger:
        SqliteUploads(ledger.connection)
"""


@pytest.mark.slow
def test_several_processes_may_be_the_first(tmp_path: Path) -> None:
    argv, pipe = [sys.executable, "-c", _OPEN, str(tmp_path)], subprocess.PIPE
    processes = [subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    with ThreadPoolExecutor() as together:
        said = list(together.map(subprocess.Popen.communicate, processes))
    assert said == [("", "")] * 3
    assert [process.wait() for process in processes] == [0] * 3


def test_a_ledger_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ClusterkitError, match="folder: cannot be used"):
        Ledger(tmp_path / "folder")


def fault_of(use: Callable[[], object]) -> ClusterkitError | None:
    """What a command would show of an error in some use of a ledger."""
    try:
        use()
    except ClusterkitError as error:
        return error
    except sqlite3.DatabaseError as error:
        fault = ledger_fault(error)
        if fault is None:
            raise
        return fault
    return None


ODD = [None, b"\xff\x00", "", 7, -1, 1e300, "x" * 100_000, "a\x1b[31m\n", "../../etc", "{}"]


@pytest.mark.parametrize("column", [field.name for field in fields(LedgerRun)])
def test_an_odd_value_in_any_column_is_read_or_is_one_error_that_names_the_file(
    tmp_path: Path, column: str
) -> None:
    for value in ODD:
        with Ledger(tmp_path / "l") as ledger:
            ledger.add_all([run("a", "1"), run("b", "2")])
            with suppress(sqlite3.IntegrityError):
                ledger.connection.execute(f'UPDATE runs SET "{column}" = ? WHERE job_id = 2', (value,))
            if fault := fault_of(ledger.runs):
                assert str(tmp_path / "l") in fault.cause
                assert len(fault.cause) < 300
                assert "`clusterkit status` then fills a new one" in (fault.hint or "")
            else:
                assert len([known_state(row) for row in ledger.runs()]) == 2
                kinds = {field.name: {"int": int, "str": str}[str(field.type)] for field in fields(LedgerRun)}
                for row in ledger.runs():
                    assert {name: type(value) for name, value in vars(row).items()} == kinds
        (tmp_path / "l").unlink()


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", "-rf", ".", "x" * 300])
def test_an_id_by_which_another_folder_would_be_removed_is_never_read(tmp_path: Path, run_id: str) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.add(run("a", "1"))
        ledger.connection.execute("UPDATE runs SET run_id = ?", (run_id,))
        with pytest.raises(ClusterkitError, match="not a readable ledger"):
            ledger.runs()


def test_only_folders_of_secrets_are_ever_given_to_be_removed(tmp_path: Path) -> None:
    sound = ["/share/you/clusterkit/secrets/a40-2m-20260102-030405-k3f9.0a1b2c3d", "/secrets/a.0a1b2c3d"]
    with Ledger(tmp_path / "l") as ledger:
        ledger.add_secrets("uni", [*sound, "/", "/home/you", "secrets/a.0a1b2c3d", "/share/secrets/", ""])
        ledger.connection.execute("INSERT INTO secrets VALUES (x'ff', 'uni'), (7, 'uni')")
        assert ledger.secrets("uni") == sound


def test_odd_values_in_the_other_tables_are_as_if_nothing_were_known(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.connection.execute("INSERT INTO images VALUES ('uni', '', x'00', 'many')")
        ledger.connection.execute("INSERT INTO rates VALUES ('uni', 'fast', 'today')")
        ledger.connection.execute("INSERT INTO snapshots VALUES ('uni', x'ff')")
        assert (ledger.deployed("uni"), ledger.rate("uni"), ledger.snapshot("uni")) == ((), None, None)


@pytest.mark.parametrize("table", ["runs", "strangers", "secrets"])
@pytest.mark.parametrize("instead", ["", "CREATE TABLE {} (a, b)", "CREATE VIEW {} AS SELECT 1 AS a"])
def test_tables_of_something_else_are_one_error(tmp_path: Path, table: str, instead: str) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.connection.execute(f"DROP TABLE {table}")
        ledger.connection.execute(instead.format(table))
        for use in (
            lambda: ledger.add(run("a", "1")),
            ledger.runs,
            lambda: ledger.add_strangers("uni", ["x"]),
            lambda: ledger.strangers("uni"),
            lambda: ledger.add_secrets("uni", ["x"]),
            lambda: ledger.secrets("uni"),
        ):
            if fault := fault_of(use):
                assert "not a readable ledger" in fault.cause


def read_all(path: Path) -> None:
    with Ledger(path) as ledger:
        for row in ledger.runs():
            known_state(row)


def test_a_ledger_cut_or_overwritten_anywhere_is_read_or_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with Ledger(path) as ledger:
        ledger.add_all(run(f"run{number}", str(number)) for number in range(200))
        ledger.connection.execute("PRAGMA journal_mode = DELETE")
    whole = path.read_bytes()
    dice = random.Random(1)
    cuts = [whole[:at] for at in (0, 1, 99, 512, 4095, *range(4096, len(whole), 4096))]
    zeroed = [whole[:at] + bytes(4096) + whole[at + 4096 :] for at in range(0, len(whole), 4096)]
    flipped = [bytearray(whole) for _ in range(150)]
    for data in flipped:
        for _ in range(dice.choice([1, 1, 4, 40])):
            data[dice.choice([dice.randrange(100), dice.randrange(len(data))])] = dice.randrange(256)
    for data in (*cuts, *zeroed, *flipped):
        path.write_bytes(data)
        if fault := fault_of(partial(read_all, path)):
            assert str(path) in fault.cause or ".clusterkit/ledger.sqlite3" in fault.cause
        for left in tmp_path.glob("l-*"):
            left.unlink()


@pytest.mark.parametrize(
    "last",
    [
        {"progress": "x", "eta_seconds": [], "updated": {}, "why": 5, "others": 5, "attempt": "a"},
        {"progress": 10**400, "updated": -(10**30), "limit_seconds": 1e300, "final": "no"},
        {"why": "x" * 200_000, "others": [1], "node": []},
    ],
)
def test_a_remembered_state_with_values_of_other_kinds_has_none_of_them(last: dict[str, object]) -> None:
    assert remembered(json.dumps({"state": "FAILED", **last})) == RunState(JobState.FAILED)
    assert remembered(json.dumps(last)) is None
    assert remembered("[1]") is None
