"""docs/json.md: its samples have the fields that the commands print."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.checks import Outcome, Verdict
from clusterkit.backends.jobs import Continuation, JobState
from clusterkit.cli import build, login, rehearse, report, storage_prune, sync_results
from clusterkit.cli import storage_list as show_images
from clusterkit.cli.build import Built
from clusterkit.cli.login import LoggedIn
from clusterkit.cli.rehearse import Rehearsed
from clusterkit.cli.ui import model as show_model
from clusterkit.cli.ui import tune as show_tune
from clusterkit.cli.ui.model import ChosenModel, Evaluated, Score
from clusterkit.cli.ui.tune import Tuned
from clusterkit.commands.report import Reported, ReportRow
from clusterkit.commands.storage import EnvironmentRow, Garbage, ImageRow, Rubbish, Young
from clusterkit.commands.sync import Synced
from clusterkit.config.models import Profile
from clusterkit.forecast.bench import Bench, BenchRow, BenchSetting
from clusterkit.forecast.tuning import Chosen
from clusterkit.images.building.packages import PackageChanges
from clusterkit.images.image import Image
from clusterkit.images.inventory import StoredImage
from clusterkit.probes.usage import Gpu
from clusterkit.report.advice import Bottleneck, Change, GroupAdvice, RuleCheck
from clusterkit.report.facts import EqualRuns
from clusterkit.report.needs import ResourceNeed
from clusterkit.results.pull import PulledRun
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.state import RunState
from clusterkit.wandb.ledger import RunUpload, UploadState
from docs.tools import scratch
from tests.documented import ROOT, commands, invoke, options

BY_NAME = {
    *("states", "tasks", "heartbeat", "silent", "mute", "found"),
    *("settings", "origins", "left", "failed", "added", "removed", "changed"),
}
"""Objects whose keys are no field names of ours."""


SEARCH = ("search", "lr", "--space", "lr=0.1:0.5")
NEEDS_A_SITE = {"evaluate", "storage list", "login", "build", "tune", "rehearse"}
"""What `test_the_samples_of_what_needs_a_site_or_a_model` compares."""


AS_SUBMIT = ("resume", "rerun")
"""Their samples hold only what they add to each run of the sample of `submit`."""


def samples() -> dict[str, Any]:
    _, *sections = re.split(r"^## ", (ROOT / "docs" / "json.md").read_text(), flags=re.MULTILINE)
    blocks = {one.partition("\n")[0]: one.partition("```json\n")[2].partition("```")[0] for one in sections}
    shown = {name: json.loads(block) for name, block in blocks.items()}
    (run,) = shown["submit"]["runs"]
    longer = {name: {**shown["submit"], "runs": [{**run, **shown[name]}]} for name in AS_SUBMIT}
    return {**shown, **longer}


def fields(value: Any) -> Any:
    """The names in a document, without what they hold; of a list those of its first element."""
    if isinstance(value, dict):
        return {key: None if key in BY_NAME else fields(inner) for key, inner in value.items()}
    return [fields(value[0])] if isinstance(value, list) and value else None


def assert_same(sample: Any, printed: Any, place: str = "") -> None:
    """Both have the same fields, as far as both have something."""
    if isinstance(sample, dict) and isinstance(printed, dict):
        assert list(sample) == list(printed), place
        for key, value in sample.items():
            assert_same(value, printed[key], f"{place}.{key}")
    elif isinstance(sample, list) and isinstance(printed, list):
        assert_same(sample[0], printed[0], f"{place}[]")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the commands print, with runs that have ended and one that runs."""
    folder = tmp_path_factory.mktemp("json") / "reacher"
    scratch.make(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "none"))
        (folder / "none" / "clusterkit").mkdir(parents=True)
        (folder / "none" / "clusterkit" / "config.toml").write_text("[notify]\ncommand = ['true']")
        patch.setenv("STEPS", "4")
        submitted = invoke(["submit", "--seeds", "1,2", "--json"])[1]
        run_id = invoke(["submit", "--name", "broken", "--", "--broken"])[1].strip()
        broken = invoke(["logs", "last", "--follow"])
        assert b"metawrld" in broken[1].encode()
        searched = invoke([*SEARCH, "--trials", "1", "--json", "--", "--lr={lr}"])[1]
        patch.setenv("STEPS", "1000")
        patch.setenv("PAUSE", "0.1")
        assert invoke(["submit", "--name", "live"])[0] == 0
        until, first = time.monotonic() + 60, ""
        while not first and time.monotonic() < until:  # it is about to start
            first = invoke(["top", "--once", "--json"])[1]
        commands = {
            "status": ["status", "--all", "--json"],
            "notify": ["notify", "--json"],
            "deploy": ["deploy", "--dry-run", "--json"],
            "logs": ["logs", "broken", "--json"],
            "init": ["init", "--local", "--program", "python3 train.py", "--dry-run", "--json"],
            "logout": ["logout", "--json"],
            "diff": ["diff", "last", "broken", "--json"],
            "profiles": ["profiles", "--json"],
            "config": ["config", "project.default_cluster", "--show-origin", "--json"],
            "config allow": ["config", "allow", "--json"],
            "sync-results": ["sync-results", "--no-wandb", "--json"],
            "report": ["report", json.loads(submitted)["group"], "--json"],
            "export": ["export", "broken", "--json"],
            "storage prune": ["storage", "prune", "--dry-run", "--json"],
            "storage clean": ["storage", "clean", "--dry-run", "--json"],
            "rerun": ["rerun", run_id, "--json"],
            "resume": ["resume", run_id, "--json"],
            "cancel": ["cancel", "--all", "--yes", "--json"],
        }
        texts = {name: invoke(words)[1] for name, words in commands.items()}
    texts |= {"top": first, "submit": submitted, "search": searched}
    return {name: json.loads(text) for name, text in texts.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(samples().keys() - NEEDS_A_SITE))
