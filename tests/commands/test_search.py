"""A search on this machine: trials are runs, none is lost or submitted twice, bad ones are ended early."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import ClusterkitError
from clusterkit.search.definition import Definition
from clusterkit.search.study import Study, load_optuna
from clusterkit.search.summary import read_bests, write_best
from tests.commands.conftest import Project
from tests.killing import kills

pytestmark = pytest.mark.slow

TRAIN = """
import json, os, sqlite3, sys, time
with open(os.environ["STARTED"], "a") as file:
    file.write(os.environ["CLUSTERKIT_RUN_ID"] + "\\n")
lr, width = float(sys.argv[1]), int(sys.argv[2])
best = 1.0 - abs(lr - 0.3) - abs(width - 32) / 100
if sys.argv[3:] == ["fails"] and width == 64:
    sys.exit(1)
run = os.environ["CLUSTERKIT_RUN_DIR"]
number = os.environ["CLUSTERKIT_RUN_ID"].rpartition("-")[2]
def seen():
    asked = "SELECT count(*) FROM trials JOIN trial_intermediate_values USING (trial_id) WHERE number = ?"
    try:
        with sqlite3.connect(f"file:{os.environ['STUDY']}?mode=ro", uri=True) as trials:
            return trials.execute(asked, (number,)).fetchone()[0] > 0
    except sqlite3.OperationalError:
        return False
for step in range(1, 17):
    if step == 12 and "STUDY" in os.environ:
        until = time.time() + 60
        while not seen() and time.time() < until:
            time.sleep(0.1)
    now = {"step": step, "time": time.time(), "attempt": int(os.environ["CLUSTERKIT_ATTEMPT"])}
    with open(f"{run}/metrics.jsonl", "a") as file:
        file.write(json.dumps({"kind": "train", **now, "height": best * step / 16}) + "\\n")
    time.sleep(float(os.environ.get("PAUSE", "0.15")))
