"""clusterkit for Python programs: its page as a notebook, and what the commands and it know of each other."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import clusterkit
from tests.commands.conftest import Project
from tests.doubles.slurm_site import SlurmSite

ROOT = Path(__file__).resolve().parents[2]
LOGS = """
import sys, time, clusterkit
for step in range(1, 4):
    clusterkit.log(step=step, total_steps=3, loss=float(sys.argv[1]) / step, **{"return/mean": step})
sys.exit(int(sys.argv[2]) if sys.argv[2:] else 0)
"""


@pytest.fixture
def opened(project: Project) -> clusterkit.Project:
    """A project whose program logs; its settings name no program."""
    (project.folder / "train.py").write_text(LOGS)
    return clusterkit.open(project.folder)


@pytest.mark.slow
def test_the_page_runs_as_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "own-project"
    shutil.copytree(ROOT / "docs/examples/own-project", folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    cells = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/python.md").read_text(), re.M | re.S)
    looks = "assert {row['state'] for row in runs.status()} == {'COMPLETED'} and len(curve['step']) == 20"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (*cells, looks)])
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    silent, told, *others = (["".join(out.text for out in cell.outputs)] for cell in book.cells)
    *progress, best = told[0].splitlines()
    assert (silent, others) == ([""], [[""]] * len(others))
    assert sum(line.endswith("  COMPLETED  100%") for line in progress) == 4
    assert re.fullmatch(r"0\.[13] [12] \d+", best)
    assert len(list(folder.glob("results/mine-*/out/progress.csv"))) == 4


@pytest.mark.slow
def test_a_group_is_waited_for_read_and_brought_home(
    opened: clusterkit.Project, project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = ["python", "train.py", "{x}"]
    runs = opened.submit(argv, seeds=[1, 2], sweep={"x": [6, 12]}, name="grid", allow_unread=True)
    assert re.fullmatch(r"<4 runs: grid-\d{8}-\d{6}-\w{4}>", repr(runs))
    assert {row["state"] for row in runs.wait()} == {"COMPLETED"}
    rows = runs.metrics("loss", "return")
    assert [row["loss"] for row in rows] == [6, 3, 2, 6, 3, 2, 12, 6, 4, 12, 6, 4]
    assert rows[-1] == {
        "run_id": runs.ids[-1],
        "seed": 2,
        "x": 12,
        "step": 3,
        "loss": 4,
        "return": 3,
    }
    assert runs[:2].metrics().columns["return/mean"] == [1, 2, 3, 1, 2, 3]
    assert [folder.name for folder in runs.sync()] == list(runs.ids)
    assert (opened.settings.project.results / runs.ids[0] / "metrics.jsonl").is_file()
    (cause,) = runs.why()
    assert (cause["cause"], cause["run_ids"]) == ("completed", list(runs.ids))
    assert capfd.readouterr() == ("", "")
    plain = json.loads(json.dumps(runs.status()))
    assert [set(row) for row in plain] == [set(row) for row in project.rows(*runs.ids)]
    earlier = clusterkit.open(project.folder / "clusterkit.toml").runs(runs.name)
    assert earlier.metrics("loss", "return") == rows, "what was swept is in the synced copies"


@pytest.mark.slow
def test_a_run_that_fails_is_an_error_with_its_hint(opened: clusterkit.Project) -> None:
    run = opened.submit(["python", "train.py", "1", "3"])
    with pytest.raises(clusterkit.ClusterkitError, match=r"FAILED .*exit code 3") as caught:
        run.wait()
    assert caught.value.hint == "`.why()` tells the cause"
    assert caught.value.__notes__ == ["next:  `.why()` tells the cause"]
    (row,) = run.wait(check=False)
    assert (row["state"], run.why()[0]["sentence"]) == (
        "FAILED",
        "the program ended with an error: exit code 3",
    )
    with pytest.raises(clusterkit.ClusterkitError, match="no run logs a number 'accuracy'") as caught:
        run.metrics("accuracy")
    assert caught.value.hint == "one of loss, return/mean"


@pytest.mark.slow
def test_commands_and_programs_share_their_runs(project: Project) -> None:
    run_id = project.submit("--", "sleep")
    project.begun(run_id)
    run = clusterkit.open(project.folder).runs("last")
    assert (run.ids, run.status()[0]["state"], run.status()[0]["progress"]) == ((run_id,), "RUNNING", 0.4)
    lines: list[str] = []
    with pytest.raises(clusterkit.ClusterkitError, match=r"has not ended after 0 s"):
        run.wait(timeout=0, tell=lines.append)
    assert lines == [f"{run_id}  RUNNING  40%"]
    assert run.cancel() == [
        {"run_id": run_id, "cluster": "local", "state_before": "RUNNING", "cancelled": True}
    ]
    assert project.states(run_id) == ["CANCELLED"]


@pytest.mark.slow
def test_another_thread_than_the_first_may_do_it_all(opened: clusterkit.Project) -> None:
    states: list[str] = []
    thread = threading.Thread(
        target=lambda: states.extend(
            row["state"] for row in opened.submit(["python", "train.py", "1"]).wait()
        )
    )
    thread.start()
    thread.join(60)
    assert states == ["COMPLETED"]


@pytest.mark.slow
def test_a_cluster_that_asks_for_a_login_is_an_error(site: SlurmSite) -> None:
    site.knows({})
    site.close()
    with pytest.raises(clusterkit.ClusterkitError):
        clusterkit.open(site.project).submit(["true"])


def test_what_is_asked_wrongly_is_said(project: Project, tmp_path: Path) -> None:
    opened = clusterkit.open(project.folder)
    with pytest.raises(clusterkit.ClusterkitError, match="a command is a list of words"):
        opened.submit("python train.py")
    with pytest.raises(clusterkit.ClusterkitError, match="there is no profile 'tin'") as caught:
        opened.submit(profile="tin")
    assert str(caught.value.hint).startswith("did you mean tiny?")
    with pytest.raises(clusterkit.ClusterkitError, match=r"^max_parallel is for runs") as caught:
        opened.submit(max_parallel=2)
    wanted = "use it with seeds, sweep or --then; `--after RUN` makes one run wait for another"
    assert (caught.value.hint, caught.value.__notes__) == (wanted, [f"next:  {wanted}"])
    with pytest.raises(clusterkit.ClusterkitError, match=r"^time: '4' is not a duration; write 4h or 4m"):
        opened.submit(time="4")
    with pytest.raises(clusterkit.ClusterkitError, match="there is no run"):
        opened.runs()
    with pytest.raises(clusterkit.ClusterkitError, match=r"no project: no clusterkit\.toml here"):
        clusterkit.open(tmp_path)


def test_a_table_has_columns_and_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    table = clusterkit.Table([{"step": 1, "loss": 2.0}, {"step": 2, "won": True}])
    assert table.columns == {"step": [1, 2], "loss": [2.0, None], "won": [None, True]}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(clusterkit.ClusterkitError, match="pandas is not installed") as caught:
        table.to_pandas()
    assert caught.value.hint == "pip install pandas"