def test_a_sample_has_the_fields_that_are_printed(name: str, printed: dict[str, Any]) -> None:
    assert_same(fields(samples()[name]), fields(printed[name]))
    assert samples()[name]["schema"] == printed[name]["schema"]


@pytest.mark.slow
def test_a_dry_run_of_submit_prints_the_fields_of_a_submission_and_submits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.make(tmp_path / "reacher")
    monkeypatch.chdir(tmp_path / "reacher")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    code, text, error = invoke(["submit", "--seeds", "1..3", "--dry-run", "--json"])
    assert code == 0, error
    printed = json.loads(text)
    assert_same(fields(samples()["submit"]), fields(printed))
    assert (printed["carried_out"], [run["seed"] for run in printed["runs"]]) == (False, [1, 2, 3])
    assert len({run["run_dir"] for run in printed["runs"]}) == 3
    assert json.loads(invoke(["status", "--json"])[1])["runs"] == []


@pytest.mark.slow
def test_a_run_without_group_recipe_or_until_done_has_null_there(printed: dict[str, Any]) -> None:
    (broken,) = [run for run in printed["status"]["runs"] if run["name"] == "broken"]
    assert {broken["group"], broken["until_done"], broken["recipe"]} == {None}


@pytest.mark.slow
def test_the_sample_of_a_gpu(printed: dict[str, Any]) -> None:
    (gpu,) = samples()["top"]["gpus"]
    assert list(gpu) == list(Gpu.__dataclass_fields__)