"""
SPACE = ("--space", "lr=0.01:1.0", "--space", "width=16,32,64", "--metric", "height")
ARGUMENTS = ("--", "{lr}", "{width}")
DEFINITION = Definition(
    name="toy", group="toy-20260101-000000-aaaa", created="2026-01-01T00:00:00Z", size=3,
    space={"lr": "log:1e-4:1e-2", "width": "16,32"}, metric="height", direction="maximize",
    sampler="random", prune="none", cluster="local", profile="tiny",
)  # fmt: skip


@pytest.fixture
def toy(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (project.folder / "train.py").write_text(TRAIN)
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    return project


def started(toy: Project) -> Counter[str]:
    return Counter(Path(os.environ["STARTED"]).read_text().split())


def known(toy: Project) -> dict[str, Any]:
    return dict(json.loads(toy.run("search", "toy", "--best", "--json").stdout))


def height(trial: dict[str, Any]) -> float:
    """The last value of a trial that is not ended early."""
    values = trial["values"]
    return 1.0 - abs(float(values["lr"]) - 0.3) - abs(int(values["width"]) - 32) / 100


def drive(toy: Project, *words: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    return toy.start("search", "toy", *words, COLUMNS="79")


def test_a_search_of_24_trials_that_is_killed_twice_loses_none_and_doubles_none(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No trial ends before the search has looked at it once.
    monkeypatch.setenv("STUDY", str(toy.folder / ".clusterkit" / "searches" / "toy" / "trials.sqlite3"))
    words: tuple[str, ...] = (*SPACE, *ARGUMENTS)
    for least in (5, 13):
        driver = drive(toy, *words)
        toy.until(lambda least=least: Path(os.environ["STARTED"]).exists() and len(started(toy)) >= least)
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        assert driver.returncode == -signal.SIGKILL
        words = ()
    toy.run("search", "toy")

    found = known(toy)
    trials = {one["run_id"]: one for one in found["trials"]}
    assert len(trials) == 24
    assert set(started(toy)) == set(trials), "a trial without a run, or a run without a trial"
    assert set(started(toy).values()) == {1}, "a run that was started twice"
    assert {path.name for path in toy.run_dir("").iterdir()} == set(trials)
    ended = Counter(one["state"] for one in trials.values())
    assert set(ended) == {"complete", "pruned"}
    for row in toy.rows("--all"):
        assert row["state"] == ("CANCELLED" if trials[row["run_id"]]["state"] == "pruned" else "COMPLETED")

    complete = [one for one in trials.values() if one["state"] == "complete"]
    last_tenth = (15 + 16) / 2 / 16
    assert all(one["value"] == pytest.approx(last_tenth * height(one)) for one in complete)
    best = max(complete, key=height)
    (toy.folder / ".clusterkit" / "ledger.sqlite3").unlink()
    shutil.rmtree(toy.folder / ".clusterkit" / "local")
    (toy.folder / ".clusterkit" / "searches" / "toy" / "best.json").unlink()
    alone = known(toy)
    assert alone == found
    assert alone["trials"][0] == best
    assert alone["best"] == best["number"]


def test_a_search_killed_while_its_files_are_made_begins_again(toy: Project) -> None:
    words = (*SPACE, "--trials", "2", *ARGUMENTS)
    for name in ("search.json", "new-trials.sqlite3", "new-trials.sqlite3-journal", "trials.sqlite3"):
        driver = drive(toy, *words)
        folder = toy.folder / ".clusterkit" / "searches" / "toy"
        while driver.poll() is None and not any((folder / one).exists() for one in (name, "trials.sqlite3")):
            pass  # some of these files are there for a moment only
        driver.kill()
        driver.communicate()
    toy.run("search", "toy")
    found = known(toy)
    assert started(toy) == Counter(one["run_id"] for one in found["trials"])
    assert len(found["trials"]) == 2


def test_a_search_killed_at_some_steps_starts_each_trial_once(
    toy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("search", "toy", *SPACE, "--trials", "2", "--at-once", "2", "--prune", "none", *ARGUMENTS)
    monkeypatch.setenv("PAUSE", "0.02")
    assert kills("1:12", *words, folder=toy.folder) >= 4
    found = known(toy)
    assert [one["state"] for one in found["trials"]] == ["complete"] * 2
    assert started(toy) == Counter(one["run_id"] for one in found["trials"])


def test_a_second_driver_of_a_search_is_refused(toy: Project) -> None:
    driver = drive(toy, *SPACE, "--trials", "2", *ARGUMENTS)
    toy.until(lambda: Path(os.environ["STARTED"]).exists())
    driver.send_signal(signal.SIGSTOP)
    refused = toy.run("search", "toy", code=8)
    assert refused.stderr.splitlines()[-2:] == [
        "error: another process drives search toy",
        "next:  `clusterkit search toy --best` shows it",
    ]
    driver.send_signal(signal.SIGCONT)
    driver.communicate()
    assert driver.returncode == 0
    assert len(started(toy)) == 2


def test_a_trial_that_fails_or_is_cancelled_is_said_and_not_repeated(toy: Project) -> None:
    done = toy.run(
        "search", "toy", *SPACE, "--space", "kind=fails,works", "--sampler", "random", "--trials", "8",
        *ARGUMENTS, "{kind}",
    )  # fmt: skip
    found = known(toy)
    assert len(found["trials"]) == len(started(toy)) == 8
    for trial in found["trials"]:
        bad = trial["values"]["kind"] == "fails" and trial["values"]["width"] == "64"
        assert (trial["state"] == "failed") == bad
        assert (
            f"trial {trial['number']} failed: FAILED; `clusterkit why {trial['run_id']}`" in done.stderr
        ) == bad
        assert not bad or trial["why"].startswith("FAILED")


# Trial 0 learns. The losses of 1 and 2 are the best until they diverge; 2 cannot write NaN.
DIVERGES = """
import json, os, sys
trial = os.environ["CLUSTERKIT_RUN_ID"].rpartition("-")[2]
with open(os.environ["CLUSTERKIT_RUN_DIR"] + "/metrics.jsonl", "a") as file:
    for step in range(1, 21):
        loss = 1 / step if trial == "0" else 10.0 ** (1 - step) if step < 11 else float("nan")
        row = {"kind": "train", "step": step, "loss": loss}
        text = json.dumps(row)
        file.write((text.replace("NaN", "null") if trial == "2" else text) + "\\n")
