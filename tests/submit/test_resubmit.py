"""What the next submission of a run asks for."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.jobs import EarlySignal, JobState
from clusterkit.backends.submission import Submission
from clusterkit.config.models import Cluster, Profile
from clusterkit.errors import ConfigError
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.record import RunRecord
from clusterkit.runs.secret_values import SecretValues
from clusterkit.runs.spec import RunSpec, must_start_alike
from clusterkit.runs.state import RunState
from clusterkit.site import Layout, open_site
from clusterkit.submit.materials import Materials
from clusterkit.submit.pipeline import prepare
from clusterkit.submit.plan import PlannedRun, place
from clusterkit.submit.request import Changes, early_signal
from clusterkit.submit.resubmit import Ended, resume_plan

OPTIONS = ["--cpus-per-task=32", "--mem=65536M", "--qos=long", "--array=0-3", "--time=01:00:00"]
RUN = LedgerRun("r-1", "site", "r", "mine", "", 0, "7", "", "/w/runs/r-1", 0, "FAILED")
SITE = Cluster(name="site", root="/w", container="none")


def ended(
    profile: Profile,
    *,
    run: LedgerRun = RUN,
    root: str = "/w",
    env: dict[str, str] | None = None,
    **request: Any,
) -> Ended:
    """A run of one submission."""
    spec = RunSpec(
        run_id=run.run_id,
        name=run.name,
        created="2026-01-02T03:04:05Z",
        cluster=run.cluster,
        profile=profile.model_dump(mode="json"),
        recipe=None,
        argv=("./train",),
        env=env or {},
        workdir=f"{root}/snapshots/{'0' * 16}/project",
        python_path=(f"{root}/snapshots/{'1' * 16}/bundle",),
        snapshot={"id": "0" * 16},
        seed=1,
        total_steps=None,
        time_limit_seconds=profile.time,
        wandb={},
        versions={},
    )
    record = RunRecord(submissions=(Submission.recorded(0, request, asked=1.0, status=0, answer="7"),))
    return Ended(run, RunState(JobState.FAILED), record, spec)


def again(before: Ended, changes: Changes = Changes(), cluster: Cluster = SITE) -> PlannedRun:  # noqa: B008
    return resume_plan(cluster, before, changes).runs[0]


@pytest.mark.parametrize(("pack", "cpus", "memory"), [(4, "8", "16G"), (1, "32", "65536M")])
def test_a_run_of_a_pack_asks_for_the_share_of_one(pack: int, cpus: str, memory: str) -> None:
    profile = Profile.model_validate({"name": "mine", "cpus": 8, "memory": "16G", "time": "1h"})
    options = again(ended(profile, options=OPTIONS, pack=pack)).submission.options
    assert {f"--cpus-per-task={cpus}", "--qos=long", "--time=01:00:00"} <= set(options)
    assert [each for each in options if each.startswith("--mem")] == [f"--mem={memory}"]
    assert not any(each.startswith("--array") for each in options)


def test_what_it_waited_for_at_first_it_does_not_wait_for_again() -> None:
    profile = Profile.model_validate({"name": "mine", "time": "1h"})
    waiting = ["--dependency=afterok:7", "--kill-on-invalid-dep=yes"]
    options = again(ended(profile, options=["--qos=long", *waiting])).submission.options
    assert "--qos=long" in options
    assert not any("dep" in each for each in options)


def test_another_time_limit_has_its_own_signal() -> None:
    profile = Profile.model_validate({"name": "mine", "time": "1h", "signal": "USR2"})
    before = ended(profile, options=["--time=01:00:00", "--signal=B:USR2@120"])
    assert {"--time=01:00:00", "--signal=B:USR2@120"} <= set(again(before).submission.options)
    changed = again(before, Changes(time=120)).submission.options
    assert {"--time=00:02:00", "--signal=B:USR2@24"} <= set(changed)


@pytest.mark.parametrize(
    ("request_", "verified"),
    [({"verify_image": True}, True), ({}, False)],
    ids=["recorded", "not asked for"],
)
def test_an_image_that_was_to_be_verified_is_verified_again(request_: dict[str, Any], verified: bool) -> None:
    profile = Profile.model_validate({"name": "mine", "time": "1h"})
    assert again(ended(profile, **request_)).submission.verify_image is verified


def test_what_the_program_sees_is_as_its_own_environment_says(tmp_path: Path) -> None:
    here = Cluster(name="here", kind="local", root=str(tmp_path / "root"), container="none")
    profile = Profile.model_validate({"name": "mine", "time": "1h"})
    with open_site(here) as site, Ledger(tmp_path / ".clusterkit" / "ledger") as ledger:
        root, before = site.layout.root, site.layout.run("r-0")
        run = LedgerRun("r-1", "here", "r", "mine", "", 0, "", "", site.layout.run("r-1"), 0, "PENDING")

        def job(**env: str) -> tuple[tuple[str, ...], bool]:
            found = ended(profile, run=run, root=root, env=env)
            plan = resume_plan(here, found, Changes())
            made = prepare(site, ledger, plan, Materials.recorded(found.spec), SecretValues()).placed[0].job
            return made.binds, made.wandb_login

        assert job(CLUSTERKIT_PREVIOUS_RUN_DIR=before) == ((), False)
        Path(before).mkdir(parents=True)
        assert job(CLUSTERKIT_PREVIOUS_RUN_DIR=before) == ((f"{before}:{before}:ro",), False)
        assert job(CLUSTERKIT_PREVIOUS_RUN_DIR=root) == ((), False)
        assert job(WANDB_MODE="online") == ((), True)


def test_a_run_that_began_without_a_container_resumes_without_one(tmp_path: Path) -> None:
    here = Cluster(name="here", kind="local", root=str(tmp_path / "root"), container="apptainer")
    profile = Profile.model_validate({"name": "mine", "time": "1h"})
    with open_site(here) as site, Ledger(tmp_path / ".clusterkit" / "ledger") as ledger:
        found = ended(profile, run=replace(RUN, cluster="here"), root=site.layout.root)
        plan = resume_plan(here, found, Changes())
        (run,) = prepare(site, ledger, plan, Materials.recorded(found.spec), SecretValues()).placed
    assert run.job.runtime.name == "none"


@pytest.mark.parametrize(
    ("argv", "uses"),
    [
        (("./train",), False),
        (("python", "-m", "trainer.mine"), False),
        (("python", "-m", "trainer", "train"), True),
        (("sh", "-c", "exec python -m trainer check;"), True),
    ],
)
def test_only_a_program_that_starts_the_bundled_trainer_gets_it_again(
    tmp_path: Path, argv: tuple[str, ...], uses: bool
) -> None:
    """Every run got it once, so one that is moved or repeated may leave it behind."""
    there = Cluster(name="there", root=str(tmp_path), container="none")
    found = ended(Profile.model_validate({"name": "mine", "time": "1h"}))
    spec = replace(found.spec, argv=argv)
    plan = resume_plan(there, replace(found, spec=spec), Changes())
    layout = Layout(str(tmp_path), str(tmp_path), str(tmp_path))
    placed = place(plan.runs[0], Materials.recorded(spec), there, layout, None, SecretValues())
    bundle = (f"{layout.snapshots}/{'1' * 16}/bundle",) if uses else ()
    assert placed.submission.python_path == placed.spec.python_path == placed.job.libraries == bundle
    assert placed.spec.trees == ("0" * 16, *(("1" * 16,) if uses else ()))
    assert len(placed.needs) == 1 + uses


@pytest.mark.parametrize(
    ("changes", "trains", "goes_on", "expected"),
    [
        ({}, True, False, EarlySignal("USR1", 120)),
        ({}, False, True, None),
        ({"time": "9m"}, True, False, None),
        ({"time": "9m"}, True, True, EarlySignal("USR1", 108)),
        ({"time": "20s"}, True, True, EarlySignal("USR1", 12)),
        ({"signal": "USR2", "signal_before": "5m"}, False, False, EarlySignal("USR2", 300)),
        ({"signal": "none"}, True, True, None),
    ],
)
def test_the_signal_before_the_limit(
    changes: dict[str, str], trains: bool, goes_on: bool, expected: EarlySignal | None
) -> None:
    own = Profile.model_validate({"name": "p", "time": "4h", **changes})
    assert early_signal(own, trains=trains, goes_on=goes_on) == expected


@pytest.mark.parametrize("began", ["image", "registry", "none"])
@pytest.mark.parametrize("goes_on", ["image", "registry", "none"])
def test_a_run_goes_on_only_in_the_same_kind_of_container(began: str, goes_on: str) -> None:
    reference = "docker://nvcr.io#nvidia/pytorch:24.05-py3"
    spec = replace(
        ended(Profile.model_validate({"name": "mine", "time": "1m"})).spec,
        image={"digest": "0f", "bytes": 1} if began == "image" else None,
        versions={"image": reference} if began == "registry" else {},
    )
    cluster = {
        "image": Cluster(name="site", root="/w"),
        "registry": Cluster(name="site", root="/w", container="pyxis", registry_image=reference),
        "none": SITE,
    }[goes_on]
    with nullcontext() if began == goes_on else pytest.raises(ConfigError, match="has container = "):
        must_start_alike(spec, cluster)