def test_the_samples_of_uploads_advice_and_images_to_remove(capsys: pytest.CaptureFixture[str]) -> None:
    upload = RunUpload("a", "a", UploadState.FAILED, message="no answer")
    sync_results.print_json(Synced(Path("results"), (PulledRun("a", found=True),), (upload,)))
    assert_same(fields(samples()["sync-results"]), fields(json.loads(capsys.readouterr().out)))
    advice = GroupAdvice(
        label="a",
        measured=(),
        needs=(ResourceNeed("memory", "4 GiB", "4 GiB", "8 GiB", "", too_little=True),),
        bottleneck=Bottleneck("physics", "It waits."),
        changes=(Change("workers = 2", "it waits", 1.5),),
        checks=(RuleCheck("Work lost", "act", "9 steps", "more time"),),
    )
    equal = EqualRuns(("a", "b"), ("seed",))
    report.print_json(
        Reported((ReportRow("a", 1, 5, None),), (Path("report.html"),), (), (advice,), (equal,))
    )
    assert_same(fields(samples()["report"]), fields(json.loads(capsys.readouterr().out)))
    young = Young("snapshot", "0a1b", None, 60)
    image, left_over = StoredImage("0123", 1, 1, False), (("image", ".upload"),)
    rubbish = Rubbish((image,), ("f25e",), left_over, 1, (young,), environments={"0123": 1})
    storage_prune.print_json(Garbage("uni", rubbish, removed=True))
    assert_same(fields(samples()["storage prune"]), fields(json.loads(capsys.readouterr().out)))


def a_tuning(run: LedgerRun) -> Tuned:
    setting = BenchSetting(1, 1, "fp32")
    row = BenchRow("loop", setting, None, None, 1.0, None, None, None)
    bench = Bench(0.0, True, "n1", "CPU", None, "sac", setting, (row,))
    profile = Profile.model_validate({"name": "a", "time": "1h", "precision": "fp32", "device": "cpu"})
    chosen = Chosen(row, row, {setting: "is too large"})
    return Tuned(run, RunState(JobState.COMPLETED), profile, bench, chosen, {"workers": 1})


def test_the_samples_of_what_needs_a_site_or_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    image = StoredImage("0123", 1, 1, False)
    environment = EnvironmentRow("0123", 1, 1, ("a",), ())
    show_images.print_json("uni", [ImageRow(image, ("a",), (), True)], [environment])
    assert_same(fields(samples()["storage list"]), fields(json.loads(capsys.readouterr().out)))
    score = Score(0.5, 0.4, 0.6, 1.0, 500.0)
    model = ChosenModel(Path("m.pt"), "m", Path())
    show_model.print_json(Evaluated(model, 1, 50, {"reach-v3": score}, score))
    assert_same(fields(samples()["evaluate"]), fields(json.loads(capsys.readouterr().out)))
    login.print_json(LoggedIn("uni", "login.uni.edu", new=True, seconds=60))
    assert_same(fields(samples()["login"]), fields(json.loads(capsys.readouterr().out)))
    changes = PackageChanges({}, {}, {})
    build.print_json(Built(Image("0123", 1), "a.sif", 1, changes))
    assert_same(fields(samples()["build"]), fields(json.loads(capsys.readouterr().out)))
    run = LedgerRun("a", "b", "c", "d", "e", 1, "f", "g", "h", 1, "COMPLETED")
    show_tune.print_json(a_tuning(run), carried_out=True)
    assert_same(fields(samples()["tune"]), fields(json.loads(capsys.readouterr().out)))
    verdicts = (Verdict(Outcome.FAIL, "no checkpoint", "save one"),)
    rehearse.print_json(Rehearsed(run, Continuation("requeue", ""), verdicts))
    assert_same(fields(samples()["rehearse"]), fields(json.loads(capsys.readouterr().out)))


def test_every_command_with_json_has_a_sample_or_a_page_of_its_own() -> None:
    named = {name for name, one in commands().items() if "--json" in options(one)}
    # `allow` stands in place of config's KEY
    assert {name.removesuffix(" allow") for name in samples()} <= named
    for name in named - samples().keys():
        assert "\n## JSON\n" in (ROOT / "docs" / f"{name}.md").read_text()