"""


def test_a_trial_that_ends_in_nan_has_no_value_however_good_it_was(toy: Project) -> None:
    (toy.folder / "train.py").write_text(DIVERGES)
    done = toy.run(
        "search", "toy", "--space", "lr=0.1:0.9", "--metric", "loss", "--direction", "minimize",
        "--trials", "3", "--at-once", "1", "--", "{lr}",
    )  # fmt: skip
    found = known(toy)
    assert found["best"] == 0
    ends = [(one["state"], one["value"], one["step"]) for one in found["trials"]]
    assert ends[0] == ("complete", pytest.approx((1 / 19 + 1 / 20) / 2), 20)
    table = toy.run("search", "toy", "--best").stdout
    for trial, how in zip(found["trials"][1:], ("not finite", "null, not finite,"), strict=True):
        why = f"loss was {how} from step 11 to the end"
        assert (trial["state"], trial["value"], trial["why"]) == ("failed", None, why)
        assert f"trial {trial['number']} failed: {why}" in done.stderr
        assert why in table


def test_a_trial_that_completes_without_the_metric_ends_the_search_with_the_names_it_logs(
    toy: Project,
) -> None:
    failed = toy.run("search", "toy", *SPACE[:4], "--trials", "2", "--at-once", "1", *ARGUMENTS, code=8)
    assert "completed, but logged no number 'success/mean'" in failed.stderr
    assert failed.stderr.splitlines()[-1] == "next:  begin another search with --metric, one of height"
    assert len(started(toy)) == 1


def test_status_and_report_show_the_best_trial_of_a_search(toy: Project) -> None:
    told = toy.run("search", "toy", *SPACE, "--trials", "3", *ARGUMENTS).stderr
    found = known(toy)
    best = found["trials"][0]
    assert f"best: {best['run_id']}; `clusterkit rerun {best['run_id']} --seed N` runs it with" in told
    group = json.loads(toy.run("status", "--json").stdout)["groups"][0]
    assert group["best"] == {
        "search": "toy",
        "trial": best["number"],
        "run_id": best["run_id"],
        "metric": "height",
        "value": best["value"],
        "values": best["values"],
    }
    line = f"best of toy: {best['run_id']}, height {best['value']:.4g} with lr="
    assert line in toy.run("status").stderr
    toy.run("sync-results", found["group"], "--no-wandb")
    assert line in toy.run("report", found["group"]).stderr


def test_a_search_goes_on_with_more_trials_but_not_with_another_space(toy: Project) -> None:
    toy.run("search", "toy", *SPACE, "--trials", "1", *ARGUMENTS)
    toy.run("search", "toy", "--trials", "2")
    assert len(known(toy)["trials"]) == len(started(toy)) == 2
    refused = toy.run("search", "toy", "--space", "lr=1:2", code=3)
    assert "search toy has begun with another space" in refused.stderr


def test_a_search_whose_ledger_is_lost_finds_its_runs_again(toy: Project) -> None:
    driver = drive(toy, *SPACE, "--trials", "4", *ARGUMENTS)
    toy.until(lambda: Path(os.environ["STARTED"]).exists() and len(started(toy)) == 4)
    driver.kill()
    driver.communicate()
    for file in (toy.folder / ".clusterkit").glob("ledger.sqlite3*"):
        file.unlink()
    toy.run("search", "toy")
    assert [one["state"] for one in known(toy)["trials"]] == ["complete"] * 4
    assert set(started(toy).values()) == {1}


def test_pruning_ends_a_trial_that_is_nan_now_and_it_has_no_value(tmp_path: Path) -> None:
    asked = {
        "space": {"lr": "0.1:0.9"},
        "metric": "loss",
        "direction": "minimize",
        "size": 4,
        "prune": "asha",
    }
    study = Study(tmp_path, replace(DEFINITION, **asked))
    for number in (0, 1, 2):
        study.ask()
        study.report(number, {step: 1.0 / step for step in range(1, 101)})
        study.complete(number, 100, 0.01)
    lost = study.ask().number
    assert study.report(lost, {1: 1e-9, **dict.fromkeys(range(2, 50), math.nan)})
    study.prune(lost)
    (trial,) = study.trials("pruned")
    assert (trial.number, trial.value) == (lost, None)
    assert study.best().number != lost
    study.ask()  # the sampler chooses on


def test_without_optuna_a_search_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ClusterkitError, match="needs Optuna") as raised:
        load_optuna()
    assert "pip install" in str(raised.value.hint)
    assert "[search]" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("space", "cause"),
    [
        ("lr", "--space lr: neither NAME=VALUES nor a .toml file"),
        ("lr=1:0", "--space lr=1:0: the first bound is not below the second"),
        ("lr=log:0:1", "--space lr=log:0:1: a logarithmic interval begins above 0"),
        ("lr=a:b", "--space lr=a:b: a bound is not a number"),
        ("lr=1", "--space lr=1: not two different values or more"),
        ("l r=1:2", "--space l r=...: 'l r' cannot be a name"),
    ],
)
def test_a_wrong_space_is_refused_before_anything_is_made(toy: Project, space: str, cause: str) -> None:
    assert cause in toy.run("search", "toy", "--space", space, code=3).stderr
    assert not (toy.folder / ".clusterkit" / "searches").exists()


def test_a_space_comes_from_a_file_too(toy: Project) -> None:
    (toy.folder / "space.toml").write_text('lr = "0.1:0.2"\nwidth = [16, 32]\n')
    toy.run("search", "toy", "--space", "space.toml", "--metric", "height", "--trials", "1", *ARGUMENTS)
    (trial,) = known(toy)["trials"]
    assert 0.1 <= float(trial["values"]["lr"]) <= 0.2
    assert trial["values"]["width"] in ("16", "32")


def test_a_damaged_file_of_trials_is_named(toy: Project) -> None:
    toy.run("search", "toy", *SPACE, "--trials", "1", *ARGUMENTS)
    (toy.folder / ".clusterkit" / "searches" / "toy" / "trials.sqlite3").write_bytes(b"no database" * 1000)
    failed = toy.run("search", "toy", code=1)
    cause = "the trials of the search, trials.sqlite3 in its folder, cannot be read or written: "
    assert f"error: {cause}file is not a database\n" in failed.stderr


def a_study(folder: Path) -> Definition:
    folder.mkdir(parents=True, exist_ok=True)
    study = Study(folder, DEFINITION)
    for number in range(3):
        study.ask()
        study.report(number, {1: 0.5, 2: 0.6})
        study.complete(number, 3, 0.7)
    return replace(DEFINITION, materials={"snapshot": "x"})


def test_trials_cut_or_overwritten_anywhere_are_read_or_are_one_error(tmp_path: Path) -> None:
    definition = a_study(tmp_path)
    file = tmp_path / "trials.sqlite3"
    whole = file.read_bytes()
    dice = random.Random(2)
    damages = [b"", whole[:50], whole[:4096], whole[: len(whole) // 2], b"text" * 2000]
    damages += [whole[:at] + bytes(4096) + whole[at + 4096 :] for at in range(0, len(whole), 4096)]
    for _ in range(20):
        flipped = bytearray(whole)
        for _ in range(30):
            flipped[dice.randrange(len(flipped))] = dice.randrange(256)
        damages.append(bytes(flipped))
    errors: list[ClusterkitError] = []
    for data in damages:
        file.write_bytes(data)
        try:
            Study(tmp_path, definition)
        except ClusterkitError as error:
            errors.append(error)
    assert len(errors) > len(damages) // 2
    assert [error.cause for error in errors if "search of another name" not in (error.hint or "")] == []


def test_a_search_whose_trials_are_gone_does_not_give_their_runs_to_new_ones(tmp_path: Path) -> None:
    definition = a_study(tmp_path)
    (tmp_path / "trials.sqlite3").unlink()
    with pytest.raises(ClusterkitError, match="it is gone") as raised:
        Study(tmp_path, definition)
    assert "search of another name" in (raised.value.hint or "")


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"group": "g"}', '{"value": "x"}', "\\xff"])
def test_a_damaged_copy_of_the_best_trial_is_passed_over(tmp_path: Path, text: str) -> None:
    definition = a_study(tmp_path / "searches/toy")
    best = Study(tmp_path / "searches/toy", definition).best()
    write_best(tmp_path / "searches/toy", definition, best)
    file = tmp_path / "searches/toy/best.json"
    assert list(read_bests(tmp_path)) == [definition.group]
    kept = json.loads(file.read_text())
    file.write_text(text)
    assert read_bests(tmp_path) == {}
    file.write_text(json.dumps({**kept, "value": "much"}))
    assert read_bests(tmp_path) == {}
